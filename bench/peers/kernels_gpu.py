#!/usr/bin/env python3
"""Each kernel on a GPU: loam against PyTorch, the same sizes, in one run.

  bench/peers/kernels_gpu.py --loam build/release/bin/loam [--dtype bf16|f16|f32] [--only PREFIX] [--seconds 0.1] [--blocks 1]
  bench/peers/kernels_gpu.py --loam build/release/bin/loam --device cpu      # the same calls at the CPU's sizes

Prints one JSON line for each kernel and variant, with the keys of `loam bench kernels --json`: those of loam as they are, and PyTorch's ("eager", "compile"; of attention
"cudnn" and "flash"), which also have "ratio": PyTorch's time by loam's, above 1 where loam is faster. Names and shapes are loam's. Both sides rotate operands of noise over
256 MiB and take the median of calls that are timed by events while the GPU has work ahead. Where a call of PyTorch does less than loam's it is said at the call.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROTATED, MOST_SETS, QUEUED = 256 << 20, 64, 20
aten = torch.ops.aten

CPU = SimpleNamespace(B=4, T=256, C=768, H=12, F=3072, V=50257, group=1 << 24, decoded=1024, logits=256, head_rows=(64, 128, 256, 333, 512, 1024), attention=())
GPU = SimpleNamespace(B=16, T=1024, C=768, H=12, F=3072, V=50304, group=1 << 26, decoded=16384, logits=4096, head_rows=(4096, 16384),
                      attention=tuple((B, 16384 // B, 12, D) for D in (64, 128) for B in (16, 8, 4, 2, 1)))


class Peers:
    """Yields (name, bytes that a call touches, {variant: make}): make() gives a call on new operands."""

    def __init__(self, sizes, dtype, gpu, compile):
        self.s, self.dtype, self.gpu, self.compile, self.N = sizes, dtype, gpu, compile, sizes.B * sizes.T

    def noise(self, *shape, dtype=None):
        return torch.randn(shape, dtype=dtype or self.dtype)

    def compiled(self, f):
        return {"eager": f} | ({"compile": torch.compile(f)} if self.compile else {})

    def forward(self, name, f, shapes, extra=()):
        """f of tensors of noise, eager and compiled."""
        def make(run):
            operands = [self.noise(*shape) for shape in shapes]
            return lambda: run(*operands, *extra)

        size = 2 * self.dtype.itemsize * max(torch.Size(shape).numel() for shape in shapes)
        return name, size, {variant: lambda run=run: make(run) for variant, run in self.compiled(f).items()}

    def backward(self, name, f, shapes, out, weights=()):
        """The gradients of f(*tensors, *weights) with respect to all of them."""
        def make(run):
            inputs = [self.noise(*shape).requires_grad_() for shape in shapes]
            y, dy = run(*inputs, *weights), self.noise(*out)
            return lambda: torch.autograd.grad(y, (*inputs, *weights), dy, retain_graph=True)

        size = 3 * self.dtype.itemsize * max(torch.Size(shape).numel() for shape in shapes)
        return name, size, {variant: lambda run=run: make(run) for variant, run in self.compiled(f).items()}

    def linear(self, name, rows, out, inner):
        def forward():
            x, w, b = self.noise(rows, inner), self.noise(out, inner), self.noise(out)
            return lambda: F.linear(x, w, b)

        def dx():
            dy, w = self.noise(rows, out), self.noise(out, inner)
            return lambda: dy @ w

        def dw():  # loam adds to a gradient in f32; this writes one in the compute dtype
            dy, x = self.noise(rows, out), self.noise(rows, inner)
            return lambda: dy.t() @ x

        size = self.dtype.itemsize * (rows * inner + rows * out + out * inner)
        for ending, make in (("fwd", forward), ("dx", dx), ("dw", dw)):
            yield f"{name}_{ending}", size, {"eager": make}

    def matmuls(self):
        C, ffn = self.s.C, self.s.F
        layers = [("qkv", self.N, 3 * C, C), ("out", self.N, C, C), ("up", self.N, ffn, C), ("down", self.N, C, ffn)]
        for layer in layers + ([("head", self.N // 4, 50304, C)] if self.gpu else []):
            yield from self.linear(*layer)

    def head(self):
        def loss(x, w, targets):
            return F.cross_entropy((x @ w.t()).float(), targets)

        def make(run):
            x, w = self.noise(self.N, self.s.C).requires_grad_(), (0.05 * self.noise(self.s.V, self.s.C)).requires_grad_()
            targets = torch.randint(self.s.V, (self.N,))
            return lambda: torch.autograd.grad(run(x, w, targets), (x, w))

        for rows in self.s.head_rows:  # PyTorch takes all rows at once
            yield f"head_rows_{rows}", 1 << 40, {variant: lambda run=run: make(run) for variant, run in self.compiled(loss).items()}

    def elementwise(self):
        rows = (self.N, self.s.C)
        yield self.forward("add", lambda a, b: a + b, [rows, rows])
        yield self.forward("scale", lambda x: x * 0.5, [rows])
        yield self.forward("sum_rows", lambda x: x.sum(0, dtype=torch.float32), [(self.N, self.s.F)])
        yield self.forward("dropout", lambda x: F.dropout(x, 0.1), [rows])

        def fill():
            x = self.noise(self.s.group, dtype=torch.float32)
            return lambda: x.zero_()

        def cast():
            x, y = self.noise(self.s.group, dtype=torch.float32), self.noise(self.s.group, dtype=torch.bfloat16)
            return lambda: y.copy_(x)

        yield "fill", 4 * self.s.group, {"eager": fill}
        yield "cast", 6 * self.s.group, {"eager": cast}

    def norms(self):
        C = self.s.C
        rows, w, b = (self.N, C), self.noise(C).requires_grad_(), self.noise(C).requires_grad_()
        layer, rms = (lambda x, w, b: F.layer_norm(x, (C,), w, b, 1e-5)), (lambda x, w: F.rms_norm(x, (C,), w, 1e-5))
        yield self.forward("layer_norm_fwd", layer, [rows], (w.detach(), b.detach()))
        yield self.backward("layer_norm_bwd", layer, [rows], rows, (w, b))
        yield self.forward("rms_norm_fwd", rms, [rows], (w.detach(),))
        yield self.backward("rms_norm_bwd", rms, [rows], rows, (w,))

    def activations(self):
        def gated(x):
            gate, up = x.chunk(2, -1)
            return F.silu(gate) * up

        rows, pairs, gelu = (self.N, self.s.F), (self.N, 2 * self.s.F), lambda x: F.gelu(x, approximate="tanh")
        yield self.forward("gelu_tanh_fwd", gelu, [rows])
        yield self.backward("gelu_tanh_bwd", gelu, [rows], rows)
        yield self.forward("gated_silu_fwd", gated, [pairs])
        yield self.backward("gated_silu_bwd", gated, [pairs], rows)

    def attention_of(self, ending, B, T, H, D):
        backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION} if self.gpu else {"flash": SDPBackend.FLASH_ATTENTION}

        def heads():
            return [x.view(B, T, H, D).transpose(1, 2) for x in self.noise(B, T, 3 * H * D).split(H * D, -1)]

        def attend(backend, qkv):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*qkv, is_causal=True)

        def forward(backend):
            qkv = heads()
            return lambda: attend(backend, qkv)

        def backward(backend):
            qkv = [x.detach().requires_grad_() for x in heads()]
            y, dy = attend(backend, qkv), self.noise(B, T, H, D).transpose(1, 2)
            return lambda: torch.autograd.grad(y, qkv, dy, retain_graph=True)

        size = 4 * self.dtype.itemsize * B * T * H * D
        yield "attention_fwd" + ending, size, {name: lambda b=b: forward(b) for name, b in backends.items()}
        yield "attention_bwd" + ending, 2 * size, {name: lambda b=b: backward(b) for name, b in backends.items()}

    def attention(self):
        s, D = self.s, self.s.C // self.s.H
        yield from self.attention_of("", s.B, s.T, s.H, D)
        for B, T, H, d in s.attention:
            yield from self.attention_of(f"_b{B}_t{T}_d{d}", B, T, H, d)

        def decode():
            q = self.noise(1, s.H, 1, D)
            k, v = (self.noise(1, s.decoded, s.H, D).transpose(1, 2) for _ in range(2))
            return lambda: F.scaled_dot_product_attention(q, k, v)

        def rotate(x, cos, sin):
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        yield "attention_decode", 2 * self.dtype.itemsize * s.decoded * s.C, {"eager": decode}
        angles = torch.rand(self.N, 1, D // 2) * s.T  # from tables of cosines and sines, which loam computes
        yield self.forward("rope", rotate, [(self.N, s.H, D)], (angles.cos().to(self.dtype), angles.sin().to(self.dtype)))

    def embedding(self):
        ids = torch.randint(self.s.V, (self.N,))

        def forward():
            table = self.noise(self.s.V, self.s.C)
            return lambda: F.embedding(ids, table)

        def backward():  # writes a whole gradient, where loam adds to the rows that ids name
            dy = self.noise(self.N, self.s.C)
            return lambda: aten.embedding_dense_backward(dy, ids, self.s.V, -1, False)

        size = 2 * self.dtype.itemsize * self.N * self.s.C
        yield "embedding_fwd", size, {"eager": forward}
        yield "embedding_bwd", size, {"eager": backward}

    def cross_entropy(self):
        n, V = self.s.logits, self.s.V
        dtype = self.dtype if self.gpu else torch.float32
        loss = self.compiled(lambda x, targets: F.cross_entropy(x.float(), targets))

        def make(run):
            x, targets = self.noise(n, V, dtype=dtype).requires_grad_(), torch.randint(V, (n,))
            return lambda: torch.autograd.grad(run(x, targets), x)

        def softcap(run):
            x = self.noise(n, V, dtype=dtype)
            return lambda: run(x)

        size = 2 * dtype.itemsize * n * V
        yield "cross_entropy_rows", size, {name: lambda run=run: make(run) for name, run in loss.items()}
        caps = self.compiled(lambda x: 30 * torch.tanh(x / 30))
        yield "softcap", size, {name: lambda run=run: softcap(run) for name, run in caps.items()}

    def optimizers(self):  # of f32 parameters, where loam writes the weights in the compute dtype too
        def make(kind, **options):
            p = torch.nn.Parameter(self.noise(self.s.group, dtype=torch.float32))
            p.grad = self.noise(self.s.group, dtype=torch.float32)
            return kind([p], lr=1e-4, **options).step

        fused = dict(adamw=(torch.optim.AdamW, dict(weight_decay=0.1)), sgd=(torch.optim.SGD, dict(momentum=0.9)))
        for name, (kind, options) in fused.items():
            yield name, 1 << 40, {"eager": lambda kind=kind, options=options: make(kind, fused=True, **options)}
        for name, kind in dict(adagrad=torch.optim.Adagrad, rmsprop=torch.optim.RMSprop).items():
            yield name, 1 << 40, {"eager": lambda kind=kind: make(kind, foreach=True)}

        def squares():
            x = self.noise(self.s.group, dtype=torch.float32)
            return lambda: torch.linalg.vector_norm(x)

        yield "sum_squares", 4 * self.s.group, {"eager": squares}

    def __iter__(self):
        for group in (self.matmuls, self.head, self.elementwise, self.norms, self.activations, self.attention, self.embedding, self.cross_entropy, self.optimizers):
            yield from group()


def time_on_gpu(calls, seconds):
    ahead, times, start = torch.empty(1 << 28), [], time.perf_counter()
    while time.perf_counter() - start < seconds or not times:
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(QUEUED)]
        ahead.zero_()
        for i, (before, after) in enumerate(marks):
            before.record()
            calls[(len(times) + i) % len(calls)]()
            after.record()
        torch.cuda.synchronize()
        times += [1e-3 * before.elapsed_time(after) for before, after in marks]
    return times


def time_on_cpu(calls, seconds):
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        call, before = calls[len(times) % len(calls)], time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return times


def measure(make, size, args):
    count = max(1, min(MOST_SETS, ROTATED // size))
    calls = [make() for _ in range(count)]
    for call in calls[:2]:
        call()
    return (time_on_gpu if args.device.startswith("cuda") else time_on_cpu)(calls, args.seconds)


def run_loam(args):
    command = [args.loam, "bench", "kernels", "--json", "--device", args.device, "--dtype", args.dtype, "--seconds", str(args.seconds)]
    command += ["--only", args.only] if args.only else []
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def torch_times(peers, args):
    """{(name, variant): times}; what a version or a device lacks is said and left out."""
    found = {}
    for name, size, variants in peers:
        for variant, make in variants.items() if name.startswith(args.only) else ():
            try:
                found[name, variant] = measure(make, size, args)
            except Exception as error:
                print(f"{name} {variant}: {str(error).splitlines()[0]}", file=sys.stderr)
            if args.device.startswith("cuda"):
                torch.cuda.empty_cache()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loam", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["f32", "bf16", "f16"], default="bf16")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each, at least")
    parser.add_argument("--blocks", type=int, default=1, help="times that both sides take turns")
    parser.add_argument("--eager", action="store_true", help="PyTorch without torch.compile, which takes minutes")
    args = parser.parse_args()
    gpu = args.device.startswith("cuda")
    torch.set_default_device(args.device)
    torch.set_float32_matmul_precision("highest")
    torch._functorch.config.donated_buffer = False  # a compiled backward pass that runs again and again
    peers = Peers(GPU if gpu else CPU, dict(f32=torch.float32, bf16=torch.bfloat16, f16=torch.float16)[args.dtype], gpu, gpu and not args.eager)
    loam, times = {}, {}
    for _ in range(args.blocks):
        for record in run_loam(args):
            loam.setdefault((record["name"], record["variant"]), []).append(record)
        for key, seconds in torch_times(peers, args).items():
            times.setdefault(key, []).extend(seconds)
    ours = {}
    for (name, variant), records in loam.items():
        record = sorted(records, key=lambda r: r["seconds"])[len(records) // 2]
        ours[name] = record if variant == "table" else ours[name]
        print(json.dumps(record))
    for (name, variant), seconds in times.items():
        if name not in ours:
            continue
        table, median = ours[name], statistics.median(seconds)
        work = {key: table[key] * table["seconds"] / median for key in ("flops_per_second", "bytes_per_second")}
        print(json.dumps(dict(bench="kernels", version=f"torch {torch.__version__}", device=args.device, name=name, variant=variant, shape=table["shape"], dtype=table["dtype"],
                              seconds=median, best_seconds=min(seconds), **work, calls=len(seconds), ratio=round(median / table["seconds"], 3))))


if __name__ == "__main__":
    main()

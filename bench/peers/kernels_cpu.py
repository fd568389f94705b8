#!/usr/bin/env python3
"""Each kernel of a training step on the CPU: loam against PyTorch, the same sizes, in one run, alternating.

  bench/peers/kernels_cpu.py --loam build/release/bin/loam [--dtype f32|bf16] [--only PREFIX] [--threads 2] [--blocks 3]

Prints one JSON line for each operation: median microseconds of both, ratio (above 1: loam is faster), and for matrix products also those of loam's own product ("gemm")
and of oneDNN called by loam ("dnnl"). Sizes and names are those of `loam bench kernels`.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

B, T, C, H, V = 4, 256, 768, 12, 50257
N, D, HIDDEN, GROUP = B * T, C // H, 4 * C, 1 << 24
ROTATED, MOST_SETS = 256 << 20, 64
aten = torch.ops.aten


def sets(bytes_of_call, *shapes, dtype):
    """Rotating buffers: as many tuples of tensors as fill 256 MiB."""
    count = max(1, min(MOST_SETS, ROTATED // bytes_of_call))
    return [tuple(torch.randn(shape, dtype=dtype) for shape in shapes) for _ in range(count)]


def linear(name, out, inner, dtype, size):
    def operands():
        return sets(size * (N * inner + N * out + out * inner), (N, inner), (N, out), (out, inner), dtype=dtype)

    def forward():
        bias = torch.randn(out, dtype=dtype)
        return [lambda x=x, w=w: F.linear(x, w, bias) for x, _, w in operands()]

    yield f"{name}_fwd", forward
    yield f"{name}_dx", lambda: [lambda y=y, w=w: y @ w for _, y, w in operands()]
    yield f"{name}_dw", lambda: [lambda x=x, y=y: y.t() @ x for x, y, _ in operands()]


def norm_calls(dtype, size):
    w, b = torch.randn(C, dtype=dtype), torch.randn(C, dtype=dtype)

    def layer_backward():
        calls = []
        for x, dy in sets(2 * size * N * C, (N, C), (N, C), dtype=dtype):
            _, mean, rstd = aten.native_layer_norm(x, [C], w, b, 1e-5)
            calls.append(lambda x=x, dy=dy, m=mean, r=rstd: aten.native_layer_norm_backward(dy, x, [C], m, r, w, b, [True, True, True]))
        return calls

    def rms_backward():
        calls = []
        weight = w.clone().requires_grad_()
        for x, dy in sets(2 * size * N * C, (N, C), (N, C), dtype=dtype):
            y = F.rms_norm(x.requires_grad_(), (C,), weight, 1e-5)
            calls.append(lambda x=x, y=y, dy=dy: torch.autograd.grad(y, (x, weight), dy, retain_graph=True))
        return calls

    yield "layer_norm_fwd", lambda: [lambda x=x: F.layer_norm(x, (C,), w, b, 1e-5) for (x,) in sets(2 * size * N * C, (N, C), dtype=dtype)]
    yield "layer_norm_bwd", layer_backward
    yield "rms_norm_fwd", lambda: [lambda x=x: F.rms_norm(x, (C,), w, 1e-5) for (x,) in sets(2 * size * N * C, (N, C), dtype=dtype)]
    yield "rms_norm_bwd", rms_backward


def activation_calls(dtype, size):
    def pairs(width, moved):
        return sets(size * moved, (N, width), (N, HIDDEN), dtype=dtype)

    def silu(x):
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    def silu_backward():
        calls = []
        for x, dy in pairs(2 * HIDDEN, 3 * N * HIDDEN):
            y = silu(x.requires_grad_())
            calls.append(lambda x=x, y=y, dy=dy: torch.autograd.grad(y, x, dy, retain_graph=True))
        return calls

    yield "gelu_tanh_fwd", lambda: [lambda x=x: F.gelu(x, approximate="tanh") for x, _ in pairs(HIDDEN, 3 * N * HIDDEN)]
    yield "gelu_tanh_bwd", lambda: [lambda x=x, dy=dy: aten.gelu_backward(dy, x, approximate="tanh") for x, dy in pairs(HIDDEN, 3 * N * HIDDEN)]
    yield "gated_silu_fwd", lambda: [lambda x=x: silu(x) for x, _ in pairs(2 * HIDDEN, 3 * N * HIDDEN)]
    yield "gated_silu_bwd", silu_backward


def attention_calls(dtype, size):
    def heads(qkv):
        return [x.view(B, T, H, D).transpose(1, 2) for x in qkv.split(C, -1)]

    def backward():
        calls = []
        dy = torch.randn(B, H, T, D, dtype=dtype)
        for (qkv,) in sets(4 * size * N * C, (B, T, 3 * C), dtype=dtype):
            q, k, v = (x.detach().requires_grad_() for x in heads(qkv))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            calls.append(lambda y=y, qkv=(q, k, v): torch.autograd.grad(y, qkv, dy, retain_graph=True))
        return calls

    def decode():
        q = torch.randn(1, H, 1, D, dtype=dtype)
        return [lambda k=k, v=v: F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2))
                for k, v in sets(size * 2 * 1024 * C, (1, 1024, H, D), (1, 1024, H, D), dtype=dtype)]

    yield "attention_fwd", lambda: [lambda h=heads(qkv): F.scaled_dot_product_attention(*h, is_causal=True)
                                    for (qkv,) in sets(4 * size * N * C, (B, T, 3 * C), dtype=dtype)]
    yield "attention_bwd", backward
    yield "attention_decode", decode


def head_call(dtype):
    x, w = torch.randn(N, C, dtype=dtype, requires_grad=True), (0.05 * torch.randn(V, C)).to(dtype).requires_grad_()
    targets = torch.randint(V, (N,))

    def call():
        torch.autograd.grad(F.cross_entropy((x @ w.t()).float(), targets), (x, w))

    return [call]


def cross_entropy_calls():
    targets = torch.randint(V, (256,))

    def call(logits):
        torch.autograd.grad(F.cross_entropy(logits, targets), logits)

    return [lambda x=x.requires_grad_(): call(x) for (x,) in sets(256 * V * 4, (256, V), dtype=torch.float32)]


def embedding_calls(dtype):
    ids, table, dy = torch.randint(V, (N,)), torch.randn(V, C, dtype=dtype), torch.randn(N, C, dtype=dtype)
    yield "embedding_fwd", lambda: [lambda: F.embedding(ids, table)]
    yield "embedding_bwd", lambda: [lambda: aten.embedding_dense_backward(dy, ids, V, -1, False)]


def adamw_calls():
    p = torch.nn.Parameter(torch.randn(GROUP))
    p.grad = torch.randn(GROUP)
    return [torch.optim.AdamW([p], lr=1e-4, weight_decay=0.1, fused=True).step]


def operations(dtype):
    size = dtype.itemsize
    for name, out, inner in (("qkv", 3 * C, C), ("out", C, C), ("up", HIDDEN, C), ("down", C, HIDDEN)):
        yield from linear(name, out, inner, dtype, size)
    for rows in (64, 128, 256, 333, 512, 1024):
        yield f"head_rows_{rows}", lambda: head_call(dtype)
    yield "add", lambda: [lambda a=a, b=b: a + b for a, b in sets(3 * size * N * C, (N, C), (N, C), dtype=dtype)]
    yield "sum_rows", lambda: [lambda x=x: x.sum(0) for (x,) in sets(size * N * HIDDEN, (N, HIDDEN), dtype=dtype)]
    yield "fill", lambda: [lambda x=x: x.zero_() for (x,) in sets(4 * GROUP, (GROUP,), dtype=torch.float32)]
    yield from norm_calls(dtype, size)
    yield from activation_calls(dtype, size)
    yield from attention_calls(dtype, size)
    yield from embedding_calls(dtype)
    yield "cross_entropy_rows", cross_entropy_calls
    yield "adamw", adamw_calls
    yield "sum_squares", lambda: [lambda x=torch.randn(GROUP): torch.linalg.vector_norm(x)]
    yield "cast", lambda: [lambda x=torch.randn(GROUP): x.to(torch.bfloat16)]


def time_calls(calls, seconds):
    for call in calls[:2]:
        call()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        call, before = calls[len(times) % len(calls)], time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def run_loam(path, op, dtype, seconds, threads):
    command = [path, "bench", "kernels", "--json", "--dtype", dtype, "--only", op, "--seconds", str(seconds), "--threads", str(threads)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    results = [json.loads(line) for line in lines]
    return {r["variant"]: r["seconds"] for r in results if r["name"] == op}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loam", required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for op, prepare in operations(torch.float32 if args.dtype == "f32" else torch.bfloat16):
        if not op.startswith(args.only):
            continue
        calls, theirs, ours = prepare(), [], []
        for _ in range(args.blocks):
            theirs.append(time_calls(calls, args.seconds))
            ours.append(run_loam(args.loam, op, args.dtype, args.seconds, args.threads))
        del calls
        torch_us = statistics.median(theirs) * 1e6
        loam_us = {v: statistics.median(o[v] for o in ours) * 1e6 for v in ours[0]}
        report = dict(op=op, dtype=args.dtype, threads=args.threads, torch=torch.__version__, torch_us=round(torch_us, 1), loam_us=round(loam_us["table"], 1),
                      ratio=round(torch_us / loam_us["table"], 3))
        report |= {f"{v}_us": round(us, 1) for v, us in loam_us.items() if v != "table"}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

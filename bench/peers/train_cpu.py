#!/usr/bin/env python3
"""One training step on the CPU: loam against PyTorch, the same shapes, in one run, alternating.

  bench/peers/train_cpu.py --loam build/release/bin/loam [--shape gpt2|quickstart] [--dtype f32|bf16] [--blocks 5] [--compile]

Both sides take random tokens, forward, cross-entropy, backward, clipping to norm 1 and AdamW. Prints the median step of each block and the ratio of medians.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPES = {
    # GPT-2 form: LayerNorm, biases, GELU, learned positions, tied head.
    "gpt2": dict(form="gpt2", layers=12, dim=768, heads=12, ffn=3072, vocab=50257, batch=4, length=256),
    # Llama form: RMSNorm, rotary, SwiGLU, tied head; the size of recipes/quickstart.json.
    "quickstart": dict(form="llama", layers=4, dim=256, heads=8, kv_heads=4, ffn=704, vocab=8192, batch=8, length=256),
}


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.llama, self.heads = s["form"] == "llama", s["heads"]
        C, ffn, bias = s["dim"], s["ffn"], s["form"] == "gpt2"
        norm = (lambda: nn.RMSNorm(C, eps=1e-5)) if self.llama else (lambda: nn.LayerNorm(C, eps=1e-5))
        self.norm1, self.norm2 = norm(), norm()
        self.kv_heads, self.head_dim = s.get("kv_heads", s["heads"]), C // s["heads"]
        self.qkv = nn.Linear(C, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=bias)
        self.out = nn.Linear(C, C, bias=bias)
        self.up, self.down = nn.Linear(C, 2 * ffn if self.llama else ffn, bias=bias), nn.Linear(ffn, C, bias=bias)

    def forward(self, x, rotary):
        B, T, C = x.shape
        heads = self.qkv(self.norm1(x)).view(B, T, -1, self.head_dim).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        if self.llama:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        h = self.up(self.norm2(x))
        if self.llama:
            gate, up = h.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(h, approximate="tanh"))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        C, T = s["dim"], s["length"]
        self.embedding = nn.Embedding(s["vocab"], C)
        self.positions = nn.Embedding(T, C) if s["form"] == "gpt2" else None
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.norm = nn.LayerNorm(C) if s["form"] == "gpt2" else nn.RMSNorm(C, eps=1e-5)
        D = C // s["heads"]
        angle = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, D, 2).float() / D))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, (self.cos.to(x.dtype), self.sin.to(x.dtype)))
        logits = self.norm(x) @ self.embedding.weight.T
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def torch_stepper(s, dtype, compiled):
    model = Model(s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(s["vocab"], (s["batch"], s["length"] + 1))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def loam_command(path, s, dtype, steps, threads):
    sets = dict(vocab_size=s["vocab"], context_length=s["length"], layers=s["layers"], dim=s["dim"], heads=s["heads"],
                kv_heads=s.get("kv_heads", 0), ffn_dim=s["ffn"])
    if s["form"] == "gpt2":
        sets |= dict(norm="layer", activation="gelu_tanh", gated="false", positions="learned", attention_bias="true", attention_out_bias="true",
                     mlp_bias="true", norm_bias="true")
    command = [path, "bench", "train", "--json", "--steps", str(steps), "--threads", str(threads), "--set", f"batch={s['batch']}", "--set", f"dtype={dtype}"]
    for key, value in sets.items():
        command += ["--set", f"model.{key}={value}"]
    return command


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loam")
    parser.add_argument("--shape", choices=SHAPES, default="gpt2")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    s = SHAPES[args.shape]
    torch.set_num_threads(args.threads)
    step = torch_stepper(s, args.dtype, args.compile)
    step()
    step()
    ours, theirs = [], []
    for _ in range(args.blocks):
        times = []
        for _ in range(args.steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        theirs.append(statistics.median(times))
        if args.loam:
            result = subprocess.run(loam_command(args.loam, s, args.dtype, args.steps, args.threads), check=True, capture_output=True, text=True).stdout
            ours.append(json.loads(result)["step_seconds"])
    report = dict(shape=args.shape, dtype=args.dtype, torch=torch.__version__, compiled=args.compile, threads=args.threads,
                  torch_step_seconds=statistics.median(theirs), torch_blocks=theirs)
    if ours:
        report |= dict(loam_step_seconds=statistics.median(ours), loam_blocks=ours, ratio=statistics.median(theirs) / statistics.median(ours))
    print(json.dumps(report))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""One training step on a GPU: loam against torch.compile, the same shapes, in one run, alternating.

  bench/peers/train_gpu.py --loam build/release/bin/loam [--shape gpt2-124m|llama-1.5b] [--blocks 5] [--steps 10]

Both sides take random tokens, forward, cross-entropy, backward, clipping to norm 1 and AdamW with f32 masters; matrices in bf16. PyTorch runs under
autocast with torch.compile, its scaled_dot_product_attention and the fused AdamW. Prints one JSON object: the median step of each block, tokens a second,
the peak of memory, and the ratio of medians.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch

from train_cpu import Model, loam_command

SHAPES = {
    "gpt2-124m": dict(form="gpt2", layers=12, dim=768, heads=12, ffn=3072, vocab=50304, batch=64, length=1024),
    "gpt2-tiny": dict(form="gpt2", layers=2, dim=256, heads=4, ffn=1024, vocab=8192, batch=8, length=256),
    "llama-1.5b": dict(form="llama", layers=16, dim=2048, heads=32, kv_heads=8, ffn=8192, vocab=128256, batch=16, length=2048),
}


class Torch:
    def __init__(self, shape, compiled):
        self.model = Model(shape).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
        self.run = torch.compile(self.model) if compiled else self.model
        self.tokens = torch.randint(shape["vocab"], (shape["batch"], shape["length"] + 1), device="cuda")

    def step(self):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.run(self.tokens[:, :-1], self.tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def block(self, steps):
        times = []
        for _ in range(steps):
            torch.cuda.synchronize()
            start = time.perf_counter()
            self.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loam")
    parser.add_argument("--shape", choices=SHAPES, default="gpt2-124m")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--eager", action="store_true", help="PyTorch without torch.compile")
    parser.add_argument("--set", action="append", default=[], help="a setting for loam alone")
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    torch.set_float32_matmul_precision("high")
    peer = Torch(shape, not args.eager)
    for _ in range(5):
        peer.step()
    ours, theirs, last = [], [], {}
    for _ in range(args.blocks):
        theirs.append(peer.block(args.steps))
        if args.loam:
            torch.cuda.empty_cache()
            command = loam_command(args.loam, shape, args.dtype, args.steps, 8) + ["--device", "cuda", "--set", f"data.length={shape['length']}"]
            for setting in args.set:
                command += ["--set", setting]
            last = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            ours.append(last["step_seconds"])
    tokens = shape["batch"] * shape["length"]
    report = dict(shape=args.shape, gpu=torch.cuda.get_device_name(), torch=torch.__version__, compiled=not args.eager, torch_blocks=theirs,
                  torch_tokens_per_second=tokens / statistics.median(theirs), torch_peak_bytes=torch.cuda.max_memory_allocated())
    if ours:
        report |= dict(loam_blocks=ours, loam_tokens_per_second=tokens / statistics.median(ours), loam_peak_bytes=last["peak_bytes"],
                       ratio=statistics.median(theirs) / statistics.median(ours))
    print(json.dumps(report))


if __name__ == "__main__":
    main()

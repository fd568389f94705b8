#!/usr/bin/env python3
"""Speed of encoding on one core: loam beside tiktoken and Hugging Face's tokenizers, the same file, in one run, alternating.

  taskset -c 0 bench/peers/tokenizer_speed.py --loam loam --ranks cl100k_base.tiktoken --pattern REGEX --hugging-face tokenizer.json --rounds 3 FILE

loam reads the ranks (its name tells the encoding) or, without them, the tokenizer.json. Hugging Face gets the text by paragraph, which is quicker for it than the whole. Megabytes (10^6)
of text a second; the median of the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def rate(action, size):
    start = time.perf_counter()
    action()
    return size / (time.perf_counter() - start) * 1e-6


def main():
    from tokenizer_ids import tiktoken_encoder

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loam", required=True)
    parser.add_argument("--ranks")
    parser.add_argument("--pattern")
    parser.add_argument("--hugging-face")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("file")
    args = parser.parse_args()
    text = pathlib.Path(args.file).read_text(encoding="utf-8", errors="replace")
    size = len(text.encode())
    sides = {}
    command = [args.loam, "tokenizer", "compare", args.ranks or args.hugging_face, args.file, "--json", "--threads", "1"]
    sides["loam"] = lambda: json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["bytes_per_second"] * 1e-6
    if args.ranks:
        encode = tiktoken_encoder(args.ranks, args.pattern)
        sides["tiktoken"] = lambda: rate(lambda: encode(text), size)
    if args.hugging_face:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(args.hugging_face)
        paragraphs = [p for p in text.split("\n\n") if p]
        sides["hugging_face"] = lambda: rate(lambda: [tokenizer.encode(p) for p in paragraphs], size)
    seen = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, measure in sides.items():
            seen[name].append(measure())
    report = {name: statistics.median(rates) for name, rates in seen.items()}
    report |= {f"loam/{name}": report["loam"] / report[name] for name in sides if name != "loam"}
    print(json.dumps({"file": args.file, "bytes": size, **{k: round(v, 2) for k, v in report.items()}, "rounds": seen}))


if __name__ == "__main__":
    main()

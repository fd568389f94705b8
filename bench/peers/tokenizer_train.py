#!/usr/bin/env python3
"""Training of a tokenizer: loam beside Hugging Face's tokenizers, the same file, in one run, alternating.

  bench/peers/tokenizer_train.py --loam loam --merges 32000 --threads 2 --rounds 1 FILE

FILE is plain text, and one document: both sides read it as it is. Byte-level BPE with GPT-2's pattern, pairs seen at least twice, one special token. Hugging Face's trainer reads a file
line by line, so pieces of white space that hold a line end differ; its rule for equal counts is another, too: `equal_merges` is the share of loam's merges that it also has. Each side is
a process of its own; seconds of the whole process, seconds of processor time, which other work on the machine changes less, and greatest resident memory.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def train_hugging_face(file, merges, out):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=merges + 257, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([file], trainer)
    tokenizer.save(out)


def measure(command, threads):
    """Seconds, processor seconds and the greatest resident memory in bytes."""
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    start = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def merges_of(path):
    return {tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in json.loads(pathlib.Path(path).read_text())["model"]["merges"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loam", required=True)
    parser.add_argument("--merges", type=int, default=32000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--train-hugging-face", help=argparse.SUPPRESS)  # the other side, in its own process: where to save
    parser.add_argument("file")
    args = parser.parse_args()
    if args.train_hugging_face:
        return train_hugging_face(args.file, args.merges, args.train_hugging_face)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = f"{folder}/loam", f"{folder}/hugging_face.json"
        commands = {
            "loam": [args.loam, "tokenizer", "train", "--input", args.file, "--vocab-size", str(args.merges + 257), "--threads", str(args.threads),
                     "--out", ours, "--force", "--quiet"],
            "hugging_face": [sys.executable, __file__, "--loam", "", "--merges", str(args.merges), "--train-hugging-face", theirs, args.file],
        }
        seen = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                seen[name].append(measure(command, args.threads))
        mine = merges_of(f"{ours}/tokenizer.json")
        equal = len(mine & merges_of(theirs)) / len(mine)
    report = dict(file=args.file, bytes=os.path.getsize(args.file), merges=args.merges, threads=args.threads, load=os.getloadavg()[0])
    for name, rounds in seen.items():
        seconds, processor, peak = zip(*rounds)
        report |= {f"{name}_seconds": round(statistics.median(seconds), 2), f"{name}_processor_seconds": round(statistics.median(processor), 2),
                   f"{name}_peak_bytes": max(peak)}
    ratio = {f"ratio{kind}": round(report[f"hugging_face{kind}"] / report[f"loam{kind}"], 2) for kind in ("_seconds", "_processor_seconds")}
    report |= dict(**ratio, equal_merges=round(equal, 4), rounds=seen)
    print(json.dumps(report))


if __name__ == "__main__":
    main()

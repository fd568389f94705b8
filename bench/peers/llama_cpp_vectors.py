#!/usr/bin/env python3
"""The ids that llama.cpp publishes beside its vocabularies, and those of loam.

  bench/peers/llama_cpp_vectors.py --loam build/release/bin/loam llama.cpp/models

For every ggml-vocab-NAME.gguf with .inp (texts, separated by __ggml_vocab_test__) and .out (a line of ids for each, made by the model's own tokenizer).
Ends with 1 if an id differs or a vocabulary is not read.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SEPARATOR = "\n__ggml_vocab_test__\n"


def encode(loam, vocabulary, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        file.flush()
        command = [loam, "tokenizer", "encode", "--tokenizer", vocabulary, "--format", "jsonl", "--quiet", file.name]
        ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr.strip())
    return [json.loads(line) for line in ran.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loam", required=True)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    vocabularies = sorted(args.folder.glob("ggml-vocab-*.gguf"))
    if not vocabularies:
        sys.exit(f"{args.folder}: no ggml-vocab-*.gguf is there")
    bad = 0
    for vocabulary in vocabularies:
        inputs, outputs = vocabulary.with_name(vocabulary.name + ".inp"), vocabulary.with_name(vocabulary.name + ".out")
        texts, wanted = ["Hello"], None
        if inputs.exists():
            texts = inputs.read_bytes().decode().split(SEPARATOR)
            wanted = [[int(word) for word in line.split()] for line in outputs.read_text().split("\n")][: len(texts)]
        try:
            ids = encode(args.loam, vocabulary, texts)
        except RuntimeError as error:
            print(f"{vocabulary.name}: {error}")
            bad += 1
            continue
        if wanted is None:
            print(f"{vocabulary.name}: read; no ids are published")
            continue
        if not len(ids) == len(texts) == len(wanted):
            sys.exit(f"{outputs}: {len(wanted)} lines for {len(texts)} texts")
        different = [i for i in range(len(texts)) if ids[i] != wanted[i]]
        print(f"{vocabulary.name}: {len(texts)} texts, {len(different)} differ")
        for i in different[:3]:
            print(f"  {texts[i]!r}\n    loam   {ids[i]}\n    wanted {wanted[i]}")
        bad += bool(different)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

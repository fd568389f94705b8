#!/usr/bin/env python3
"""Ids of loam beside those of tiktoken, sentencepiece and Hugging Face's tokenizers, over files of any kind.

  bench/peers/tokenizer_ids.py --loam build/release/bin/loam --tokenizer tokenizer.json [--tiktoken cl100k_base.tiktoken --pattern REGEX] [--nfc] FILE...
  bench/peers/tokenizer_ids.py --loam build/release/bin/loam --tokenizer tokenizer.model --sentencepiece FILE...

Files are cut into texts of about 64 KiB, wherever that falls; bytes that are not UTF-8 become U+FFFD. Every text is encoded by both programs, and
the first text that differs is shown. Ends with 1 if one differs.
"""
import argparse
import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

CUT = 1 << 16


def texts_of(paths):
    for path in paths:
        text = pathlib.Path(path).read_bytes().decode("utf-8", "replace")
        for at in range(0, len(text), CUT):
            yield text[at : at + CUT]


def loam_ids(program, tokenizer, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
        file.flush()
        command = [program, "tokenizer", "encode", "--tokenizer", tokenizer, "--format", "jsonl", "--quiet", file.name]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def hugging_face(path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True  # control tokens in text are ordinary text
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def tiktoken_encoder(path, pattern):
    import tiktoken

    ranks = {}
    for line in pathlib.Path(path).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding("file", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary


def sentencepiece_encoder(path):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=path).encode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loam", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--tiktoken", help="compare with tiktoken on these ranks, instead of with Hugging Face on --tokenizer")
    parser.add_argument("--pattern")
    parser.add_argument("--nfc", action="store_true", help="normalize the text for tiktoken, as Qwen's own program does")
    parser.add_argument("--sentencepiece", action="store_true", help="compare with sentencepiece on --tokenizer")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    texts = list(texts_of(args.files))
    if args.tiktoken:
        of_ranks = tiktoken_encoder(args.tiktoken, args.pattern)
        encode = (lambda text: of_ranks(unicodedata.normalize("NFC", text))) if args.nfc else of_ranks
    else:
        encode = (sentencepiece_encoder if args.sentencepiece else hugging_face)(args.tokenizer)
    ours = loam_ids(args.loam, args.tokenizer, texts)
    assert len(ours) == len(texts), (len(ours), len(texts))
    tokens = different = 0
    for text, ids in zip(texts, ours):
        wanted = encode(text)
        tokens += len(wanted)
        if ids != wanted:
            if not different:
                at = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
                print(f"first difference at token {at}: loam {ids[at - 3 : at + 5]}, wanted {wanted[at - 3 : at + 5]}", file=sys.stderr)
                print(repr(text[:200]), file=sys.stderr)
            different += 1
    size = sum(len(t.encode()) for t in texts)
    print(json.dumps(dict(texts=len(texts), bytes=size, tokens=tokens, different_texts=different)))
    return different > 0


if __name__ == "__main__":
    sys.exit(main())

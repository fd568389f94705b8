"""Text to tokenizer to token shards to a trained model that writes: every output is what it must be."""
import base64
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import threading
import unittest

from program import ENVIRONMENT, PROGRAM, ProgramTest, documents, run, write_jsonl

VOCABULARY = 315  # no multiple of 64: the model's embedding has rows that no token uses
TINY = ["--config", "tiny", "--threads", "1", "--set", "val_rows=4", "--set", "sample_tokens=8"]


def safetensors_header(path):
    blob = path.read_bytes()
    (size,) = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8:8 + size]), blob[8 + size:]


class Pipeline(ProgramTest):
    def prepare(self):
        self.corpus = write_jsonl(self.root / "corpus.jsonl", documents())
        self.tokenizer, self.data, self.out = self.root / "tok", self.root / "data", self.root / "run"
        self.succeeds("tokenizer", "train", "--input", self.corpus, "--vocab-size", VOCABULARY, "--out", self.tokenizer)
        self.succeeds("data", "tokenize", "--input", self.corpus, "--tokenizer", self.tokenizer, "--val-fraction", "0.1",
                      "--out", self.data)
        self.model = self.out / "model"

    def train(self, steps, out=None, *more):
        return self.json_of("train", *TINY, "--data", self.data, "--out", out or self.out, "--steps", steps, *more)

    def test_from_text_to_replies(self):
        self.prepare()
        summary = self.train(20, None, "--sample-every", "10")
        self.assertEqual((summary["steps"], summary["interrupted"]), (20, False))
        self.check_tokenizer()
        self.check_conversion()
        self.check_kinds()
        self.check_data()
        self.check_run(summary)
        self.check_generate()
        self.check_score()
        self.check_convert()
        self.check_inspect()
        self.check_input_and_out()

    def check_tokenizer(self):
        vocabulary = json.loads((self.tokenizer / "vocab.json").read_text())
        self.assertEqual(sorted(vocabulary.values()), list(range(VOCABULARY)))
        info = self.json_of("tokenizer", "info", "--tokenizer", self.tokenizer)
        self.assertEqual((info["vocab_size"], info["merges"]), (VOCABULARY, VOCABULARY - 256 - 1))
        bytes_in = bytes(range(256)) * 3 + "naïve 東京 🦙 <|endoftext|>\r\n".encode() + b"\xff\xfe cut \xe6\x9d"
        sample = self.root / "sample.bin"
        sample.write_bytes(bytes_in)
        for form in ["text", "u16", "u32"]:
            ids = self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, "--format", form, sample)
            back = self.succeeds("tokenizer", "decode", "--tokenizer", self.tokenizer, "--format", form, stdin=ids)
            self.assertEqual(back, bytes_in, form)
        ids = list(map(int, self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, sample).split()))
        raw = self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, "--format", "u16", sample)
        self.assertEqual(list(struct.unpack(f"<{len(ids)}H", raw)), ids)
        self.assertNotIn(VOCABULARY - 1, ids)  # the control token is only text here
        self.assertEqual(self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, "--allow-special", "all",
                                       stdin=b"<|endoftext|>").split(), [str(VOCABULARY - 1).encode()])
        decoded = self.json_of("tokenizer", "decode", "--tokenizer", self.tokenizer, stdin=b"104 105")
        self.assertEqual((decoded["tokens"], decoded["bytes"], decoded["text"]), (2, 2, "hi"))

    def check_conversion(self):
        """Tokens by rank for tiktoken, the 256 bytes first; and all files of training from tokenizer.json."""
        ranks = self.root / "own.tiktoken"
        convert = ["tokenizer", "convert", "--tokenizer", self.tokenizer, "--out"]
        self.succeeds(*convert, ranks)
        lines = [line.split(" ") for line in ranks.read_text().splitlines()]
        self.assertEqual([int(rank) for _, rank in lines], list(range(VOCABULARY - 1)))
        self.assertEqual([base64.b64decode(token) for token, _ in lines[:256]], [bytes([byte]) for byte in range(256)])
        self.assertEqual(self.json_of(*convert, self.root / "copy")["vocab_size"], VOCABULARY)
        for name in ["tokenizer.json", "vocab.json", "merges.txt"]:
            self.assertEqual((self.root / "copy" / name).read_bytes(), (self.tokenizer / name).read_bytes())
        before = ranks.read_bytes()
        self.fails(1, *convert, ranks, says=["--force"])
        self.fails(1, *convert, self.root / "copy", says=["--force"])
        self.fails(1, *convert, self.root, "--force", says=[])
        self.assertEqual(ranks.read_bytes(), before)
        self.succeeds(*convert, ranks, "--force")

    def check_kinds(self):
        text = self.root / "kinds.txt"
        text.write_text("the cat ate the hat, naïve 東京 the end\n" * 20, encoding="utf-8")
        sizes = {"bpe": 280, "byte": 257, "char": 280, "word": 280}
        for kind in sizes:
            report = self.json_of("tokenizer", "train", "--input", text, "--vocab-size", "280", "--type", kind, "--out", self.root / kind,
                                  "--held-out", text)
            self.assertGreaterEqual(report["held_out_bytes_per_token"], 1)
            ids = self.succeeds("tokenizer", "encode", "--tokenizer", self.root / kind, text)
            self.assertEqual(self.succeeds("tokenizer", "decode", "--tokenizer", self.root / kind, stdin=ids), text.read_bytes(), kind)
        rows = self.json_lines_of("tokenizer", "compare", "--json", *(self.root / kind for kind in sizes), text)
        self.assertEqual([row["tokenizer"] for row in rows], [str(self.root / kind) for kind in sizes])
        by_kind = dict(zip(sizes, rows))
        content = text.read_text(encoding="utf-8")
        self.assertEqual(by_kind["byte"]["tokens"], len(content.encode()))
        self.assertEqual(by_kind["char"]["tokens"], len(content))
        self.assertLess(by_kind["word"]["tokens"], by_kind["bpe"]["tokens"] + 1)
        self.assertEqual([row["lossless"] for row in rows], [True, True, True, False])
        # A byte order mark is no text, for whoever measures.
        marked, pipe, utf16 = (self.root / name for name in ["marked.txt", "pipe", "utf16.txt"])
        marked.write_bytes(b"\xef\xbb\xbf" + text.read_bytes())
        utf16.write_text("plain", encoding="utf-16")
        os.mkfifo(pipe)
        compare = ["tokenizer", "compare", "--json", self.root / "byte"]
        self.assertEqual(self.json_of(*compare, marked)["tokens"], len(content.encode()))
        self.fails(1, *compare, utf16, says=["UTF-16"])
        self.fails(2, *compare, pipe, says=["read more than once"])
        train = ["tokenizer", "train", "--input", text, "--vocab-size", "280", "--out", self.root / "held", "--held-out"]
        self.fails(1, *train, utf16, says=["UTF-16"])
        threading.Thread(target=pipe.write_bytes, args=[text.read_bytes()], daemon=True).start()  # opens when it is read
        self.assertEqual(self.json_of(*train, pipe)["held_out_bytes_per_token"], by_kind["bpe"]["bytes_per_token"])

    def check_data(self):
        texts = [d["text"] for d in documents()]
        rows = self.json_lines_of("tokenizer", "encode", "--tokenizer", self.tokenizer, "--json", self.corpus)
        self.assertEqual([row["id"] for row in rows], [d["id"] for d in documents()])
        self.assertTrue(all(row["tokens"] == len(row["ids"]) for row in rows))
        arrays = self.json_lines_of("tokenizer", "encode", "--tokenizer", self.tokenizer, "--format", "jsonl", self.corpus)
        self.assertEqual(arrays, [row["ids"] for row in rows])
        counts = self.json_of("tokenizer", "count", "--tokenizer", self.tokenizer, self.corpus)
        self.assertEqual(counts["bytes"], sum(len(t.encode()) for t in texts))
        self.assertEqual(counts["tokens"], sum(row["tokens"] for row in rows))
        self.assertEqual(counts["documents"], len(texts))
        self.assertEqual(self.json_of("tokenizer", "count", "--tokenizer", self.tokenizer, stdin=self.corpus.read_bytes()), counts)
        # Standard input that begins with "{" is JSONL for every command; anything else is text to the byte, but for the
        # byte order mark that `data tokenize` drops too.
        self.assertEqual(self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, stdin=self.corpus.read_bytes()),
                         self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, self.corpus))
        plain, count = b"\xef\xbb\xbf plain", ["tokenizer", "count", "--tokenizer", self.tokenizer]
        self.assertEqual(self.json_of(*count, stdin=plain)["bytes"], len(b" plain"))
        self.assertEqual(self.json_of(*count, "--raw", stdin=plain)["bytes"], len(plain))
        self.assertEqual(*(self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, stdin=s) for s in [plain, b" plain"]))
        self.fails(1, *count, says=["UTF-16"], stdin="plain".encode("utf-16"))
        data = self.json_of("inspect", self.data)
        self.assertEqual(data["kind"], "data directory")
        self.assertEqual(data["train"]["documents"] + data["val"]["documents"], len(texts))
        # One token more a document: what stands between them.
        self.assertEqual(data["train"]["tokens"] + data["val"]["tokens"], counts["tokens"] + len(texts))

    def check_run(self, summary):
        records = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        kinds = {kind: [r for r in records if r["kind"] == kind] for kind in ["train", "val", "sample"]}
        self.assertEqual([r["step"] for r in kinds["sample"]], [10, 20])
        self.assertEqual(kinds["train"][-1]["step"], 20)
        self.assertEqual(kinds["train"][-1]["loss"], summary["loss"])
        self.assertAlmostEqual(kinds["train"][0]["loss"], math.log(320), delta=0.3)  # knows nothing yet
        self.assertLess(summary["loss"], kinds["train"][0]["loss"] - 1)
        self.assertEqual((self.out / "loss.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        header, _ = safetensors_header(self.model / "model.safetensors")
        self.assertEqual(header["model.embed_tokens.weight"]["shape"], [320, 64])
        self.assertEqual((self.model / "tokenizer.json").read_bytes(), (self.data / "tokenizer.json").read_bytes())

    def greedy(self, model, *more):
        return self.succeeds("generate", "--model", model, "--prompt", "the dog", "--max-tokens", "12", "--temperature", "0", *more)

    def check_generate(self):
        text = self.greedy(self.model).decode()
        self.assertTrue(text.startswith("the dog") and text.endswith("\n"))
        (reply,) = self.json_lines_of("generate", "--model", self.model, "--prompt", "the dog", "--max-tokens", "12",
                                      "--temperature", "0", "--json")
        self.assertEqual("the dog" + reply["text"] + "\n", text)
        self.assertEqual((len(reply["ids"]), len(reply["logprobs"])), (12, 12))
        self.assertTrue(all(l < 0 for l in reply["logprobs"]))
        self.assertEqual(reply["finish_reason"], "length")
        decoded = self.succeeds("tokenizer", "decode", "--tokenizer", self.tokenizer, stdin=json.dumps(reply["ids"]).encode())
        self.assertEqual(decoded.decode(errors="replace"), reply["text"])
        self.assertEqual(self.greedy(self.model, "--no-cache").decode(), text)
        several = self.json_lines_of("generate", "--model", self.model, "--prompt", "", "--num", "2", "--seed", "4",
                                     "--max-tokens", "5", "--json")
        self.assertEqual([r["sample"] for r in several], [0, 1])
        self.assertNotEqual(several[0]["ids"], several[1]["ids"])

    def check_score(self):
        held_out = self.root / "held-out.txt"
        held_out.write_text("the dog runs under the red house. " * 8)
        record, last = self.json_lines_of("score", "--model", self.model, "--json", "--tokens", held_out)
        self.assertIsNone(record["logprobs"][0])
        logprobs = record["logprobs"][1:]
        self.assertEqual(record["tokens"], len(logprobs))
        self.assertAlmostEqual(record["logprob"], sum(logprobs), places=3)
        self.assertAlmostEqual(record["perplexity"] / math.exp(-sum(logprobs) / len(logprobs)), 1, places=5)
        bits = -sum(logprobs) / math.log(2) / held_out.stat().st_size
        self.assertAlmostEqual(record["bits_per_byte"], bits, places=5)
        self.assertEqual(last["total"]["tokens"], record["tokens"])
        both = self.json_lines_of("score", "--model", self.model, "--json", held_out, held_out)
        self.assertEqual(both[-1]["total"]["tokens"], 2 * record["tokens"])
        self.assertEqual(both[-1]["total"]["documents"], 2)
        # A reply's log-probabilities are those that scoring gives the same ids, but for rounding: the products have other
        # shapes.
        (reply,) = self.json_lines_of("generate", "--model", self.model, "--prompt", "the dog", "--max-tokens", "6",
                                      "--temperature", "0", "--json")
        (scored, _) = self.json_lines_of("score", "--model", self.model, "--json", "--tokens",
                                         stdin=("the dog" + reply["text"]).encode())
        self.assertEqual(scored["ids"][-6:], reply["ids"])
        for given, drawn in zip(scored["logprobs"][-6:], reply["logprobs"]):
            self.assertAlmostEqual(drawn, given, delta=1e-5 * abs(given))

        self.check_score_of_pairs()

    def check_score_of_pairs(self):
        prompt, completion = "the dog", " runs under the red house"
        (whole, _) = self.json_lines_of("score", "--model", self.model, "--json", "--tokens",
                                        stdin=(prompt + completion).encode())
        pairs = write_jsonl(self.root / "pairs.jsonl", [{"prompt": prompt, "completion": completion}] * 2)
        first, _, last = self.json_lines_of("score", "--model", self.model, "--json", "--tokens", pairs)
        # " runs" begins a piece of its own, so the tokens of the prompt are those that it has alone.
        alone = self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, stdin=completion.encode()).split()
        self.assertEqual(first["ids"], list(map(int, alone)))
        self.assertEqual(first["logprobs"], whole["logprobs"][-len(alone):])
        self.assertAlmostEqual(first["logprob"], sum(first["logprobs"]), places=3)
        self.assertEqual((first["tokens"], first["bytes"]), (len(alone), len(completion)))
        self.assertEqual((last["total"]["tokens"], last["total"]["bytes"]), (2 * len(alone), 2 * len(completion)))

    def check_convert(self):
        half, back = self.root / "bf16", self.root / "f32"
        report = self.json_of("convert", "--from", self.model, "--to", half, "--dtype", "bf16")
        self.assertEqual((report["out"], report["family"], report["dtype"]), (str(half), "llama", "bf16"))
        self.succeeds("convert", "--from", half, "--to", back, "--dtype", "f32")
        header, _ = safetensors_header(half / "model.safetensors")
        self.assertEqual(header["model.embed_tokens.weight"]["dtype"], "BF16")
        self.assertEqual(report["parameters"], sum(math.prod(t["shape"]) for k, t in header.items() if k != "__metadata__"))
        self.assertEqual(self.greedy(half), self.greedy(back))
        same = self.root / "same"
        self.succeeds("convert", "--from", self.model, "--to", same)
        self.assertEqual((same / "model.safetensors").read_bytes(), (self.model / "model.safetensors").read_bytes())
        self.assertEqual(self.greedy(same), self.greedy(self.model))
        self.check_gguf()

    def check_gguf(self):
        file = self.root / "model.gguf"
        report = self.json_of("convert", "--from", self.model, "--to", file, "--dtype", "f16")
        self.assertEqual((report["out"], report["family"], report["dtype"]), (str(file), "llama", "f16"))
        self.assertEqual(file.read_bytes()[:8], b"GGUF\x03\0\0\0")
        facts, model = self.json_of("inspect", file), self.json_of("inspect", self.model)
        self.assertEqual((facts["kind"], facts["parameters"]), ("GGUF model", report["parameters"]))
        self.assertEqual(facts["metadata"]["llama.block_count"], model["config"]["num_hidden_layers"])
        self.assertEqual(facts["tokenizer"]["fingerprint"], model["tokenizer"]["fingerprint"])
        self.assertEqual({t["dtype"] for t in facts["tensors"]}, {"F16", "F32"})
        self.assertIn(b"token_embd.weight", self.succeeds("inspect", file))
        written = file.read_bytes()
        self.fails(1, "convert", "--from", self.model, "--to", file, says=["already exists (--force replaces it)"])
        self.assertEqual(file.read_bytes(), written)
        self.succeeds("convert", "--from", self.model, "--to", file, "--force")
        chat = self.root / "chat"
        shutil.copytree(self.model, chat)
        config = {"chat_template": [{"name": "default", "template": "{{ a }}"}, {"name": "tools", "template": "{{ b }}"}]}
        (chat / "tokenizer_config.json").write_text(json.dumps(config))
        self.succeeds("convert", "--from", chat, "--to", file, "--force")
        metadata = self.json_of("inspect", file)["metadata"]
        self.assertEqual(metadata["tokenizer.chat_template"], "{{ a }}")
        self.assertEqual(metadata["tokenizer.chat_template.tools"], "{{ b }}")
        self.check_templates_of_gguf(chat, file)
        self.fails(2, "convert", "--from", self.model, "--to", self.root / "c.gguf", "--family", "llama", says=["--family"])
        self.fails(2, "convert", "--from", self.model, "--to", self.root / "c.gguf", "--shard-size", "1MB", says=["--shard-size"])
        self.fails(2, "convert", "--from", self.model, "--to", self.root / "c", "--dtype", "f16", says=["of GGUF files only"])
        self.fails(1, "convert", "--from", self.out, "--to", self.root / "c.gguf", says=["a run has one in model/"])
        self.assertFalse((self.root / "c.gguf").exists())

    def check_templates_of_gguf(self, chat, file):
        to = ["--to", file, "--force"]
        self.succeeds("convert", "--from", chat, "--tokenizer", self.tokenizer, *to)  # which has none
        self.assertNotIn("tokenizer.chat_template", self.json_of("inspect", file)["metadata"])
        self.succeeds("convert", "--from", self.model, "--tokenizer", chat / "tokenizer.json", *to)
        self.assertEqual(self.json_of("inspect", file)["metadata"]["tokenizer.chat_template"], "{{ a }}")

        def write(*templates):
            (chat / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))

        write({"name": "a b\u00e9", "template": "{{ c }}"})
        self.succeeds("convert", "--from", chat, *to)
        self.assertEqual(self.json_of("inspect", file)["metadata"]["tokenizer.chat_template.a_b_"], "{{ c }}")
        written = file.read_bytes()
        for templates in [{"name": "a", "template": "b"}] * 2, [{"name": "a"}], ["a"]:
            write(*templates)
            self.fails(1, "convert", "--from", chat, *to, says=["tokenizer_config.json", '"chat_template"'])
        self.assertEqual(file.read_bytes(), written)

    def check_inspect(self):
        model = self.json_of("inspect", self.model)
        header, _ = safetensors_header(self.model / "model.safetensors")
        self.assertEqual(model["kind"], "model directory")
        self.assertEqual({t["name"]: t["shape"] for t in model["tensors"]},
                         {name: t["shape"] for name, t in header.items() if name != "__metadata__"})
        kinds = {self.out: "training run", self.out / "checkpoints" / "step-00000020": "training checkpoint",
                 self.data: "data directory", self.data / "val": "token set", self.tokenizer: "tokenizer: byte-level BPE",
                 self.tokenizer / "tokenizer.json": "tokenizer: byte-level BPE",
                 self.model / "model.safetensors": "safetensors"}
        for path, kind in kinds.items():
            self.assertEqual(self.json_of("inspect", path)["kind"], kind)
            self.assertIn(kind.encode(), self.succeeds("inspect", path))
        metrics = self.out / "metrics.jsonl"
        whole, before = metrics.read_bytes(), self.json_of("inspect", self.out)
        metrics.write_bytes(whole + b'{"kind": "train", "st')  # as a kill leaves it
        self.assertEqual(self.json_of("inspect", self.out), before)
        metrics.write_bytes(whole)

    def check_input_and_out(self):
        prompts = write_jsonl(self.root / "prompts.jsonl", [{"id": 7, "prompt": "the dog"}, {"id": "b", "prompt": "a cat"}])
        words = ["generate", "--model", self.model, "--input", prompts, "--max-tokens", "5", "--temperature", "0"]
        to_stdout = self.json_lines_of(*words)
        self.assertEqual([r["id"] for r in to_stdout], [7, "b"])
        self.assertEqual([r["prompt"] for r in to_stdout], ["the dog", "a cat"])
        out = self.root / "replies.jsonl"
        report = self.json_of(*words, "--out", out)
        self.assertEqual(report["replies"], 2)
        self.assertEqual([json.loads(line) for line in out.read_text().splitlines()], to_stdout)
        self.fails(1, *words, "--out", out, says=[str(out), "--force"])
        self.succeeds(*words, "--out", out, "--force")
        self.assertTrue(self.greedy(self.model).decode().startswith("the dog" + to_stdout[0]["text"]))
        self.check_interrupted_generate()
        write_jsonl(prompts, [{"prompt": "a"}, {"prompt": "dog " * 100}])
        before = self.listing()
        self.fails(1, *words, "--out", self.root / "none", says=[f"{prompts}:2", "64"])
        self.assertEqual(self.listing(), before)

    def check_interrupted_generate(self):
        out, before = self.root / "cut.jsonl", self.listing()
        words = ["generate", "--model", self.model, "--prompt", "a", "--num", "20000", "--max-tokens", "60", "--out", out]
        process = subprocess.Popen([PROGRAM, *map(str, words)], stderr=subprocess.PIPE, env=ENVIRONMENT)
        while self.listing() == before:  # the file under its temporary name
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, text = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"error: interrupted", text)
        self.assertEqual(self.listing(), before)

    def test_a_run_for_weights_and_biases(self):
        """One offline run under the id of run.json, the same when the run goes on; what hinders it hinders no training."""
        data, out = self.root / "tokens", self.root / "shown"
        (self.root / "ids.bin").write_bytes(struct.pack("<600H", *(i % 7 for i in range(600))))
        self.succeeds("data", "import", "--input", self.root / "ids.bin", "--format", "bin-u16", "--vocab-size", "64", "--out", data)
        train = ["train", "--data", data, "--out", out, "--wandb", "--set", "model.vocab_size=64", "--set", "model.layers=1", "--set", "model.dim=32",
                 "--set", "model.heads=2", "--set", "data.length=16", "--set", "batch=2", "--set", "optimizer.schedule=constant",
                 "--set", "optimizer.warmup_steps=1"]
        for steps in ["2", "3"]:
            self.succeeds(*train, "--steps", steps)
            (run,) = (out / "wandb").iterdir()
            run_id = json.loads((out / "run.json").read_text())["id"]
            self.assertEqual([f.name for f in run.iterdir()], [f"run-{run_id}.wandb"])
            self.assertTrue(run.name.endswith(run_id) and run.name.startswith("offline-run-"))
        self.assertIn(b"train/loss", (run / f"run-{run_id}.wandb").read_bytes())
        shutil.rmtree(out / "wandb")
        (out / "wandb").write_text("in the way")
        self.succeeds(*train, "--steps", "4")

    def test_interrupted_training_ends_where_it_would_have(self):
        self.prepare()
        steps, whole = 60, self.root / "whole"
        self.train(steps, whole)
        for stop in [signal.SIGINT, signal.SIGTERM]:
            words = ["train", *TINY, "--data", self.data, "--out", self.out, "--steps", steps, "--json"]
            process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=ENVIRONMENT)
            # A line of metrics: the steps have begun, and the second time they go on.
            while " loss " not in process.stderr.readline():
                self.assertIsNone(process.poll())
            process.send_signal(stop)
            output, _ = process.communicate()
            self.assertEqual(process.returncode, 0)
            summary = json.loads(output)
            self.assertTrue(summary["interrupted"])
            self.assertTrue(0 < summary["steps"] < steps)
        self.assertFalse(self.train(steps)["interrupted"])
        for name in ["model/model.safetensors", f"checkpoints/step-{steps:08}/optimizer.safetensors"]:
            self.assertEqual((self.out / name).read_bytes(), (whole / name).read_bytes(), name)

        def losses(out):
            records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            return {r["step"]: r["loss"] for r in records if r["kind"] == "train"}
        common = losses(self.out).keys() & losses(whole).keys()
        self.assertIn(steps, common)
        for step in common:
            self.assertEqual(losses(self.out)[step], losses(whole)[step])

    def test_imported_tokens_beside_tokenized_text(self):
        """Two sources, one of them ids in nanoGPT's form, in two stages: imported, trained, and resumed to the bit."""
        self.prepare()
        end = VOCABULARY - 1
        flat, documents_of_it = [], documents(seed=2)
        for document in documents_of_it:
            text = document["text"].encode()
            flat += [*map(int, self.succeeds("tokenizer", "encode", "--tokenizer", self.tokenizer, stdin=text).split()), end]
        cut = flat.index(end, len(flat) // 2) + 1
        files = [self.root / "train.bin", self.root / "val.bin"]
        for path, ids in zip(files, [flat[:cut], flat[cut:]]):
            path.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        other = self.root / "imported"
        words = ["data", "import", "--input", files[0], "--val", files[1], "--tokenizer", self.tokenizer, "--out", other]
        report = self.json_of(*words)
        self.assertEqual((report["train"]["tokens"], report["val"]["tokens"]), (cut, len(flat) - cut))
        self.assertEqual(report["train"]["documents"] + report["val"]["documents"], len(documents_of_it))
        self.assertEqual(report["train"]["text_bytes"] + report["val"]["text_bytes"],
                         sum(len(document["text"].encode()) for document in documents_of_it))
        self.fails(1, *words, says=[str(other), "--force"])
        self.fails(2, *words[:-4], "--out", self.root / "none", says=["--tokenizer", "--vocab-size"])
        self.fails(1, "data", "import", "--input", files[0], "--vocab-size", "300", "--out", self.root / "none",
                   says=[str(files[0]), "outside the vocabulary of 300"])

        sources = json.dumps([{"name": "text", "path": str(self.data)}, {"name": "ids", "path": str(other)}])
        stages = json.dumps([{"begin": 0, "weights": [3, 1]}, {"begin": 0.5, "weights": [0, 1]}])
        words = ["train", *TINY, "--out", self.out, "--steps", "4", "--save-every", "2", "--val-every", "2", "--log-every", "1",
                 "--set", "data.sources=" + sources, "data.stages=" + stages, "data.packing=best_fit"]
        plan = self.json_of(*words, "--dry-run")
        self.assertEqual(list(plan["epochs_by_source"]), ["text", "ids"])
        summary = self.json_of(*words)
        self.assertEqual(set(summary["val"]), {"text", "ids"})
        self.assertGreater(summary["val"]["ids"]["bits_per_byte"], 0)
        records = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([(r["step"], r["set"]) for r in records if r["kind"] == "val"],
                         [(step, name) for step in [2, 4] for name in ["text", "ids"]])
        lines = [r for r in records if r["kind"] == "train"]
        counted = [r["tokens_by_source"] for r in lines]
        totals = [0] + [sum(sources.values()) for sources in counted]
        self.assertEqual([after - before for before, after in zip(totals, totals[1:])], [r["targets"] for r in lines])
        self.assertTrue(2 * counted[1]["ids"] < counted[1]["text"] == counted[3]["text"])  # 3 rows of 4, then none
        names = ["model/model.safetensors", "checkpoints/step-00000004/optimizer.safetensors"]
        whole = [(self.out / name).read_bytes() for name in names]
        shutil.rmtree(self.out / "checkpoints/step-00000004")
        self.succeeds(*words)
        self.assertEqual([(self.out / name).read_bytes() for name in names], whole)
        self.fails(1, *words[:-2], "data.stages=" + stages.replace("3", "2"), words[-1], says=["data.stages[0].weights"])

    def test_smaller_tokenizer_than_vocabulary_never_fails(self):
        self.prepare()
        self.train(2)
        # 64 rows of the embedding have no token: those of a tokenizer with fewer merges.
        small = self.root / "small"
        self.succeeds("tokenizer", "train", "--input", self.corpus, "--vocab-size", "258", "--out", small)
        replies = self.json_lines_of("generate", "--model", self.model, "--tokenizer", small, "--prompt", "the", "--num", "8",
                                     "--temperature", "5", "--max-tokens", "30", "--json")
        self.assertTrue(all(0 <= i < 258 for r in replies for i in r["ids"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Exit statuses, messages, and the list of flags: 0 success, 1 failure, 2 wrong usage; one line "error: ..."."""
import difflib
import fcntl
import gzip
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import PROGRAM, ProgramTest, documents, run, write_jsonl

FLAGS = Path(__file__).with_name("flags.txt")


class Usage(ProgramTest):
    def setUp(self):
        super().setUp()
        self.corpus = write_jsonl(self.root / "corpus.jsonl", documents(60))
        self.tokenizer, self.data, self.model = self.root / "tok", self.root / "data", self.root / "run" / "model"

    prepared = None  # made once, copied for each test

    def prepare(self):
        if Usage.prepared is None:
            self.succeeds("tokenizer", "train", "--input", self.corpus, "--vocab-size", "300", "--out", self.tokenizer)
            self.succeeds("data", "tokenize", "--input", self.corpus, "--tokenizer", self.tokenizer, "--out", self.data)
            self.succeeds("train", "--config", "tiny", "--threads", "1", "--data", self.data, "--out", self.root / "run",
                          "--steps", "1", "--set", "sample_every=0")
            Usage.prepared = tempfile.TemporaryDirectory(prefix="loam-e2e-")
            self.addClassCleanup(Usage.prepared.cleanup)
            for name in ["tok", "data", "run"]:
                shutil.copytree(self.root / name, Path(Usage.prepared.name) / name)
        shutil.copytree(Usage.prepared.name, self.root, dirs_exist_ok=True)

    def test_flags_are_those_of_the_frozen_list(self):
        listed = self.succeeds("--list-flags").decode().splitlines()
        frozen = FLAGS.read_text().splitlines()
        difference = "\n".join(difflib.unified_diff(frozen, listed, "tests/e2e/flags.txt", "loam --list-flags", lineterm=""))
        self.assertEqual(difference, "", f"\n{difference}\nScripts rely on these names. If the change is meant: "
                                         "loam --list-flags > tests/e2e/flags.txt")

    def test_training_begins_in_one_way(self):
        self.prepare()
        checkpoint, other, third = self.root / "run" / "checkpoints" / "step-00000001", self.root / "other", self.root / "third"
        train = ["train", "--threads", "1", "--data", self.data, "--out", other]
        self.fails(2, *train, "--branch", checkpoint, "--init-from", self.model, says=["--branch", "--init-from"])
        self.fails(2, *train, "--branch", checkpoint, "--config", "tiny", says=["--branch", "--config"])
        self.fails(2, *train, "--branch", checkpoint, "--resume", checkpoint, says=["--resume CHECKPOINT", "--branch"])
        self.fails(2, *train, "--init-from", self.model, "--resume", checkpoint, says=["--resume CHECKPOINT", "--init-from"])
        self.fails(2, *train, "--init-from", self.model, "--set", "model.dim=24", says=["contradict", "model.dim", "24"])
        self.fails(2, *train, "--branch", checkpoint, "--steps", "1", says=["--branch", "steps (1) is not beyond"])
        self.fails(1, *train, "--branch", checkpoint, "--steps", "3", "--lr", "0.5", says=["optimizer.lr", "--allow-changed-config"])
        groups = '[{"match":"embeding"}]'
        self.fails(1, *train, "--init-from", self.model, "--set", f"optimizer.groups={groups}", says=["embeding", "embedding"])
        groups = '[{"match":"vector","kind":"muon"}]'
        self.fails(1, *train, "--init-from", self.model, "--dry-run", "--set", f"optimizer.groups={groups}", says=["optimizer.groups[0].kind muon"])
        self.assertFalse(other.exists())
        decay = ["--set", "optimizer.schedule=wsd", "--set", "optimizer.decay_steps=2"]
        for _ in range(2):  # the second call finds nothing left to do
            self.assertEqual(self.json_of(*train, "--branch", checkpoint, *decay)["steps"], 3)
        report = self.json_of("train", "--threads", "1", "--data", self.data, "--out", third, "--init-from", self.model, "--steps", "2", "--batch", "2",
                              "--set", "optimizer.kind=muon", "--set", 'optimizer.groups=[{"match":"embedding","lr_scale":0.1}]')
        self.assertEqual(report["steps"], 2)
        self.assertEqual(json.loads((third / "model" / "config.json").read_text()), json.loads((self.model / "config.json").read_text()))

    def test_one_setting_has_one_value(self):
        self.prepare()
        train, once = ["train", "--config", "tiny", "--data", self.data, "--dry-run"], ["--set", "steps=5"]
        for more, says in [
            (["--steps", "6"], ["--set steps=5", "--steps 6"]), (["--set", "steps=6"], ["--set steps=5", "--set steps=6"]),
            (["--seed", "1", "--set", "seed=2"], ["--seed 1", "--set seed=2"]),
            (["--set", "data.path=elsewhere"], ["--data", "--set data.path=elsewhere"]),
            (["--overfit-one-batch", "--set", "overfit_one_batch=false"], ["--overfit-one-batch", "--set overfit_one_batch=false"]),
        ]:
            self.fails(2, *train, *once, *more, says=[*says, "different values"])
        self.succeeds(*train, *once, "--steps", "5", "--set", "steps=5.0", "--lr", "1e-3", "--set", "optimizer.lr=0.001")
        self.fails(2, "config", "show", *once, "--set", "steps=6", says=["--set steps=5", "--set steps=6"])

    def test_every_command_has_help_with_an_example(self):
        lines = [line.split() for line in self.succeeds("--list-flags").decode().splitlines()]
        commands = {tuple(words[:-1]) for words in lines if words[-1] == "--json"}
        self.assertGreater(len(commands), 10)
        for command in commands:
            text = self.succeeds(*command, "--help").decode()
            self.assertRegex(text, r"Example:\n +loam " + " ".join(command) if command != ("tokenizer", "decode") else "Example")
            for flag in [words[-1] for words in lines if tuple(words[:-1]) == command]:
                self.assertIn(flag, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 160, command)

    def test_runs_are_listed_compared_and_drawn(self):
        self.prepare()
        first, second, picture = self.root / "run", self.root / "second", self.root / "loss.svg"
        shutil.copytree(first, second)
        config = json.loads((second / "config.json").read_text())
        config["optimizer"]["lr"] = 0.125
        (second / "config.json").write_text(json.dumps(config))
        train = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines() if '"train"' in line][-1]
        listed = self.json_lines_of("runs", "ls", self.root, "--json")
        self.assertEqual([run["name"] for run in listed], ["run", "second"])
        for run in listed:
            self.assertEqual((run["status"], run["step"], run["steps"], run["loss"]), ("finished", 1, 1, train["loss"]))
            self.assertEqual(run["id"], json.loads((first / "run.json").read_text())["id"])
        table = self.succeeds("runs", "ls", first, second).decode().splitlines()
        self.assertEqual(table[0].split()[:4], ["NAME", "ID", "STATUS", "STEP"])
        self.assertEqual(table[2].split()[0::3][:2], ["second", "1/1"])
        compared = self.json_of("runs", "compare", first, second)
        self.assertEqual(list(compared["settings"]), ["optimizer.lr"])
        self.assertEqual(compared["settings"]["optimizer.lr"][1], 0.125)
        self.assertEqual(compared["loss_at_equal_step"], {"step": 1, "loss": [train["loss"]] * 2})
        self.assertIn("optimizer.lr", self.succeeds("runs", "compare", first, second).decode())
        words = ["plot", first, second, "--x", "tokens", "--y", "grad_norm", "--out", picture]
        self.fails(1, "plot", first, "--y", "los", "--out", picture, says=["\"los\"", "grad_norm, ", "loss, "])
        self.fails(1, "plot", self.root / "none", "--out", picture, says=["none"])
        self.fails(1, "runs", "ls", self.root / "none", says=["none"])
        self.fails(1, "runs", "compare", first, self.data, says=[str(self.data), "not the directory of a run"])
        self.fails(2, "runs", "compare", first, says=["two runs"])
        self.fails(2, "plot", first, "--out", self.root / "x.gif", says=["x.gif", ".svg"])
        self.fails(2, "plot", first, "--x", "day", says=["--x", "day"])
        if shutil.which("gnuplot"):
            self.succeeds(*words)
            self.assertIn("<svg", picture.read_text())
            self.fails(1, *words, says=["loss.svg", "--force"])
            self.succeeds(*words, "--force")

    def test_wrong_usage(self):
        model = ["generate", "--model", self.root / "none", "--prompt", "x"]
        train = ["train", "--config", "tiny", "--data", self.root / "none", "--out", self.root / "out"]
        learn = ["tokenizer", "train", "--input", self.corpus, "--out", self.root / "out"]
        shards = ["data", "tokenize", "--input", self.corpus, "--tokenizer", "none", "--out", self.root / "out"]
        cases = [
            (["tokenzier"], ["tokenzier", "tokenizer"]), (["tokenzier", "--help"], ["tokenizer"]),
            (["tokenizer", "trian"], ["train"]), ([], []), (["tokenizer"], []), (["inspect"], ["PATH"]),
            ([*model, "--temprature", "1"], ["--temprature", "--temperature"]), ([*model, "--temperature"], ["--temperature"]),
            ([*model, "--temperature", "-1"], ["--temperature -1"]), ([*model, "--temperature", "nan"], ["--temperature nan"]),
            ([*model, "--temperature", "1x"], ["--temperature 1x"]), ([*model, "--temperature="], ["--temperature"]),
            ([*model, "--max-tokens", "0"], ["--max-tokens 0"]), ([*model, "--max-tokens", "1.5"], ["--max-tokens 1.5"]),
            ([*model, "--max-tokens", "9223372036854775808"], ["--max-tokens"]), ([*model, "--top-k", "-1"], ["--top-k -1"]),
            ([*model, "--top-p", "2"], ["--top-p 2"]), ([*model, "--top-p", "0"], ["--top-p 0"]),
            ([*model, "--min-p", "1.1"], ["--min-p 1.1"]), ([*model, "--num", "0"], ["--num 0"]),
            ([*model, "--batch", "0"], ["--batch 0"]), ([*model, "--dtype", "foo"], ["--dtype", "foo"]),
            ([*model, "--device", "foo"], ["--device foo"]), ([*model, "--stop", ""], ["--stop"]),
            ([*model, "--seed", "-1"], ["--seed -1"]), ([*model, "--threads", "0"], ["--threads 0"]),
            ([*model, "--threads", "99999999999999999999"], ["--threads"]), ([*model, "--log-level", "loud"], ["--log-level"]),
            ([*model, "--input", "f"], ["--prompt", "--input"]), ([*model[:3]], ["--prompt"]),
            ([*train, "--lr", "foo"], ["--lr foo"]), ([*train, "--lr", "-1"], ["--lr -1"]), ([*train, "--steps", "0"], ["--steps 0"]),
            ([*train, "--steps", "1.5"], ["--steps 1.5"]), ([*train, "--batch", "7", "--micro-batch", "2"], ["--batch 7"]),
            ([*train, "--dtype", "f17"], ["--dtype f17"]), ([*train, "--set", "optimizer.lrr=1"], ["--set optimizer.lrr=1", "optimizer.lr"]),
            ([*train, "--set", "steps"], ["--set steps"]), ([*train, "--set", "steps=99999999999999999999"], ["--set steps"]),
            (train[:5], ["--out"]), ([*learn, "--vocab-size", "3"], ["--vocab-size 3"]),
            ([*learn, "--vocab-size", "99999999999999999999"], ["--vocab-size"]), ([*learn, "--type", "words"], ["--type"]),
            ([*learn, "--pattern", "foo"], ["--pattern foo"]), ([*learn, "--special", "a", "--special", "a"], ["--special a"]),
            ([*shards, "--val-fraction", "2"], ["--val-fraction 2"]), ([*shards, "--limit", "-1"], ["--limit -1"]),
            (["config", "explain", "optimizer.lrr"], ["optimizer.lr"]),
            (["convert", "--from", "a", "--to", "b", "--family", "gptt2"], ["--family", "none of llama, mistral", "did you mean gpt2"]),
            (["score", "--model", "a", "--window", "-1"], ["--window -1"]), (["recipes", "more"], ["more"]),
        ]
        before = self.listing()
        for words, says in cases:
            with self.subTest(words=words):
                self.fails(2, *words, says=says)
        self.assertEqual(self.listing(), before)

    def test_missing_files(self):
        none = str(self.root / "none")
        for words in [
            ["generate", "--model", none, "--prompt", "x"], ["score", "--model", none, self.corpus], ["inspect", none],
            ["convert", "--from", none, "--to", self.root / "out"], ["tokenizer", "train", "--input", none, "--out", self.root / "out"],
            ["tokenizer", "info", "--tokenizer", none], ["data", "tokenize", "--input", self.corpus, "--tokenizer", none, "--out", self.root / "out"],
            ["train", "--data", none, "--out", self.root / "out"], ["train", "--config", none, "--data", "x", "--out", self.root / "out"],
        ]:
            with self.subTest(words=words):
                before = self.listing()
                self.fails(1, *words, says=[none])
                self.assertEqual(self.listing(), before)

    def test_files_that_hold_something_else(self):
        empty, brace = self.root / "empty.json", self.root / "brace.json"
        empty.write_text("")
        brace.write_text("{}")
        for path in [empty, brace, self.root, self.corpus]:
            self.fails(1, "tokenizer", "info", "--tokenizer", path, says=[str(path)])
            self.fails(1, "inspect", path, says=[str(path)])
        (self.root / "m").mkdir()
        (self.root / "m" / "config.json").write_text('{"model_type": "llama"}')
        self.fails(1, "generate", "--model", self.root / "m", "--prompt", "x", says=["config.json"])
        for name in ["empty.txt", "empty.jsonl"]:
            (self.root / name).write_text("")
            self.fails(1, "tokenizer", "train", "--input", self.root / name, "--out", self.root / "out", says=["no text"])
        bad = self.root / "bad.jsonl"
        bad.write_text("nonsense\n" * 50)
        self.fails(1, "tokenizer", "train", "--input", bad, "--out", self.root / "out", says=["bad.jsonl"])
        self.assertFalse((self.root / "out").exists())

    def test_bad_lines_are_counted_and_few_are_named(self):
        lines = [json.dumps(d) for d in documents(4000)]
        lines[3900:3900] = ["nonsense"] * 35
        path = self.root / "some-bad.jsonl"
        path.write_text("\n".join(lines))
        done = run("tokenizer", "train", "--input", path, "--vocab-size", "260", "--out", self.root / "t", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((json.loads(done.stdout)["bad_lines"], json.loads(done.stdout)["documents"]), (35, 4000))
        warnings = [line for line in done.stderr.decode().splitlines() if "some-bad.jsonl:" in line]
        self.assertTrue(1 <= len(warnings) <= 20, len(warnings))
        self.assertIn(b"35 bad lines", done.stderr)

    def test_nothing_is_overwritten_without_force_nor_what_is_not_ours_with_it(self):
        self.prepare()
        commands = [
            ["tokenizer", "train", "--input", self.corpus, "--vocab-size", "300", "--out", self.tokenizer],
            ["data", "tokenize", "--input", self.corpus, "--tokenizer", self.tokenizer, "--out", self.data],
            ["convert", "--from", self.model, "--to", self.root / "copy"],
        ]
        self.succeeds(*commands[2])
        for words in commands:
            with self.subTest(words=words):
                marker = Path(words[-1]) / "marker"
                marker.write_text("mine")
                before = self.listing()
                self.fails(1, *words, says=[str(words[-1]), "--force"])
                self.fails(1, *words, "--force", says=[str(words[-1]), "holds marker"])
                self.assertEqual(self.listing(), before)
                marker.unlink()
                self.succeeds(*words, "--force")
        self.fails(1, "train", "--config", "tiny", "--data", self.data, "--out", self.root / "run", "--resume", "never", says=["--force"])

    def test_unbalanced_arrays_of_ids(self):
        self.prepare()
        decode = ["tokenizer", "decode", "--tokenizer", self.tokenizer]
        self.assertEqual(self.succeeds(*decode, stdin=b"[104,105]\n[[33]] 33"), b"hi!!")
        for ids, says in [(b"[104,105", "["), (b"104,105]", "byte 7"), (b"[[104]", "["), (b"][", "byte 0"), (b"104 [", "[")]:
            with self.subTest(ids=ids):
                self.fails(1, *decode, says=[says], stdin=ids)

    def test_run_in_place_of_its_model(self):
        self.prepare()
        for words in [["generate", "--prompt", "x", "--model"], ["score", self.corpus, "--model"], ["convert", "--to", self.root / "c", "--from"]]:
            with self.subTest(words=words):
                self.fails(1, *words, self.root / "run", says=["is a training run", str(self.model)])

    def test_other_things_in_place_of_a_model(self):
        self.prepare()
        kinds = {self.tokenizer: "only a tokenizer", self.data: "a data directory", self.data / "train": "a token set",
                 self.root / "run" / "checkpoints" / "step-00000001": f"the model of its run is {self.model}",
                 self.root: "config.json", self.model / "model.safetensors": "give the directory", self.corpus: "neither"}
        for path, says in kinds.items():
            with self.subTest(path=path):
                self.fails(1, "generate", "--prompt", "x", "--model", path, says=[f"model {path}: ", says])
        self.fails(1, "convert", "--from", self.model, "--to", self.root / "c", "--family", "gpt2", says=["as gpt2 (kv_heads: 2 -> 4; ", "); it can as llama"])

    def test_tokenizer_of_another_model(self):
        self.prepare()
        other, large = self.root / "other", self.root / "large"
        for path, size in [(other, 280), (large, 400)]:
            self.succeeds("tokenizer", "train", "--input", self.corpus, "--vocab-size", size, "--out", path)
        # `prepare` has 300 ids, so the model 320 rows.
        commands = [["generate", "--prompt", "x", "--max-tokens", "3", "--model", self.model], ["score", self.corpus, "--model", self.model],
                    ["convert", "--force", "--to", self.root / "c", "--from", self.model]]
        said = "not the one that the model was trained with"
        for words in commands:
            with self.subTest(words=words):
                self.fails(1, *words, "--tokenizer", large, says=[f"tokenizer {large}: ", "320 rows"])
                self.assertIn(f"tokenizer {other}: {said}", run(*words, "--tokenizer", other).stderr.decode())
                self.assertNotIn("tokenizer", run(*words).stderr.decode())
                self.assertNotIn("tokenizer", run(*words, "--tokenizer", self.tokenizer).stderr.decode())
        # The same of the tokenizer that lies beside the model, and that a converted model has on record.
        self.succeeds(*commands[2])
        for model in [self.model, self.root / "c"]:
            (model / "tokenizer.json").write_bytes((other / "tokenizer.json").read_bytes())
        for words in [commands[0], commands[1], ["convert", "--to", self.root / "d", "--from", self.root / "c"]]:
            self.assertIn(said, run(*words).stderr.decode())
        (self.model / "tokenizer.json").write_bytes((large / "tokenizer.json").read_bytes())
        for words in commands:
            self.fails(1, *words, says=["320 rows"])

    def test_tokenizer_train_refuses_at_once_what_could_not_be_written(self):
        train = ["tokenizer", "train", "--input", self.corpus, "--vocab-size", 300, "--out", self.root / "t"]
        before = self.listing()
        for words, said in [(["--special", "a"], "--special a: "), (["--special", "<0x41>"], "--special <0x41>: "),
                            (["--type", "word", "--special", "<unk>"], "--special <unk>: "), (["--pattern", "(("], "--pattern ((: "),
                            (["--counts", self.root / "t"], "--counts"), (["--counts", self.root / "t" / "in", "--force"], "--counts")]:
            with self.subTest(words=words):
                self.fails(2, *train, *words, says=[said])
                self.assertEqual(self.listing(), before)
        self.succeeds(*train, "--pattern", r"\w+|\W+")
        self.assertIn(r'"Regex":"\\w+|\\W+"', (self.root / "t" / "tokenizer.json").read_text().replace(" ", ""))

    def test_damaged_tokenizer_is_not_converted(self):
        self.prepare()
        file = self.model / "tokenizer.json"
        whole, before = file.read_bytes(), self.listing()
        for damaged in [whole[:-9], whole[:1000], b"", b"{}", b"[1]"]:
            file.write_bytes(damaged)
            self.fails(1, "convert", "--from", self.model, "--to", self.root / "c", says=[f"error: {file}: "])
            self.assertEqual(self.listing(), before)
        file.write_text('{"model": {"type": "of another kind"}}')
        done = run("convert", "--from", self.model, "--to", self.root / "c")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{file}: ", done.stderr.decode())
        self.assertEqual((self.root / "c" / "tokenizer.json").read_bytes(), file.read_bytes())

    def test_weights_that_are_no_numbers_are_named(self):
        self.prepare()
        file = self.model / "model.safetensors"
        whole = bytearray(file.read_bytes())
        length = struct.unpack("<Q", whole[:8])[0]
        tensors = json.loads(whole[8:8 + length])
        last = max((name for name in tensors if name != "__metadata__"), key=lambda name: tensors[name]["data_offsets"])
        whole[-8:] = struct.pack("<ff", float("nan"), float("-inf"))
        file.write_bytes(whole)
        done = run("convert", "--from", self.model, "--to", self.root / "c")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.decode(), rf"warning tensor {re.escape(last)}: 1 of its \d+ values are NaN, 1 infinite")
        self.assertEqual(done.stderr.count(b"NaN"), 1)

    def test_ids_of_prompts_come_back_as_given(self):
        self.prepare()
        generate = ["generate", "--model", self.model, "--max-tokens", "2", "--input"]
        ids = ["12345678901234567890123", "18446744073709551615", "-7", "1.10", "1e5", "0.1000000000000000000001", '"é"', "true", '{"id":2}']
        file = self.root / "prompts.jsonl"
        file.write_text("".join('{"x": {"id": 5}, "y": "id", "id" : 6, "prompt": "a \\"id\\": 3", "\\u0069d" :%s }\n' % id for id in ids))
        lines = self.succeeds(*generate, file).decode().splitlines()
        self.assertEqual([line[:len(id) + 15] for line, id in zip(lines, ids, strict=True)], ['{"id":%s,"sample"' % id for id in ids])
        file.write_text('{"prompt": "a"}\n{"prompt": "a", "id": 1e400}\n')
        self.assertNotIn("exception", self.fails(1, *generate, file, says=[f"{file}:2: ", "1e400"]))

    def test_dry_run_checks_what_the_run_would(self):
        self.prepare()
        train = ["train", "--config", "tiny", "--data", self.data]
        before = self.listing()
        for words, says in [(["--set", "model.vocab_size=64"], ["model.vocab_size is 64"]),
                            (["--set", "model.context_length=100000"], ["fewer than one row"]),
                            (["--out", self.root / "run", "--steps", "1", "--set", "sample_every=0", "--seed", "9"], ["seed: "]),
                            (["--out", self.data], ["holds no run"]), (["--out", self.corpus], ["not a directory"]),
                            (["--out", self.corpus / "run"], ["cannot make the directory"]), (["--out", "/proc/run"], ["/proc/run: cannot make"])]:
            with self.subTest(words=words):
                self.fails(1, *train, *words, "--dry-run", says=says)
                self.fails(1, *train, *words, *([] if "--out" in words else ["--out", self.root / "new"]), says=says)
        for out in [self.root / "new", self.root / "new" / "run"]:
            self.succeeds(*train, "--out", out, "--dry-run")
        with open(self.root / "run" / ".lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.fails(1, *train, "--out", self.root / "run", "--dry-run", says=["another process is training there"])
            self.assertTrue((self.root / "run" / ".lock").exists())
            (self.root / "run" / ".lock").unlink()
        shard = self.data / "train" / "shard-00000.tok"
        shard.write_bytes(shard.read_bytes()[:-9] + b"\x01" * 9)
        self.fails(1, *train, "--dry-run", says=[str(shard)])
        self.assertEqual(self.listing(), before)

    def test_window_of_score(self):
        self.prepare()
        for words, says in [(["--window", "1"], ["--window 1: ", "at least 2 and at most 64"]), (["--window", "65"], ["--window 65: "]),
                            (["--stride", "64"], ["--stride 64: ", "at most 63"]), (["--window", "8", "--stride", "8"], ["at most 7"])]:
            self.fails(2, "score", "--model", self.model, *words, self.corpus, says=says)

    def test_replies_that_the_context_cuts_short(self):
        self.prepare()
        generate = ["generate", "--model", self.model, "--temperature", "0"]
        done = run(*generate, "--prompt", "a", "--max-tokens", "500", "--json")
        used = json.loads(done.stdout)["prompt_tokens"]
        self.assertIn(f"--max-tokens 500: the model's context of 64 leaves room for {64 - used} after the prompt", done.stderr.decode())
        self.assertNotIn(b"--max-tokens", run(*generate, "--prompt", "a", "--max-tokens", str(64 - used)).stderr)
        done = run(*generate, "--prompt", "dog " * 100)
        self.assertEqual((done.returncode, done.stdout), (1, b""))  # the prompt is not shown before it is checked

    def test_outputs_that_are_empty_or_links(self):
        self.prepare()
        commands = [["tokenizer", "train", "--input", self.corpus, "--vocab-size", "260", "--out"],
                    ["data", "tokenize", "--input", self.corpus, "--tokenizer", self.tokenizer, "--out"],
                    ["convert", "--from", self.model, "--to"],
                    ["train", "--config", "tiny", "--threads", "1", "--data", self.data, "--steps", "1", "--set", "sample_every=0", "--out"]]
        for i, words in enumerate(commands):
            with self.subTest(words=words):
                empty, link = self.root / f"empty-{i}", self.root / f"link-{i}"
                empty.mkdir()
                link.symlink_to(empty.name)
                self.succeeds(*words, link)
                self.assertTrue(link.is_symlink() and any(empty.iterdir()))

    def test_two_processes_with_one_output(self):
        out = str(self.root / "out")
        first = subprocess.Popen([PROGRAM, "tokenizer", "train", "--input", "-", "--vocab-size", "260", "--out", out, "--quiet"],
                                 stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        before = self.listing()
        while self.listing() == before:
            self.assertIsNone(first.poll())
        words = ["tokenizer", "train", "--input", self.corpus, "--vocab-size", "270", "--out", out]
        self.fails(1, *words, says=[out, "another process is writing it"])
        self.fails(1, *words, "--force", says=[out, "another process is writing it"])
        first.communicate(b"the text of the first one")
        self.assertEqual(first.returncode, 0)
        self.assertEqual(self.json_of("tokenizer", "info", "--tokenizer", out)["vocab_size"], 260)

    def test_input_that_lies_in_the_output(self):
        self.prepare()
        inside = self.data / "train" / "index.json"
        words = ["data", "tokenize", "--tokenizer", self.tokenizer, "--out", self.data, "--force", "--input", self.corpus]
        self.fails(2, *words, inside, says=[f"--input {inside}: lies in --out"])
        self.succeeds(*words, self.data)  # what a directory holds of it is not meant

    def test_full_disk(self):
        self.prepare()
        for limit, name in [(100, "tokenizer.json"), (20000, "model.safetensors")]:
            words = [PROGRAM, "convert", "--from", str(self.model), "--to", str(self.root / "new" / "c")]
            before = self.listing()
            done = subprocess.run(words, capture_output=True, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr.decode(), rf"^error: .*/{name}: cannot write: File too large\n$")
            self.assertEqual(self.listing(), before)

    def test_settings_that_fail_with_what_follows_from_them(self):
        train = ["train", "--config", "tiny", "--data", self.root / "none", "--out", self.root / "out"]
        # 4 heads of 18; model.head_dim, which the message names, is not what was typed.
        self.fails(2, *train, "--set", "model.dim=72", says=["--set model.dim=72: model.head_dim is 18"])
        self.fails(2, *train, "--set", "model.dim=72", "--lr", "1", says=["--set model.dim=72 --lr 1: model.head_dim is 18"])
        recipe = self.root / "recipe.json"
        recipe.write_text('{"model": {"dim": 72, "heads": 4}}')
        self.fails(1, "config", "show", "--config", recipe, "--set", "steps=3", says=[f"{recipe}: model.head_dim is 18"])

    def test_inspect_sees_damaged_tokens(self):
        self.prepare()
        index, shard = self.data / "train" / "index.json", self.data / "train" / "shard-00000.tok"
        facts = json.loads(index.read_text())

        def damage(path, content):
            whole = path.read_bytes()
            path.write_bytes(content) if content is not None else path.unlink()
            self.fails(1, "inspect", self.data, says=[str(path)])
            path.write_bytes(whole)
        whole = shard.read_bytes()
        damage(shard, whole[:-8])
        damage(shard, whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        damage(index, json.dumps({**facts, "tokens": facts["tokens"] - 1}).encode())
        damage(index, json.dumps({**facts, "documents": facts["documents"] + 1}).encode())
        (self.data / "val").mkdir(exist_ok=True)
        self.fails(1, "inspect", self.data, says=[str(self.data / "val" / "index.json")])
        (self.data / "val").rmdir()
        self.succeeds("tokenizer", "train", "--input", self.corpus, "--vocab-size", "299", "--out", self.root / "other")
        damage(self.data / "tokenizer.json", (self.root / "other" / "tokenizer.json").read_bytes())
        self.succeeds("inspect", self.data)

    def test_inspect_says_why_a_model_cannot_be_loaded(self):
        self.prepare()
        file = self.model / "config.json"
        config = json.loads(file.read_text())
        whole = self.json_of("inspect", self.model)
        self.assertNotIn("problem", whole)
        layers = config["num_hidden_layers"]
        for key, value, said in [("num_attention_heads", 5, "model.heads (5)"), ("num_attention_heads", "x", '"num_attention_heads"'),
                                 ("num_hidden_layers", layers + 1, f"model.layers.{layers}."), ("vocab_size", 7, "embed_tokens"),
                                 ("model_type", ["llama"], '"model_type": expected a text, found ["llama"]'),
                                 ("model_type", "mamba", "there are llama, mistral")]:
            file.write_text(json.dumps({**config, key: value}))
            words = ["inspect", self.model]
            self.assertIn(said, self.fails(1, *words))
            self.assertEqual(self.fails(1, *words), self.fails(1, "generate", "--model", self.model, "--prompt", "x"))
            shown = run(*words, "--json").stdout
            self.assertEqual(json.loads(shown)["tensors"], whole["tensors"])
            self.assertEqual(json.loads(shown)["config"][key], value)
            self.assertIn(b"embed_tokens", run(*words).stdout)

    def test_training_without_a_tokenizer_says_so_first(self):
        self.prepare()
        (self.data / "tokenizer.json").unlink()
        done = run("train", "--config", "tiny", "--threads", "1", "--data", self.data, "--out", self.root / "bare", "--steps", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = done.stderr.decode()
        self.assertIn(str(self.data / "tokenizer.json"), text)
        self.assertLess(text.index(str(self.data / "tokenizer.json")), text.index(" loss "))

    def test_failures_leave_nothing_behind(self):
        self.prepare()
        torn = self.root / "torn.jsonl.gz"
        torn.write_bytes(gzip.compress(self.corpus.read_bytes())[:-20])
        before = self.listing()
        self.fails(1, "tokenizer", "train", "--input", torn, "--out", self.root / "out", says=["torn.jsonl.gz"])
        self.fails(1, "data", "tokenize", "--input", torn, "--tokenizer", self.tokenizer, "--out", self.root / "out", says=["torn.jsonl.gz"])
        self.fails(1, "generate", "--model", self.model, "--input", torn, "--out", self.root / "out.jsonl")
        self.assertEqual(self.listing(), before)

    def test_interrupted_counting_leaves_nothing_behind(self):
        process = subprocess.Popen([PROGRAM, "tokenizer", "train", "--input", "-", "--out", str(self.root / "out")],
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")})
        before = self.listing()
        line = self.corpus.read_bytes()
        while self.listing() == before:
            self.assertIsNone(process.poll())
        process.stdin.write(line)
        process.stdin.flush()
        # By now the program has started itself again, and still has its name.
        self.assertEqual(Path(f"/proc/{process.pid}/comm").read_text(), "loam\n")
        process.send_signal(signal.SIGINT)
        with self.assertRaises(BrokenPipeError):
            for _ in range(100000):
                process.stdin.write(line)
        text = process.stderr.read()
        self.assertEqual(process.wait(), 1)
        self.assertIn(b"error: interrupted", text)
        self.assertEqual(self.listing(), before)
        process.stderr.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

    def test_control_characters_from_files_are_escaped(self):
        entry = b'{"a\\u001b[31mRED\\nerror: fake":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}'
        path = self.root / "hostile.safetensors"
        path.write_bytes(struct.pack("<Q", len(entry)) + entry + bytes(4))
        line = self.fails(1, "inspect", path, says=["\\x1b[31mRED\\x0aerror: fake"])
        self.assertNotIn("\x1b", line)
        self.fails(1, "inspect", self.root / "a\nerror: b", says=["a\\x0aerror: b"])

    def test_directories_that_nobody_may_write(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        locked = self.root / "locked"
        locked.mkdir()
        locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
        self.fails(1, "tokenizer", "train", "--input", self.corpus, "--out", locked / "out", says=["locked"])

    def test_standard_output_that_ends(self):
        for words in (["config", "explain"], ["--version"], ["--help"]):
            with self.subTest(words=words), open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, rb"^error: standard output: [^\n]+\n$")
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([PROGRAM, "config", "explain"], stdout=writing, stderr=subprocess.PIPE, check=False)
        os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (-13, b""))  # as other programs do: SIGPIPE

    def test_a_scalar_head_is_no_language_model(self):
        self.fails(2, "train", "--config", "tiny", "--out", self.root / "scalar", "--data", self.root, "--set",
                   "model.head=scalar", says=["model.head=scalar", "predicts tokens"])
        self.assertFalse((self.root / "scalar").exists())

    def test_every_setting_is_documented_as_it_is(self):
        documented = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
        self.assertEqual(self.succeeds("config", "explain", "--markdown").decode(), documented, "loam config explain --markdown")
        for field in self.json_lines_of("config", "explain", "--json"):
            self.assertTrue(field["help"], field["name"])
            self.assertEqual(self.json_of("config", "explain", field["name"]), field)

    def test_names_in_any_script(self):
        self.corpus.rename(self.root / "корпус 本.jsonl")
        out = self.root / "naïve dir"
        self.succeeds("tokenizer", "train", "--input", self.root / "корпус 本.jsonl", "--vocab-size", "260", "--out", out)
        self.assertEqual(self.json_of("tokenizer", "info", "--tokenizer", out)["vocab_size"], 260)

    def test_json_is_one_object_or_one_a_line(self):
        self.prepare()
        for words in [
            ["recipes"], ["config", "show"], ["config", "explain"], ["config", "explain", "seed"], ["runs", "ls", self.root],
            ["runs", "compare", self.root / "run", self.root / "run"], ["score", "--model", self.model, self.corpus],
            ["generate", "--model", self.model, "--prompt", "a", "--max-tokens", "2", "--num", "2"],
            ["tokenizer", "encode", "--tokenizer", self.tokenizer, self.corpus], ["tokenizer", "info", "--tokenizer", self.tokenizer],
            ["tokenizer", "count", "--tokenizer", self.tokenizer, self.corpus], ["inspect", self.model],
            ["tokenizer", "decode", "--tokenizer", self.tokenizer, os.devnull],
            ["train", "--config", "tiny", "--data", self.data, "--dry-run"],
            ["convert", "--from", self.model, "--to", self.root / "a"],
            ["data", "tokenize", "--input", self.corpus, "--tokenizer", self.tokenizer, "--out", self.root / "b"],
        ]:
            with self.subTest(words=words):
                lines = self.json_lines_of(*words, "--json")
                self.assertGreater(len(lines), 0)
                self.assertEqual({type(line) for line in lines}, {dict})
        self.assertEqual(self.succeeds("runs", "ls", self.data, "--json"), b"")

    def test_starts_without_the_libraries_of_cuda(self):
        libraries = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
        self.assertIn("libc.so", libraries)
        self.assertNotRegex(libraries, "lib(cu(da|blas)|nv|nccl)")

    def test_version_and_quiet(self):
        self.assertRegex(self.succeeds("--version").decode(), r"^\d+\.\d+\.\d+ \(.+\)\n$")
        done = run("tokenizer", "train", "--input", self.corpus, "--vocab-size", "260", "--out", self.root / "q", "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main(verbosity=2)

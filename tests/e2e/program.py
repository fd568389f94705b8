"""Running the program, and data of the tests' own."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "loam"
WORDS = "the a dog cat runs sits on under red blue house tree and then he she sees big small river".split()
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive"}


def documents(count=150, seed=1):
    """Sentences from a small vocabulary, with some text that is hard on tokenizers."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choice(WORDS) for _ in range(40)) + ".\n" for _ in range(count)]
    texts[3] += "naïve café — 東京 🦙\r\n\ttab  <|endoftext|> {\"a\": 1}\n"
    return [{"id": f"doc-{i}", "text": text} for i, text in enumerate(texts)]


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def run(*words, stdin=b"", cwd=None):
    """The finished process; stdout and stderr are bytes."""
    return subprocess.run([PROGRAM, *map(str, words)], input=stdin, capture_output=True, check=False, cwd=cwd, env=ENVIRONMENT)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="loam-e2e-")
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)

    def succeeds(self, *words, stdin=b"", cwd=None):
        done = run(*words, stdin=stdin, cwd=cwd)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def json_of(self, *words, stdin=b""):
        return json.loads(self.succeeds(*words, "--json", stdin=stdin))

    def json_lines_of(self, *words, stdin=b""):
        return [json.loads(line) for line in self.succeeds(*words, stdin=stdin).splitlines()]

    def fails(self, status, *words, says=(), stdin=b""):
        """The run ends with `status` and exactly one line "error: ...", which holds each of `says`."""
        done = run(*words, stdin=stdin)
        text = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, status, f"{words}: {text}")
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, f"{words}: {text}")
        for part in says:
            self.assertIn(part, errors[0], f"{words}")
        return errors[0]

    def listing(self):
        """Every path below the test's folder, hidden ones too."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))

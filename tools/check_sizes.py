#!/usr/bin/env python3
"""Checks sizes: no function over 80 lines (a CUDA kernel: 150), no file over 700, in apps/ 250.

A function is counted from the line where its declaration begins to its closing brace. Found by the braces of the text without comments,
strings and preprocessor lines: a block at the level of a namespace or class that follows a parameter list is a function; lambdas and inner
blocks belong to the function around them. Usage: check_sizes.py [ROOT]
"""
import re
import sys
from pathlib import Path

MAX_FUNCTION, MAX_KERNEL, MAX_FILE, MAX_APP_FILE = 80, 150, 700, 250
CODE = {".h", ".cpp", ".cu", ".cuh"}
OTHER = {".py", ".sh", ".cmake"}
FOLDERS = ("loam", "apps", "tests", "bench", "python", "tools", "cmake", "lab")

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'  # comments
    r'|R"([^(\s]{0,16})\(.*?\)\1"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'"  # a character; not the separator of 1'000
    r"|^[ \t]*#(?:\\\n|[^\n])*",  # a preprocessor directive with its continuation lines
    re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")

LEAD = re.compile(r"\s*((public|private|protected)\s*:\s*)*")  # what may stand before a declaration


def blank(match):
    """Keeps the lines, drops the rest; a string leaves a mark so that `= {"a"}` is still seen as something."""
    text = match.group()
    return ('""' if text[0] in "\"'R" else "") + "\n" * text.count("\n")


def functions(text):
    """(first line, number of lines, head) of each function definition."""
    text = TOKEN.sub(blank, text)
    found, depth, head_start, start, head = [], [], 0, None, ""
    line = 1
    for position, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == "{":
            if start is None:
                candidate = text[head_start:position]
                if is_function_head(candidate):
                    start, head = position, candidate
                    lead = LEAD.match(candidate).end()
                    first = text.count("\n", 0, head_start + lead) + 1
                    function_depth = len(depth)
            depth.append(char)
            if start is None:
                head_start = position + 1
        elif char == "}":
            if depth:
                depth.pop()
            if start is not None and len(depth) == function_depth:
                found.append((first, line - first + 1, " ".join(head.split())))
                start = None
            if start is None:
                head_start = position + 1
        elif char == ";" and start is None:
            head_start = position + 1
    return found


def is_function_head(head):
    head = re.sub(r"template\s*<[^{}]*?>\s*(?=[A-Za-z_\[])", "", head[LEAD.match(head).end():], count=1)
    if "(" not in head:
        return False
    before = head[:head.index("(")]
    if re.search(r"[^=!<>]=\s*$|[^=!<>]=[^=]", before) and "operator" not in before:
        return False  # an initialiser
    words = SCOPE.search(before)
    # `struct S f(...) {` does not occur here; `struct alignas(16) S {` does.
    return not (words and re.match(r"\s*(inline\s+|typedef\s+)?" + words.group(), before))


def check(root):
    faults = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")) if (root / folder).is_dir() else []:
            if path.suffix not in CODE | OTHER or not path.is_file():
                continue
            text = path.read_text(errors="replace")
            relative = path.relative_to(root).as_posix()
            lines = text.count("\n")
            most = MAX_APP_FILE if folder == "apps" else MAX_FILE
            if lines > most:
                faults.append(f"{relative}: {lines} lines, more than {most}")
            if path.suffix in CODE:
                for first, size, head in functions(text):
                    limit = MAX_KERNEL if "__global__" in head else MAX_FUNCTION
                    if size > limit:
                        faults.append(f"{relative}:{first}: a function of {size} lines, more than {limit}: {head[:80]}")
    return faults


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    print("\n".join(faults) if faults else "sizes: no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

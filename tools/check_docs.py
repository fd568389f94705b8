#!/usr/bin/env python3
"""Checks that each relative link in a *.md file leads to a file of the tree, and its #anchor to a heading of that file.

Links of the web are not followed. Code blocks and code spans are left out. Usage: check_docs.py [ROOT]
"""
import re
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\s*\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
HEADING = re.compile(r"^#+\s+(.*?)\s*#*\s*$", re.MULTILINE)
SKIPPED = {"build", ".git", "corpus", ".quickstart", "third_party"}


def without_code(text):
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path):
    """The ids that a heading gets on the usual forges: lower case, punctuation dropped, blanks to hyphens."""
    text = re.sub(r"^(```|~~~).*?^\1", "", path.read_text(errors="replace"), flags=re.DOTALL | re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)]
    return set(names)


def check(root):
    faults = []
    for path in sorted(root.rglob("*.md")):
        relative = path.relative_to(root)
        if SKIPPED & set(relative.parts):
            continue
        for match in LINK.finditer(without_code(path.read_text(errors="replace"))):
            target = match.group(1) or match.group(2)
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (root / name.lstrip("/") if name.startswith("/") else path.parent / unquote(name)) if name else path
            if not file.exists():
                faults.append(f"{relative}: dead link {target}")
            elif root.resolve() not in [file.resolve(), *file.resolve().parents]:
                faults.append(f"{relative}: link out of the tree {target}")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                faults.append(f"{relative}: no heading for {target}")
    return faults


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    print("\n".join(faults) if faults else "docs: no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

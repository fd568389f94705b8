#!/usr/bin/env python3
"""Writes loam/text/unicode_tables.inc: the character classes of Unicode 15.0 as a two-stage table.

Usage: tools/make_unicode_tables.py [UNICODE_DATA_DIR]     (default /usr/share/unicode, Debian's package unicode-data)

Stage one maps a block of 256 code points to a row; stage two holds the rows, two bits a code point, four to a byte,
the lowest bits first. Rows that are equal are stored once; blocks past the last one listed are all kOther.
"""

import pathlib
import re
import sys

OTHER, LETTER, NUMBER, SPACE = range(4)
BLOCK = 256


def read_classes(folder):
    classes = bytearray(0x110000)
    first = None
    for line in (folder / "UnicodeData.txt").read_text(encoding="utf-8").splitlines():
        fields = line.split(";")
        code, name, category = int(fields[0], 16), fields[1], fields[2]
        if name.endswith(", First>"):
            first = code
            continue
        begin = first if name.endswith(", Last>") else code
        first = None
        value = {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)
        for c in range(begin, code + 1):
            classes[c] = value
    for line in (folder / "PropList.txt").read_text(encoding="utf-8").splitlines():
        match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*White_Space\b", line)
        if match:
            for c in range(int(match[1], 16), int(match[2] or match[1], 16) + 1):
                assert classes[c] == OTHER, f"U+{c:04X} is white space and a letter or number"
                classes[c] = SPACE
    return classes


def byte_lines(values):
    text = [f"{v}," for v in values]
    lines, line = [], "   "
    for t in text:
        if len(line) + 1 + len(t) > 120:
            lines.append(line)
            line = "   "
        line += " " + t
    return "\n".join(lines + [line])


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode")
    version = re.search(r"PropList-([0-9.]+)\.txt", (folder / "PropList.txt").read_text(encoding="utf-8"))[1]
    if version != "15.0.0":
        sys.exit(f"{folder} holds Unicode {version}; the tables are pinned to 15.0.0")
    classes = read_classes(folder)
    rows, index = {}, []
    for begin in range(0, len(classes), BLOCK):
        block = classes[begin : begin + BLOCK]
        row = bytes(sum(block[i + k] << (2 * k) for k in range(4)) for i in range(0, BLOCK, 4))
        index.append(rows.setdefault(row, len(rows)))
    empty = rows[bytes(BLOCK // 4)]
    while index[-1] == empty:
        index.pop()
    out = [
        "// Made by tools/make_unicode_tables.py from Unicode 15.0.0 (UnicodeData.txt, PropList.txt). Do not edit.",
        "// clang-format off",
        f"constexpr uint8_t kClassRowOfBlock[{len(index)}] = {{",
        byte_lines(index),
        "};",
        f"constexpr uint8_t kClassRows[{len(rows)} * 64] = {{",
        byte_lines(b"".join(rows)),
        "};",
        "// clang-format on",
    ]
    assert len(rows) <= 256
    target = pathlib.Path(__file__).resolve().parent.parent / "loam" / "text" / "unicode_tables.inc"
    target.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes loam/text/unicode_tables.inc: properties of all characters of Unicode 15.0 as a two-stage table.

Usage: tools/make_unicode_tables.py [UNICODE_DATA_DIR]     (default /usr/share/unicode, Debian's package unicode-data)

Stage one maps a block of 128 code points to a row; stage two holds the rows, a byte a code point: the general category
in the low five bits (in the order of the enum Category), then White_Space, the script Han, and Alphabetic. Rows that
are equal are stored once.
"""

import pathlib
import re
import sys

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
FLAGS = [("PropList.txt", "White_Space", 32), ("Scripts.txt", "Han", 64), ("DerivedCoreProperties.txt", "Alphabetic", 128)]
BLOCK = 128


def read_properties(folder):
    properties = bytearray([CATEGORIES.index("Cn")]) * 0x110000
    first = None
    for line in (folder / "UnicodeData.txt").read_text(encoding="utf-8").splitlines():
        fields = line.split(";")
        code, name, category = int(fields[0], 16), fields[1], fields[2]
        if name.endswith(", First>"):
            first = code
            continue
        begin = first if name.endswith(", Last>") else code
        first = None
        for c in range(begin, code + 1):
            properties[c] = CATEGORIES.index(category)
    for file, name, bit in FLAGS:
        for line in (folder / file).read_text(encoding="utf-8").splitlines():
            match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*" + name + r"\b", line)
            if match:
                for c in range(int(match[1], 16), int(match[2] or match[1], 16) + 1):
                    properties[c] |= bit
    return properties


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
    properties = read_properties(folder)
    rows, index = {}, []
    for begin in range(0, len(properties), BLOCK):
        index.append(rows.setdefault(bytes(properties[begin : begin + BLOCK]), len(rows)))
    assert len(rows) <= 256
    files = ", ".join(["UnicodeData.txt"] + [file for file, _, _ in FLAGS])
    out = [
        f"// Made by tools/make_unicode_tables.py from Unicode 15.0.0 ({files}).",
        "// Do not edit.",
        "// clang-format off",
        f"const uint8_t kPropertyRowOfBlock[{len(index)}] = {{",
        byte_lines(index),
        "};",
        f"const uint8_t kPropertyRows[{len(rows)} * {BLOCK}] = {{",
        byte_lines(b"".join(rows)),
        "};",
        "// clang-format on",
    ]
    target = pathlib.Path(__file__).resolve().parent.parent / "loam" / "text" / "unicode_tables.inc"
    target.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()

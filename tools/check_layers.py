#!/usr/bin/env python3
"""Checks who includes whom: the rules of the file LAYERS, and where heavy third-party headers may appear.

LAYERS has lines `NAME... : LAYER...`: each name on the left may include itself and the layers on the right. `all` means every layer of
loam/, `all but a b` all except those. Names are the folders loam/NAME, or NAME itself at the top (apps, tests, ...).

  - An include in quotes names a file of the project and starts at the top of the tree ("loam/ops/norm.h").
  - A file includes only what its layer may.
  - Heavy headers (HEAVY) are for .cpp files: a header or .cu file passes them on to everybody. A file NAME-inl.h is a piece of a .cpp file
    (Highway compiles it once for each instruction set) and counts as one; only files of its own folder may include it.
  - Each heavy library is included by the .cpp files of one layer only; Highway by kernels and text.
  - Tests, which have no public headers, may use any.

There is no list of exceptions. Usage: check_layers.py [ROOT]
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# Library -> its headers, and the layers that may use it (None: any one layer).
HEAVY = {
    "CLI11": (re.compile(r"^CLI/|^CLI11\.hpp$"), None),
    "nlohmann-json": (re.compile(r"^nlohmann/"), None),
    "spdlog": (re.compile(r"^spdlog/"), None),
    "Boost": (re.compile(r"^boost/"), None),
    "simdjson": (re.compile(r"^simdjson(\.h$|/)"), None),
    "oneDNN": (re.compile(r"^(oneapi/dnnl/|dnnl)"), None),
    "Highway": (re.compile(r"^hwy/"), {"kernels", "text"}),
}


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)


def read_rules(path):
    """LAYERS as {name: (allowed names, everything allowed)} and the faults of the file itself."""
    lines, faults, rules = [], [], {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.count(":") != 1:
            faults.append(f"LAYERS:{number}: not of the form 'NAME...: LAYER...'")
            continue
        left, right = line.split(":")
        lines.append((number, left.split(), right.split()))
    names = {name for _, left, _ in lines for name in left}
    for number, left, right in lines:
        everything = right[:1] == ["all"]
        if everything and right[1:2] == ["but"]:
            allowed = names - set(right[2:])
        elif everything:
            allowed = set(names)
        else:
            allowed = set(right)
        faults += [f"LAYERS:{number}: unknown layer '{name}'" for name in right if name not in names | {"all", "but"}]
        for name in left:
            if name in rules:
                faults.append(f"LAYERS:{number}: '{name}' appears twice")
            rules[name] = allowed | {name}
    return rules, faults


def layer_of(relative):
    parts = Path(relative).parts
    return parts[1] if parts[0] == "loam" and len(parts) > 2 else parts[0]


def source_files(root, rules):
    tops = {"loam"} | {name for name in rules if (root / name).is_dir() and name != "loam"}
    for top in sorted(tops):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def is_generated(root, target):
    """Whether the build writes this header: the CMakeLists.txt of its folder then names generated/<target>."""
    build_file = root / Path(target).parent / "CMakeLists.txt"
    return build_file.is_file() and f"generated/{target}" in build_file.read_text()


def check_project_include(root, relative, target, rules):
    layer, other = layer_of(relative), layer_of(target)
    if not (root / target).is_file() and not is_generated(root, target):
        return f'"{target}" is no file of the project (includes start at the top of the tree)'
    if other not in rules:
        return f"'{other}' is not in LAYERS"
    if other not in rules[layer]:
        return f"'{layer}' must not include '{other}' ({target})"
    if target.endswith("-inl.h") and Path(target).parent != Path(relative).parent:
        return f"{target} belongs to the .cpp files of its own folder"
    return None


def check(root):
    rules, faults = read_rules(root / "LAYERS")
    users = defaultdict(lambda: defaultdict(list))  # library -> layer -> files
    for path in source_files(root, rules):
        relative = path.relative_to(root).as_posix()
        layer = layer_of(relative)
        if layer not in rules:
            faults.append(f"{relative}: '{layer}' is not in LAYERS")
            continue
        for match in INCLUDE.finditer(strip_comments(path.read_text(errors="replace"))):
            bracket, target = match.groups()
            heavy = next((name for name, (pattern, _) in HEAVY.items() if pattern.match(target)), None)
            if heavy and layer == "tests":
                continue
            if heavy:
                if not (relative.endswith(".cpp") or relative.endswith("-inl.h")):
                    faults.append(f"{relative}: {heavy} ({target}) may be included by .cpp files only")
                users[heavy][layer].append(relative)
            elif bracket == '"' or target.startswith("loam/"):
                fault = check_project_include(root, relative, target, rules)
                faults += [f"{relative}: {fault}"] if fault else []
    for library, layers in sorted(users.items()):
        allowed = HEAVY[library][1]
        if allowed is not None:
            outside = sorted(set(layers) - allowed)
            faults += [f"{layers[name][0]}: {library} is for {' and '.join(sorted(allowed))} only" for name in outside]
        elif len(layers) > 1:
            files = ", ".join(f"{name} ({layers[name][0]})" for name in sorted(layers))
            faults.append(f"{library} is included by more than one layer: {files}")
    return faults


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    print("\n".join(faults) if faults else "layers: no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

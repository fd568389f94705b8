#!/usr/bin/env bash
# Checks that every tracked C++ and CUDA file is as clang-format-14 would write it. Usage: check_format.sh [ROOT]
# To put it right: git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-14 -i
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
if ! command -v clang-format-14 >/dev/null; then
  echo "format: skipped, clang-format-14 is not installed (./setup.sh --dev)"
  exit 77
fi
# Outside a git checkout (an unpacked archive) every file of the tree counts as tracked.
list() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z -- '*.h' '*.cpp' '*.cu' '*.cuh'
  else
    find . -path ./build -prune -o -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0
  fi
}
if ! said=$(list | xargs -0 -r clang-format-14 --dry-run -Werror 2>&1); then
  echo "not as clang-format-14 writes them:"
  grep -oE '^[^ :]+:[0-9]+' <<<"$said" | awk -F: '!seen[$1]++ { print "  " $1 ":" $2 }'
  exit 1
fi
echo "format: no fault"

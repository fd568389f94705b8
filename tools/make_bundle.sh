#!/usr/bin/env bash
# Packs programs for a machine with a GPU that has neither the sources nor the libraries: the target "bundle" calls it.
#   cmake --preset bundle && cmake --build --preset bundle     writes build/bundle/loam-bundle.tar.xz
#   tools/make_bundle.sh OUT.tar.xz PROGRAM ...
# There: mkdir bundle && tar xf loam-bundle.tar.xz -C bundle && bundle/gpu_check.sh
set -euo pipefail
out=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
fail() { echo "make_bundle.sh: $*" >&2; exit 1; }

mkdir -p "$stage"/{bin,lib,tests}
for program in "$@"; do
  strip -o "$stage/bin/$(basename "$program")" "$program"
done
# needed: the libraries that the loader finds for the programs, but for those of the system.
needed() { env -i ldd "$stage"/bin/* | awk '$2 == "=>" { print $3 }' | sort -u | grep -vE '/lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so'; }
needed | while read -r library; do
  cp -L "$library" "$stage/lib/$(basename "$library")"
done
strip "$stage"/lib/*.so*
! needed | grep -v "^$stage/" || fail "these libraries are not found in ../lib of the programs: take the preset \"bundle\""

cp -r "$root/tests/fixtures" "$stage/tests/"
cp -r "$root/recipes" "$root/tools/gpu_check.sh" "$stage/"
cp -r "$root/bench/peers" "$stage/peers"
tar -C "$stage" -c . | xz -T0 -6 --lzma2=dict=128MiB >"$out.part"
mv "$out.part" "$out"
size=$(stat -c %s "$out")
echo "$out: $((size / 1024)) KiB"
((size <= 16 << 20)) || fail "more than 16 MiB"

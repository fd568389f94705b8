#!/usr/bin/env bash
# Packs a CUDA build for a GPU machine that has neither the sources nor the libraries: program, tests, what they need.
#   tools/make_bundle.sh BUILD_DIRECTORY OUT.tar.xz
# There: mkdir bundle && tar xf OUT.tar.xz -C bundle && bundle/gpu_check.sh
set -euo pipefail
build=$1 out=$2
root=$(cd "$(dirname "$0")/.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

tests=(tensor/tensor_test kernels/kernels_test kernels/kernels_attention_test kernels/kernels_matmul_test ops/ops_test nn/nn_test
  model/model_test optim/optim_test infer/infer_test train/trainer_test)
mkdir -p "$stage"/{bin,lib,tests,recipes}
for binary in bin/loam "${tests[@]/#/tests/}"; do
  strip -o "$stage/bin/$(basename "$binary")" "$build/$binary"
done
# All but what belongs to the system or to CUDA.
ldd "$stage"/bin/* | awk '$3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cublas|cublasLt|cudart|nccl)\.so' | while read -r library; do
  cp -L "$library" "$stage/lib/$(basename "$library")"
done
strip "$stage"/lib/*.so*
cp -r "$root/tests/fixtures" "$stage/tests/"
cp -r "$root/recipes" "$root/tools/gpu_check.sh" "$stage/"
cp -r "$root/bench/peers" "$stage/peers"
tar -C "$stage" -c . | xz -T0 -6 --lzma2=dict=128MiB >"$out.part"
mv "$out.part" "$out"
size=$(stat -c %s "$out")
echo "$out: $((size / 1024)) KiB"
((size <= 16 << 20)) || { echo "make_bundle.sh: more than 16 MiB" >&2; exit 1; }

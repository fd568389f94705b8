#!/usr/bin/env bash
# On a machine with a GPU, from an unpacked bundle: the tests of the CUDA kernels, then the benches asked for.
#   bundle/gpu_check.sh [--only FILTER] [--sanitize TOOL] [BENCH ...]
# --only is a GoogleTest filter; --sanitize runs the kernels' tests under a tool of compute-sanitizer instead. A BENCH is
# a program of its own line of arguments ("loam bench kernels --device cuda --json"); its output goes to $OUT/bench-N.json.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
only='*' sanitize=
while (($# > 0)); do
  case "$1" in
    --only) only=$2; shift 2 ;;
    --sanitize) sanitize=$2; shift 2 ;;
    *) break ;;
  esac
done

# cuBLASLt of the toolkit, or the one that comes with PyTorch.
libraries=$here/lib
for folder in /usr/local/cuda/lib64 $(python3 -c 'import nvidia, os; print(*(os.path.join(p, d, "lib") for p in nvidia.__path__ for d in ("cu13", "cublas")))' 2>/dev/null); do
  [[ -e $folder/libcublasLt.so.13 ]] && libraries+=:$folder
done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LOAM_SOURCE=$here PATH=$here/bin:$PATH
export OMP_WAIT_POLICY=passive LOAM_TEST_DEVICE=cuda
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit 1

passed=0 failed=0
# check NAME FILTER COMMAND...: one test program.
check() {
  local name=$1 filter=$2 log="$OUT/$1.log" start=$SECONDS
  shift 2
  "$@" --gtest_filter="$filter" --gtest_brief=1 >"$log" 2>&1
  local status=$? count
  count=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? .*ran.*/\1/p' "$log")
  if ((status == 0)); then
    ((passed += 1)); echo "ok    $name: ${count:-0} tests, $((SECONDS - start)) s"
  else
    ((failed += 1)); echo "FAIL  $name (exit $status)"; grep -aE 'Failure|FAILED|error|ERROR' "$log" | head -20
  fi
}

if [[ -n $sanitize ]]; then
  for test in kernels_test kernels_attention_test kernels_matmul_test; do
    check "$sanitize-$test" "$only" compute-sanitizer --tool "$sanitize" --error-exitcode 9 "$here/bin/$test"
  done
else
  for test in tensor kernels kernels_attention kernels_matmul ops nn optim model infer trainer; do
    check "$test" "$only" "$here/bin/${test}_test"
  done
fi
n=0
for bench in "$@"; do
  ((n += 1))
  bash -c "$bench" >"$OUT/bench-$n.json" 2>"$OUT/bench-$n.log" || { ((failed += 1)); echo "FAIL  $bench"; tail -3 "$OUT/bench-$n.log"; }
done
echo "$passed passed, $failed failed"
((failed == 0))

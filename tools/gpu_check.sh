#!/usr/bin/env bash
# On a machine with a GPU, from an unpacked bundle (tools/make_bundle.sh): every test with the label cuda, then the
# benches asked for.
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
    --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done

# Where there is no toolkit: the cuBLASLt that comes with PyTorch.
for folder in $(python3 -c 'import nvidia, os; print(*(os.path.join(p, d, "lib") for p in nvidia.__path__ for d in ("cu13", "cublas")))' 2>/dev/null); do
  [[ -e $folder/libcublasLt.so.13 ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done
export LOAM_SOURCE=$here PATH=$here/bin:$PATH OMP_WAIT_POLICY=passive LOAM_TEST_DEVICE=cuda
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit 1

passed=0 failed=0
# check NAME COMMAND...: one test program.
check() {
  local name=$1 log="$OUT/$1.log" start=$SECONDS
  shift
  "$@" --gtest_filter="$only" --gtest_brief=1 >"$log" 2>&1
  local status=$? count
  count=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? .*ran.*/\1/p' "$log")
  if ((status == 0)); then
    ((passed += 1)); echo "ok    $name: ${count:-0} tests, $((SECONDS - start)) s"
  else
    ((failed += 1)); echo "FAIL  $name (exit $status)"; grep -aE 'Failure|FAILED|error|ERROR' "$log" | head -20
  fi
}

if [[ -n $sanitize ]]; then
  for test in "$here"/bin/kernels*_test; do
    check "$sanitize-$(basename "$test")" compute-sanitizer --tool "$sanitize" --error-exitcode 9 "$test"
  done
else
  for test in "$here"/bin/*_test; do check "$(basename "$test")" "$test"; done
fi
n=0
for bench in "$@"; do
  ((n += 1))
  bash -c "$bench" >"$OUT/bench-$n.json" 2>"$OUT/bench-$n.log" || { ((failed += 1)); echo "FAIL  $bench"; tail -3 "$OUT/bench-$n.log"; }
done
echo "$passed passed, $failed failed"
((failed == 0))

#!/usr/bin/env bash
# Builds loam and runs its tests: setup, configure, build, ctest.
#   ./test.sh              the whole suite on the release build, but for the tests with the labels "slow" and "cuda" (a GPU)
#   ./test.sh --slow       those too
#   ./test.sh --fast       the tests with the label "fast" only
#   ./test.sh --sanitize   also the tests of the labels fast and run under the sanitizers (address, undefined, thread): about an hour more on two cores
# With CI in the environment also: every fuzz target for FUZZ_SECONDS (15) each.
set -euo pipefail
cd "$(dirname "$0")"

labels=(-LE '^(slow|cuda)$')
sanitize=
for argument in "$@"; do
  case "$argument" in
    --fast) labels=(-L '^fast$') ;;
    --slow) labels=() ;;
    --sanitize) sanitize=1 ;;
    --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option '$argument' (there are --fast, --slow, --sanitize and --help)" >&2; exit 2 ;;
  esac
done

jobs=${JOBS:-$(nproc)}
((jobs <= 8)) || jobs=8
if ((jobs < 2)); then test_jobs=1; else test_jobs=2; fi

# Sanitizer builds run the tests of these folders, those of whole programs aside: all of the library, and for threads what starts some or is shared by some.
# End-to-end tests, the program's tests and the checks of the tree say nothing new there.
asan_folders=(base config text tensor kernels format data autograd ops nn model optim train infer session)
tsan_folders=(base tensor text data kernels ops autograd model train infer session)

# Waiting threads that spin take the cores from the tests that run beside them.
export OMP_WAIT_POLICY=passive

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

# report_skipped BUILD: how many tests of its last run were skipped, and why.
report_skipped() {
  local log="$1/Testing/Temporary/LastTest.log" count
  count=$(grep -cE '^\[  SKIPPED \] .* \(|\.\.\. skipped ' "$log") || return 0
  echo "$count tests were skipped:"
  awk '/: Skipped$/ { getline; print "  " $0 } sub(/.*\.\.\. skipped /, "  ")' "$log" | sort -u
}

# run_ctest PRESET ARGUMENTS...: the closing lines of ctest, and on failure all that it said about the tests that failed.
run_ctest() {
  local build="build/$1" log="build/$1/ctest.log" status=0
  shift
  ctest --test-dir "$build" -j "$test_jobs" --output-on-failure "$@" >"$log" 2>&1 || status=$?
  # On failure all but the lines of the tests that passed, the closing lines among them.
  if ((status != 0)); then grep -vE ' Passed | Start ' "$log" || true; else sed -n '/tests passed/,$p' "$log"; fi
  grep -q 'No tests were found' "$log" && status=1
  report_skipped "$build"
  return "$status"
}

build() {
  cmake --preset "$1" >"build/$1.configure.log" 2>&1 || { tail -30 "build/$1.configure.log" >&2; return 1; }
  cmake --build "build/$1" -j "$jobs" "${@:2}" >"build/$1.build.log" 2>&1 || {
    { grep -A20 FAILED "build/$1.build.log" || tail -40 "build/$1.build.log"; } | head -60 >&2
    return 1
  }
  tail -1 "build/$1.build.log"
}

step setup
./setup.sh --dev
mkdir -p build

step release: build
build release
step release: tests
run_ctest release "${labels[@]}"

if [[ -n "$sanitize" ]]; then
  for preset in asan tsan; do
    declare -n folders=${preset}_folders
    targets=()
    for folder in "${folders[@]}"; do [[ -f tests/$folder/CMakeLists.txt ]] && targets+=("tests/$folder/all"); done
    step "$preset: build of ${targets[*]}"
    build "$preset" --target "${targets[@]}"
    step "$preset: tests"
    ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
      run_ctest "$preset" -L '^(fast|run)$'
  done
fi

if [[ -n "${CI:-}" ]]; then
  step fuzz: build
  build fuzz --target loam_fuzzers
  mapfile -t targets < <(find build/fuzz/tests -type f -name '*_fuzz' -perm -u+x | sort)
  ((${#targets[@]} > 0)) || { echo "test.sh: no fuzz target was built" >&2; exit 1; }
  for target in "${targets[@]}"; do
    step "fuzz: $(basename "$target")"
    corpus=build/fuzz/corpus/$(basename "$target")
    mkdir -p "$corpus"
    "$target" -max_total_time="${FUZZ_SECONDS:-15}" -timeout=10 -rss_limit_mb=3000 -artifact_prefix="$corpus-" "$corpus" \
      >"$target.log" 2>&1 || { tail -40 "$target.log" >&2; exit 1; }
    tail -1 "$target.log"
  done
fi
step "all tests passed"

#!/usr/bin/env bash
# tools/run_tests.sh release|asan|tsan [ctest arguments…]     runs what has been built; the last lines are ctest's own
#
# Tests run one after another: many start several ranks, and two of those would measure each other's deadlines.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
shift
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 CTEST_OUTPUT_ON_FAILURE=1
before=()
case "$kind" in
  release) ;;
  asan)
    # protect_shadow_gap=0: the GPU driver maps there. odr: LibTorch carries copies of libraries that we link too.
    export ASAN_OPTIONS="detect_leaks=1:protect_shadow_gap=0:detect_odr_violation=0:strict_string_checks=1:halt_on_error=1"
    export LSAN_OPTIONS="suppressions=$PWD/tools/lsan.supp:print_suppressions=0"
    export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:suppressions=$PWD/tools/ubsan.supp"
    export LOCKSTEP_TEST_SCALE="${LOCKSTEP_TEST_SCALE:-0.1}" ;;
  tsan)
    export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp:halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1"
    export LOCKSTEP_TEST_SCALE="${LOCKSTEP_TEST_SCALE:-0.1}"
    # gcc's thread sanitizer refuses addresses that newer kernels hand out at random.
    before=(setarch "$(uname -m)" -R) ;;
  *) echo "tools/run_tests.sh: expected release, asan or tsan, found \"$kind\"" >&2; exit 2 ;;
esac
exec "${before[@]}" ctest --test-dir "build/$kind" --no-tests=error "$@"

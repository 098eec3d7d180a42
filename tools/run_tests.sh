#!/usr/bin/env bash
# tools/run_tests.sh release|asan|tsan [ctest arguments…]     runs what has been built; the last lines are ctest's own
#
# A test that looks at deadlines runs alone, since two would measure each other's; others (PROCESSORS 1) run two at a time. What a
# sanitizer finds goes to files, since a rank's own output may be read by a test; one such file fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
shift
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 CTEST_OUTPUT_ON_FAILURE=1
# PyTorch's own jobs ask the name server for the name of every address that they meet, only to print it: one that does not
# answer holds each of these up by 10 s otherwise.
export RES_OPTIONS="timeout:1 attempts:1"
before=()
reports=$PWD/build/$kind/reports
case "$kind" in
  release) ;;
  asan)
    # protect_shadow_gap=0: the GPU driver maps there. odr: LibTorch carries copies of libraries that we link too.
    export LOCKSTEP_SANITIZED=1
    export ASAN_OPTIONS="log_path=$reports/asan:detect_leaks=1:protect_shadow_gap=0:detect_odr_violation=0:strict_string_checks=1:halt_on_error=1"
    export LSAN_OPTIONS="suppressions=$PWD/tools/lsan.supp:print_suppressions=0"
    export UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1:halt_on_error=1:suppressions=$PWD/tools/ubsan.supp"
    export LOCKSTEP_TEST_SCALE="${LOCKSTEP_TEST_SCALE:-0.1}" ;;
  tsan)
    export TSAN_OPTIONS="log_path=$reports/tsan:suppressions=$PWD/tools/tsan.supp:halt_on_error=1:second_deadlock_stack=1"
    export LOCKSTEP_TEST_SCALE="${LOCKSTEP_TEST_SCALE:-0.1}"
    # Not ignore_noninstrumented_modules: on Linux it takes every module for such a one, and sees no memcpy and no lock.
    # gcc's thread sanitizer refuses addresses that newer kernels hand out at random.
    before=(setarch "$(uname -m)" -R) ;;
  *) echo "tools/run_tests.sh: expected release, asan or tsan, found \"$kind\"" >&2; exit 2 ;;
esac
run=(ctest --test-dir "build/$kind" --no-tests=error --parallel 2)
if [ "$kind" = release ]; then exec "${run[@]}" "$@"; fi
rm -rf "$reports"
mkdir -p "$reports"
status=0
# What counts here are the reports, of either attempt: a deadline that so slow a build misses once is left to the release tests.
"${before[@]}" "${run[@]}" --repeat until-pass:2 "$@" || status=$?
if [ -n "$(ls -A "$reports")" ]; then
  head -c 20000 "$reports"/*
  echo "run_tests: the sanitizer reported the above (all of it: $reports)" >&2
  exit 1
fi
exit "$status"

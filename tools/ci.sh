#!/usr/bin/env bash
# Everything that CI runs, cheapest first; the first failure stops it. The release tests come last, so that the last
# lines are ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
step() { printf '\n\033[1m== %s\033[0m  (%s s so far)\n' "$1" "$((SECONDS - started))"; }

step "set-up"
tools/setup.sh
step "lint"
tools/lint.sh
step "release build"
tools/build.sh release all
python3 tools/slowest_files.py build/release
step "address and undefined-behaviour sanitizers"
tools/sanitize.sh address,undefined
step "thread sanitizer"
tools/sanitize.sh thread
step "all tests"
tools/run_tests.sh release

#!/usr/bin/env bash
# tools/ci.sh test|check     cheapest first; the first failure stops it. The last lines are ctest's summary of the release tests.
#
# Tests wait for each other's ranks more than they compute, so the sanitized build is compiled beside them, on what they leave.
# `test` is what CI runs at every change, on two cores within an hour: of cases that are much alike it takes a fifth,
# others every day (tests/story.py). A machine whose build takes ten minutes has a tenth of them, and one that comes to the sanitizers after
# forty leaves them out, as it says. `check` takes all, and adds what takes long and seldom finds anything. What of the latter was clean is
# remembered by content (tools/once.py, tools/clang_tidy.py), so that a part whose inputs did not change is not run again.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in test) scale=0.2 sanitized=readers ;; check) scale=1 sanitized=address,undefined ;; *) echo "tools/ci.sh: expected test or check, found \"${1:-}\"" >&2; exit 2 ;; esac
started=$SECONDS
step() { printf '\n\033[1m== %s\033[0m  (%s s so far)\n' "$1" "$((SECONDS - started))"; }
common=(CMakeLists.txt cmake src/lockstep/CMakeLists.txt tools/setup.sh tools/build.sh tools/run_tests.sh)
rooms() { printf 'src/lockstep/%s\n' "$@"; }

step "set-up"
tools/setup.sh tests
step "lint"
tools/lint.sh
step "release build"
before=$SECONDS slow=
tools/build.sh release all
python3 -B tools/slowest_files.py build/release
if [ "$1" = test ] && [ $((SECONDS - before)) -gt 600 ]; then
  scale=0.1
  echo "slow: the build took more than ten minutes, so that of cases that are much alike a tenth is taken"
fi
if [ "$1" = test ] && [ $((SECONDS - before)) -gt 900 ]; then
  slow=yes
  echo "slow: it took a quarter of an hour, and no sanitizer runs"
fi
step "what a change compiles anew"
python3 -B tools/check_rebuild.py build/release
if [ -z "$slow" ]; then
  idle=(nice -n 19)
  if chrt --idle 0 true 2>/dev/null; then idle=(chrt --idle 0); fi
  mkdir -p build/asan
  # A session of its own is a group of its own, to which the kernel gives an equal share whatever its tasks' priority: it gives itself less.
  setsid "${idle[@]}" bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null || true; exec tools/sanitize.sh "$0" build' "$sanitized" >build/asan/build.log 2>&1 &
  beside=$!
  trap 'kill -- -"$beside" 2>/dev/null || true' EXIT
fi
step "all tests"
LOCKSTEP_TEST_SCALE=${LOCKSTEP_TEST_SCALE:-$scale} tools/run_tests.sh release | tee build/release/tests.log

step "address and undefined-behaviour sanitizers"
if [ "$1" = test ] && { [ -n "$slow" ] || [ $((SECONDS - started)) -gt 2400 ]; }; then
  echo "left out: this machine is slow; tools/sanitize.sh $sanitized runs them"
else
  if ! wait "$beside"; then
    cat build/asan/build.log
    exit 1
  fi
  trap - EXIT
  tools/sanitize.sh "$sanitized"
fi

if [ "$1" = check ]; then
  step "clang-tidy"
  tools/build.sh tidy configure
  python3 -B tools/clang_tidy.py
  step "thread sanitizer"
  mapfile -t files < <(rooms base guard metric tensor comm text data testing model plan zoo state exec infer)
  python3 -B tools/once.py tsan "${common[@]}" "${files[@]}" tools/sanitize.sh tools/tsan.supp -- tools/sanitize.sh thread
  step "fuzzing"
  mapfile -t files < <(rooms base guard metric tensor comm text data testing model plan zoo state exec train)
  for seed in 1 2 3; do
    python3 -B tools/once.py "fuzz-$seed" "${common[@]}" "${files[@]}" tools/fuzz.sh -- tools/fuzz.sh "$seed"
  done
  step "planted errors"
  python3 -B tools/once.py mutate "${common[@]}" src tests/mutations.toml tests/fixtures tools/mutate.py -- python3 -B tools/mutate.py
fi

step "recorded figures"
python3 -B tools/check_results.py
step "the release tests, as they ended"
sed -n '/tests passed/,$p' build/release/tests.log

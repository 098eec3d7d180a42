#!/usr/bin/env bash
# tools/sanitize.sh address,undefined|thread     builds the room tests under that sanitizer and runs them
#
# LibTorch itself is not instrumented: what tools/*.supp silences says why, entry by entry. Under the thread sanitizer
# only the rooms that share data between threads are worth their time. Ends with 77 where this machine cannot run it.
set -euo pipefail
cd "$(dirname "$0")/.."
case "$1" in
  address,undefined) kind=asan ;;
  thread) kind=tsan ;;
  *) echo "tools/sanitize.sh: expected address,undefined or thread, found \"$1\"" >&2; exit 2 ;;
esac

if [ "$kind" = tsan ]; then
  probe=$(mktemp -d)
  trap 'rm -rf "$probe"' EXIT
  echo 'int main() { return 0; }' >"$probe/main.cpp"
  g++ -fsanitize=thread "$probe/main.cpp" -o "$probe/main"
  if ! setarch "$(uname -m)" -R "$probe/main"; then
    echo "sanitize  thread: SKIPPED, this machine does not let it run (setarch -R is forbidden or memory is mapped oddly)"
    exit 77
  fi
fi
tools/build.sh "$kind" room_tests
tools/run_tests.sh "$kind" -L room

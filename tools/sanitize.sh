#!/usr/bin/env bash
# tools/sanitize.sh address,undefined|readers|thread [build]     builds tests under that sanitizer and runs them ("build": does not)
#
# readers: address,undefined over the rooms that read what strangers wrote, with the kernels and the fuzzers' kept cases: what CI
# has time for at every change.
# address,undefined: the tests of all rooms, the fuzzers' kept cases, and two stories with the binary (tests/CMakeLists.txt says which).
# thread: the tests of the rooms that share data between threads (cmake/Rooms.cmake says which).
#
# LibTorch itself is not instrumented: what tools/*.supp silences says why, entry by entry. A machine on which the thread
# sanitizer cannot run fails; LOCKSTEP_NO_TSAN=1 says that this is known, and leaves it out (exit code 77).
set -euo pipefail
cd "$(dirname "$0")/.."
only=()
case "$1" in
  readers)
    rooms=(base guard dialect metric tensor text data model plan zoo state)
    kind=asan targets=(fuzz_replay "${rooms[@]/%/_test}")
    only=(-R "^($(IFS='|'; echo "${rooms[*]}")|fuzz[.]replay)$") ;;
  address,undefined) kind=asan targets=(lockstep fuzz_replay room_tests) ;;
  thread) kind=tsan targets=(room_tests) ;;
  *) echo "tools/sanitize.sh: expected address,undefined, readers or thread, found \"$1\"" >&2; exit 2 ;;
esac

if [ "$kind" = tsan ]; then
  if [ "${LOCKSTEP_NO_TSAN:-}" = 1 ]; then
    echo "sanitize  thread: SKIPPED, as LOCKSTEP_NO_TSAN=1 asks"
    exit 77
  fi
  probe=$(mktemp -d)
  trap 'rm -rf "$probe"' EXIT
  echo 'int main() { return 0; }' >"$probe/main.cpp"
  g++ -fsanitize=thread "$probe/main.cpp" -o "$probe/main"
  if ! setarch "$(uname -m)" -R "$probe/main"; then
    echo "sanitize  thread: this machine does not let it run (setarch -R is forbidden or memory is mapped oddly)." >&2
    echo "sanitize  thread: run it elsewhere, or say that it shall be left out here: LOCKSTEP_NO_TSAN=1" >&2
    exit 1
  fi
fi
tools/build.sh "$kind" "${targets[@]}"
if [ "${2:-}" != build ]; then tools/run_tests.sh "$kind" "${only[@]}"; fi

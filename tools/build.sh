#!/usr/bin/env bash
# tools/build.sh release|asan|tsan|tidy TARGET…     configures build/<kind> and builds the targets ("configure": none)
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
shift
case "$kind" in
  release) flags=(-DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_SANITIZE=) ;;
  asan) flags=(-DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_SANITIZE=address,undefined) ;;
  tsan) flags=(-DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_SANITIZE=thread) ;;
  # Every file by itself, as clang-tidy and editors want it.
  tidy) flags=(-DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_SANITIZE= -DLOCKSTEP_UNITY=OFF -DLOCKSTEP_PREPARE=OFF) ;;
  *) echo "tools/build.sh: expected release, asan, tsan or tidy, found \"$kind\"" >&2; exit 2 ;;
esac

folder=build/$kind
# Another checkout of the same sources compiles nothing anew: paths are kept relative in the cache's keys.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# Headers that are read once (cmake/PreparedHeaders.cmake) define no macro of their users, and none of ours asks for the time.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros}"
mkdir -p "$folder"
# Under a sanitizer a compiler takes about 1.5 GiB: on a small machine fewer of them run at a time.
jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ { fit = int($2 / 1572864); print fit < 1 ? 1 : (fit < cores ? fit : cores) }' /proc/meminfo)
jobs=${JOBS:-$jobs}

printf '\033[1mbuild\033[0m  %s with %s jobs\n' "$folder" "$jobs"
if ! cmake -S . -B "$folder" -G Ninja "${flags[@]}" ${CMAKE_FLAGS:-} >"$folder/configure.log" 2>&1; then
  cat "$folder/configure.log" >&2
  exit 1
fi
grep -E '^-- (Lockstep|LibTorch|lockstep_cuda)' "$folder/configure.log" || true
[ "$*" = configure ] && exit 0
started=$SECONDS
NINJA_STATUS='[%f/%t %es] ' ninja -C "$folder" -j "$jobs" "$@"
echo "built $folder in $((SECONDS - started)) s"

#!/usr/bin/env bash
# Quick checks first: what git holds, include arrows, formatting; then clang-tidy (its results are cached by content).
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\033[1mlint\033[0m   %s\n' "$*"; }

say "what git holds"
python3 tools/check_repo.py
say "include arrows, sizes"
python3 tools/check_includes.py
say "formatting"
git ls-files '*.h' '*.cpp' | xargs -r "$(tools/llvm_tool.sh clang-format)" --dry-run -Werror
say "clang-tidy"
tools/build.sh release configure
python3 tools/clang_tidy.py

#!/usr/bin/env bash
# What costs seconds: what git holds, include arrows, formatting. (clang-tidy: make tidy.)
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\033[1mlint\033[0m   %s\n' "$*"; }

say "what git holds"
python3 tools/check_repo.py
say "include arrows, sizes"
python3 tools/check_includes.py
say "Dockerfile and README"
python3 tools/check_dockerfile.py
say "pages made from the table of flags"
python3 -B tools/flag_pages.py --check
say "formatting"
git ls-files '*.h' '*.cpp' | xargs -r "$(tools/llvm_tool.sh clang-format)" --dry-run -Werror

#!/usr/bin/env bash
# tools/llvm_tool.sh clang-format|clang-tidy     the name of the version 14 program: other versions format otherwise
set -euo pipefail
for name in "$1-14" "$1"; do
  if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
    echo "$name"
    exit 0
  fi
done
echo "$1 version 14 is missing: run make setup (package $1-14)" >&2
exit 1

#!/usr/bin/env python3
"""clang-tidy over every .cpp of the build, tests and kernels with it, as many at a time as there are cores.

A clean result is remembered by content (the file, every lockstep header it sees, .clang-tidy, the tool's version), so
that a second run looks only at what changed. The memory lives where ccache's does, outside the build folder.

Usage: clang_tidy.py [--all] [FILE…]     --all: forget what was remembered
"""
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"   # configured only: there every file is compiled by itself (tools/build.sh)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lockstep" / "tidy"
SHIM = ROOT / "tools" / "tidy_shim.h"
# Off in tests: every TEST is a static variable of gtest's, which the check takes for ours.
TESTS_ONLY = "--checks=-cppcoreguidelines-avoid-non-const-global-variables"
INCLUDE = re.compile(rb'^\s*#\s*include\s+"(lockstep/[^"]+)"', re.M)


def is_test(path):
    return path.name.endswith("_test.cpp")


def seen_files(path, seen):
    """`path` and every lockstep header it includes, directly or not."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for header in INCLUDE.findall(path.read_bytes()):
        seen_files(ROOT / "src" / header.decode(), seen)
    return seen


def content_key(path, tool_version):
    digest = hashlib.sha256(tool_version + (ROOT / ".clang-tidy").read_bytes() + SHIM.read_bytes())
    if is_test(path):
        digest.update(TESTS_ONLY.encode())
    for file in sorted(seen_files(path, set())):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def run(tool, path):
    """(path, seconds, output, ok)"""
    started = time.monotonic()
    command = [tool, "-p", str(BUILD), "--quiet", f"--extra-arg-before=-include{SHIM}", "--extra-arg=-w",
               "--extra-arg=-Wno-error", "--extra-arg=-Wno-unknown-warning-option",
               *([TESTS_ONLY] if is_test(path) else []), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return path, time.monotonic() - started, done.stdout + (done.stderr if done.returncode else ""), done.returncode == 0


def sources():
    built = {Path(entry["file"]) for entry in json.loads((BUILD / "compile_commands.json").read_text())}
    return sorted(file for file in built if file.is_relative_to(ROOT / "src") or file.is_relative_to(ROOT / "tests"))


def main():
    tool = subprocess.run([ROOT / "tools" / "llvm_tool.sh", "clang-tidy"], check=True, capture_output=True,
                          text=True).stdout.strip()
    version = subprocess.run([tool, "--version"], check=True, capture_output=True).stdout
    words = [word for word in sys.argv[1:] if word != "--all"]
    files = [Path(word).resolve() for word in words] or sources()
    CACHE.mkdir(parents=True, exist_ok=True)
    keys = {file: CACHE / content_key(file, version) for file in files}
    todo = [file for file in files if "--all" in sys.argv or not keys[file].exists()]
    print(f"clang-tidy: {len(files)} files, {len(files) - len(todo)} unchanged since they were clean", flush=True)
    failed, started = 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", 0)) or os.cpu_count()) as pool:
        for done, (path, seconds, output, ok) in enumerate(pool.map(lambda file: run(tool, file), todo), 1):
            print(f"[{done}/{len(todo)}] {seconds:5.1f} s  {path.relative_to(ROOT)}", flush=True)
            if ok:
                keys[path].touch()
            else:
                failed += 1
                print(output, flush=True)
    print(f"clang-tidy: {failed} of {len(todo)} files with findings, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs a command unless it has succeeded before with the same inputs; what succeeded is remembered by content.

Inputs are the files named (a folder: all that git knows below it, or would add), the command itself and the compiler's
version. A command that ends with 77 was skipped: no failure, but nothing to remember. The memory lies in the user's
cache folder, so that it outlives the build folder.

Usage: once.py NAME PATH… -- COMMAND…     LOCKSTEP_AGAIN=1: run it anyway
"""
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lockstep" / "once"
SKIPPED = 77


def files_of(paths):
    """Every file that git knows or would add, below the paths; a path that names none is a mistake of the caller."""
    found = set()
    for path in paths:
        command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        names = [name for name in listed.split("\0") if name]
        if not names:
            sys.exit(f"once.py: expected a file or folder of the repository, found \"{path}\"")
        found.update(names)
    return sorted(found)


def key_of(name, command, files):
    compiler = subprocess.run(["g++", "--version"], check=True, capture_output=True).stdout
    digest = hashlib.sha256("\0".join([name, *command, ""]).encode() + compiler)
    for file in files:
        content = (ROOT / file).read_bytes() if (ROOT / file).is_file() else b"absent"
        digest.update(file.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def main():
    name, *words = sys.argv[1:]
    paths, command = words[:words.index("--")], words[words.index("--") + 1:]
    files = files_of(paths)
    memory = CACHE / f"{name}-{key_of(name, command, files)}"
    if memory.exists() and os.environ.get("LOCKSTEP_AGAIN") != "1":
        print(f"{name}: not run again, its {len(files)} input files are as they were when it last succeeded")
        return 0
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status == 0:
        CACHE.mkdir(parents=True, exist_ok=True)
        memory.touch()
    return 0 if status == SKIPPED else status


if __name__ == "__main__":
    sys.exit(main())

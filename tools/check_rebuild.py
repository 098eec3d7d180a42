#!/usr/bin/env python3
"""The promise of the rooms, asked of ninja: a change in a room compiles nothing of a room that does not see it, and a
change in one .cpp compiles one object.

A header and a .cpp of every room are touched in turn, and ninja says what it would do (nothing is compiled; the times
are put back). The binary must have been built.

Usage: check_rebuild.py BUILD_FOLDER
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from check_includes import room_table

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "lockstep"
OBJECT = re.compile(r"CMakeFiles/lockstep_(\w+)\.dir/(\S+\.o)")
OPENED_AT_RUN_TIME = {"arrow": "data"}  # libraries of their own, and the room that they see what it sees
MANIFEST = "rebuild_check.ninja"  # under its own name, build.ninja's rule to make itself anew does not stop a dry run


def would_build(folder):
    """The output lines of a dry run."""
    done = subprocess.run(["ninja", "-C", folder, "-f", MANIFEST, "-n", "lockstep"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"check_rebuild.py: ninja failed:\n{done.stdout}{done.stderr}")
    return [line for line in done.stdout.splitlines() if line.startswith("[")]


def after_touching(folder, file):
    """The (room, object) pairs that would be compiled."""
    before = file.stat()
    try:
        os.utime(file)
        return OBJECT.findall("\n".join(would_build(folder)))
    finally:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def main():
    folder = Path(sys.argv[1])
    (folder / MANIFEST).write_text((folder / "build.ninja").read_text())
    if rest := would_build(folder):
        sys.exit(f"check_rebuild.py: expected a finished build in {folder}, ninja would still do {len(rest)} things: {rest[0]}")
    sees = {room: seen for room, (seen, _) in room_table((SOURCE / "CMakeLists.txt").read_text()).items()}
    sees |= {library: {library, *sees[room]} for library, room in OPENED_AT_RUN_TIME.items()}
    findings = asked = 0
    for room in sorted(sees):
        sources = [file for file in sorted((SOURCE / room).rglob("*.cpp")) if not file.name.endswith("_test.cpp")]
        headers = [file for file in sorted((SOURCE / room).rglob("*.h")) if not file.name.startswith("test_")]
        for file in [*sources[:1], *headers[:1]]:
            asked += 1
            compiled = after_touching(folder, file)
            wrong = [f"{name}: {target}" for name, target in compiled if room not in sees[name]]
            if file.suffix == ".cpp" and len(compiled) > 1:
                wrong.append(f"{len(compiled)} objects of a .cpp, expected 1")
            for line in wrong:
                print(f"{file.relative_to(ROOT)}: a change compiles {line}")
            findings += len(wrong)
    (folder / MANIFEST).unlink()
    print(f"what a change compiles: {asked} files of {len(sees)} rooms touched, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What git holds: no large files, no paths of somebody's machine, no package hosts, no leftovers of a merge, no planted error
without its place.

Usage: check_repo.py [ROOT]   prints one line a finding, exits 1 if there is any.
"""
import re
import subprocess
import sys
import tomllib
from pathlib import Path

MAX_BYTES = 1 << 20
TEXT_BANS = [
    (r"(?<![\w.}])/(home|root|Users|work)/\w", "a path of one machine: use a relative one, or a flag"),
    (r"\.\./shared\b", "a path outside the repository"),
    (r"\b(files\.pythonhosted|pypi|test\.pypi)\.org|\bdeb\.debian\.org|\barchive\.ubuntu\.com|\bregistry\.npmjs",
     "a package host: clients use what the user has configured"),
    (r"^(<<<<<<<|>>>>>>>) ", "a leftover of a merge"),
]
SOURCE_BANS = [
    (r"\bTODO(?!\s*[(:]\s*\S)|\bFIXME\b|\bXXX\b", "finish it, or open an issue"),
    (r"[ \t]+$", "blanks at the end of the line"),
    (r"\t", "a tab"),
]
SOURCE_SUFFIXES = {".h", ".cpp", ".py", ".sh", ".cmake"}


def findings(root, path):
    """(line, message) of one tracked file."""
    file = root / path
    if not file.is_file() or file.is_symlink():
        return
    data = file.read_bytes()
    if len(data) > MAX_BYTES:
        yield 0, f"{len(data)} bytes, at most {MAX_BYTES}: generate it, or make it smaller"
    if b"\0" in data[:8192] or path == "tools/check_repo.py" or file.suffix == ".safetensors":
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if file.suffix in SOURCE_SUFFIXES:
            yield 0, "not UTF-8"
        return
    fixture = path.startswith("tests/fixtures/")
    bans = TEXT_BANS + (SOURCE_BANS if file.suffix in SOURCE_SUFFIXES and not fixture else [])
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, why in bans:
            if re.search(pattern, line):
                yield number, f"{why}: {line.strip()[:80]}"
    if file.suffix in SOURCE_SUFFIXES and text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"


def planted(root):
    """(line, message) of the planted errors that no source has a place for any more."""
    listed = root / "tests" / "mutations.toml"
    for entry in tomllib.loads(listed.read_text())["mutation"] if listed.exists() else []:
        file = root / entry["file"]
        found = file.read_text().count(entry["find"]) if file.exists() else 0
        if found != 1:
            yield 0, f"\"{entry['name']}\": expected what it changes once in {entry['file']}, found it {found} times"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    tracked = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True).stdout.decode()
    paths = [path for path in tracked.split("\0") if path]
    count = 0
    for path in paths:
        for line, message in findings(root, path):
            print(f"{path}:{line}: {message}")
            count += 1
    for line, message in planted(root):
        print(f"tests/mutations.toml:{line}: {message}")
        count += 1
    print(f"{len(paths)} files, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())

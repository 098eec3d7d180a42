#!/usr/bin/env python3
"""Plants the errors of tests/mutations.toml one at a time, and says which of them the named tests catch.

A checkout of its own (build/mutate/tree: the last commit, and what git knows to be changed since) is built once; then each
error is planted there, the named test program is built again and run with its filter, and the file is put back. An error is
caught when the test fails, crashes, or is not done in time.

Usage: mutate.py [NAME…]      names: those whose name contains one of these words (default: all)
Exits 1 when an error was not caught or does not compile, 2 when the list does not fit the sources.
"""
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutations.toml"
TREE = ROOT / "build" / "mutate" / "tree"
SECONDS = 120  # for one run of a test


def git(*words, where=ROOT):
    return subprocess.run(["git", "-C", where, *words], check=True, capture_output=True, text=True).stdout.strip()


def refuse(text):
    print(f"mutate: {text}", file=sys.stderr)
    sys.exit(2)


def checkout():
    """The tree as it is in the repository now, with the build that is there from before."""
    commit = git("stash", "create") or git("rev-parse", "HEAD")
    if not (TREE / ".git").exists():
        git("worktree", "add", "--force", "--detach", TREE, commit)
    git("reset", "--hard", commit, where=TREE)
    if (ROOT / ".venv").exists() and not (TREE / ".venv").exists():
        (TREE / ".venv").symlink_to((ROOT / ".venv").resolve())


def build(*targets):
    """What the compiler said, or None when all is built."""
    done = subprocess.run([TREE / "tools" / "build.sh", "release", *targets], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stdout + done.stderr


def run_test(target, words):
    """How the test ended: "passed", "failed" or "hung"; and what it printed."""
    program = TREE / "build" / "release" / "bin" / target
    folder = TREE / "build" / "release" / "tmp" / target.removesuffix("_test")  # as ctest has it: another build has its own
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TEST_TMPDIR": str(folder)}
    with subprocess.Popen([program, f"--gtest_filter={words}", "--gtest_brief=1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", env=env, start_new_session=True) as process:
        try:
            text = process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "hung", process.communicate()[0]
    return ("passed" if process.returncode == 0 else "failed"), text


def read_list(words):
    errors = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutation"]
    for error in errors:
        source = (TREE / error["file"]).read_text(encoding="utf-8")
        if source.count(error["find"]) != 1:
            refuse(f"\"{error['name']}\": expected its text once in {error['file']}, found it {source.count(error['find'])} times")
    return [error for error in errors if not words or any(word in error["name"] for word in words)]


def planted(error):
    """Plants, builds, tests, puts back: how the test ended, or "not built"."""
    path = TREE / error["file"]
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(error["find"], error["replace"]), encoding="utf-8")
    try:
        words = build(error["target"])
        return ("not built", words) if words else run_test(error["target"], error["filter"])
    finally:
        path.write_text(source, encoding="utf-8")


def first_failure(text):
    found = re.search(r"\[  FAILED  \] (\S+)", text) or re.search(r"(\S+:\d+): Failure", text)
    return found[1] if found else (text.strip().splitlines() or [""])[-1][:100]


def check_unplanted(target, errors):
    """The test program is there, and what shall catch the errors passes without them."""
    words = build(target)
    if words:
        refuse(f"{target} does not build without an error planted:\n{words[-3000:]}")
    for names in sorted({error["filter"] for error in errors}):
        end, text = run_test(target, names)
        if end != "passed" or re.search(r"\b0 tests", text):
            refuse(f"{target} {names}: expected tests that pass without an error planted, found that it {end}:\n{text[-2000:]}")


def caught(error):
    """Whether the test catches it; says so."""
    begun = time.monotonic()
    end, text = planted(error)
    by = {"failed": first_failure(text), "hung": "hung", "passed": error["filter"], "not built": "does not compile\n" + text[-2000:]}[end]
    word = {"passed": "NOT CAUGHT", "not built": "NOT BUILT "}.get(end, "caught    ")
    print(f"{word}  {error['name']}  ({error['target']}: {by}; {time.monotonic() - begun:.0f} s)", flush=True)
    return end in ("failed", "hung")


def main():
    started = time.monotonic()
    checkout()
    words = build("configure")
    if words:
        refuse(f"{TREE} cannot be configured:\n{words}")
    by_target, found = {}, 0
    for error in read_list(sys.argv[1:]):
        by_target.setdefault(error["target"], []).append(error)
    for target, errors in by_target.items():
        check_unplanted(target, errors)
        found += sum([caught(error) for error in errors])
    total = sum(len(errors) for errors in by_target.values())
    print(f"{found} of {total} caught in {time.monotonic() - started:.0f} s")
    return 0 if found == total else 1


if __name__ == "__main__":
    sys.exit(main())

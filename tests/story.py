"""What the end-to-end stories share: the binary, a folder that goes away, and runs that always end.

Example:
    class Resume(Story):
        def test_a_step(self):
            done = self.lockstep("init", "--family", "qwen2", "--size", "tiny", "--output_dir", self.folder / "m")
            self.assertEqual(done.returncode, 0, done.text)

    if __name__ == "__main__":
        main()
"""
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(os.environ.get("LOCKSTEP_ROOT") or Path(__file__).resolve().parent.parent)
BINARY = Path(os.environ.get("LOCKSTEP_BIN") or ROOT / "build" / "release" / "bin" / "lockstep")
FIXTURES = ROOT / "tests" / "fixtures"
SANITIZED = bool(os.environ.get("LOCKSTEP_SANITIZED"))  # tools/run_tests.sh asan: slower, and with a shadow of all addresses


SCALE = float(os.environ.get("LOCKSTEP_TEST_SCALE") or 1)  # how much of what is much alike; less in CI (tools/ci.sh)
SEED = int(os.environ.get("LOCKSTEP_SEED") or time.time() // 86400)  # others are taken every day


def sampled(cases):
    """Of many cases that are much alike, as many as LOCKSTEP_TEST_SCALE says: a fifth or less in CI, all in `make check`."""
    cases = list(cases)
    chosen = sorted(random.Random(SEED).sample(range(len(cases)), max(1, math.ceil(min(1.0, SCALE) * len(cases)))))
    if len(chosen) < len(cases):
        print(f"{len(chosen)} of {len(cases)} cases (LOCKSTEP_TEST_SCALE={SCALE:g} LOCKSTEP_SEED={SEED})", flush=True)
    return [cases[i] for i in chosen]


class Done:
    """One finished run: returncode, stdout, stderr, and both together in `text`."""

    def __init__(self, returncode, stdout, stderr):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr
        self.text = f"exit code {returncode}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"


def environment(extra=None):
    """The caller's environment without what a launcher or a terminal may have left in it. `extra`: None takes one out."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NPROC_PER_NODE")
    kept = {key: value for key, value in os.environ.items() if key not in names and not key.startswith(("SLURM_", "OMPI_"))}
    wanted = {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **(extra or {})}
    return {key: str(value) for key, value in wanted.items() if value is not None}


def free_port():
    """A port that nobody has now, below those that the system gives to connections at any moment."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = first if first > 12000 else 32768  # where it gives nearly all, none is better than another
    while True:
        port = random.randrange(end - 10000, end)
        with socket.socket() as door:
            try:
                door.bind(("", port))
                return port
            except OSError:
                pass  # another job has it


def training_all(words):
    """A story trains every weight where neither it nor a file of flags says what: without a word it would be adapters."""
    words = [str(word) for word in words]
    says = any(word.startswith(("--tuner_type", "--train_type", "--sft_type", "--adapters", "--help", "-h", "--model_name_or_path")) for word in words)
    file = len(words) > 1 and words[1].endswith((".json", ".yaml", ".yml"))
    return words if says or file or len(words) < 2 or words[0] not in ("sft", "train", "plan") else [*words, "--tuner_type", "full"]


STARTED = []  # by this test


def start(*words, env=None, cwd=None, stdin=None, as_they_are=False):
    """The binary in a process group of its own, with pipes; end it with `finish`."""
    process = subprocess.Popen([str(BINARY), *(map(str, words) if as_they_are else training_all(words))], env=environment(env), cwd=cwd, stdin=stdin,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    STARTED.append(process)
    return process


def end_all():
    """What a test that failed has left running would write checkpoints for ever."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def finish(process, timeout=600, input=None):
    """Waits; when the time is up the whole group is killed, so that no rank outlives a failed test."""
    try:
        stdout, stderr = process.communicate(input=input, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"still running after {timeout} s\n" + Done("killed", stdout, stderr).text) from None
    return Done(process.returncode, stdout, stderr)


def variables_of(pid):
    """Those that a process was started with; none: it has ended, or is another's."""
    try:
        return dict(pair.split("=", 1) for pair in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0") if "=" in pair)
    except OSError:
        return {}


def rank_of(pid):
    """A process's rank, which its name says, or its variables; else None."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None  # it has ended
    if name.startswith("lockstep:"):
        return int(name.removeprefix("lockstep:"))
    variables = variables_of(pid)
    return int(variables["RANK"]) if {"RANK", "LOCAL_RANK"} <= variables.keys() else None


def kill_when_rows_are_kept(process, journal):
    """Kills the whole group as soon as a finished row stands in the journal, or it has ended by itself."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        try:
            if sum(file.stat().st_size for file in journal.glob("*.rows")) > 0:
                break
        except FileNotFoundError:
            break  # it is done, and takes them away
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it was faster
    finish(process)


def run(*words, env=None, cwd=None, timeout=600, input=None, as_they_are=False):
    """Runs the binary to its end and returns Done."""
    stdin = subprocess.PIPE if input is not None else subprocess.DEVNULL
    return finish(start(*words, env=env, cwd=cwd, stdin=stdin, as_they_are=as_they_are), timeout, input)


class Story(unittest.TestCase):
    """A test case with an empty folder of its own."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="lockstep_story_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(end_all)

    def lockstep(self, *words, expect=None, **options):
        """Runs the binary; with `expect`, its exit code must be that one."""
        done = run(*words, **options)
        if expect is not None:
            self.assertEqual(done.returncode, expect, done.text)
        return done


def main():
    unittest.main()

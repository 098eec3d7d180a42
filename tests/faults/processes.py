"""Processes of one run: each in a session of its own, their lines with the moment they came, and all of them found again
by a mark in their environment, whoever started them.

Example:
    with Run(folder) as run:
        run.start([BINARY, "sft", …], env={"RANK": 0})
        hung = not run.wait(40)
        left = run.remaining()
"""

import os
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

from story import environment

MARK = "LOCKSTEP_FAULT_RUN"


class Run:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        self.processes, self.lines, self.readers = [], [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_all()

    def start(self, words, env=None, cwd=None):
        key, value = self.mark.split("=")
        process = subprocess.Popen(
            [str(word) for word in words],
            env=environment({**(env or {}), key: value}),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.processes.append(process)
        for stream in (process.stdout, process.stderr):
            reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
            reader.start()
            self.readers.append(reader)
        return process

    def _read(self, stream):
        for line in stream:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def wait(self, limit):
        """Until all that were started have ended and nothing of theirs is left; False when the time is up."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if all(process.poll() is not None for process in self.processes) and not self.remaining():
                self._drain()
                return True
            time.sleep(0.02)
        return False

    def wait_for(self, condition, limit):
        """Until `condition()` holds; False when the time is up or all have ended."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if condition():
                return True
            if all(process.poll() is not None for process in self.processes):
                return bool(condition())
            time.sleep(0.01)
        return False

    def _drain(self):
        for reader in self.readers:
            reader.join(timeout=2)

    @property
    def text(self):
        return "\n".join(line for _, line in list(self.lines))

    def moment_of(self, word, since=0):
        """When a line with `word` came first after `since`; None when none did."""
        return next((moment for moment, line in list(self.lines) if word in line and moment >= since), None)

    @property
    def codes(self):
        return [process.poll() for process in self.processes]

    def remaining(self):
        """Processes of this run that are still there, zombies left out."""
        mark, found = self.mark.encode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes() and b") Z " not in (entry / "stat").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill_all(self):
        for _ in range(100):
            left = self.remaining()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            for process in self.processes:
                process.poll()
            if not left:
                break
            time.sleep(0.05)
        self._drain()

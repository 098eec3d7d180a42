"""SIGTERM, with which batch systems end a program: a job of the program stands in a group of its own, and would be killed with it."""
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Optional, TypeVar

Result = TypeVar("Result")
_SAME_WISH_SECONDS = 1.0  # of several that are sent at once


class Terminated(KeyboardInterrupt):
    """Where the program stands when it is told to end; it does not outlive Sigterm.run. As Ctrl-C, each that is raised counts."""


class Sigterm:
    """While a job runs on the main thread of a program that has no way of its own with SIGTERM: the job ends as by Ctrl-C, with a
    checkpoint, at once where the signal comes again later than a second, and then the program as the signal says."""

    def __init__(self) -> None:
        self.came = False
        self._is_over = False
        self._last = 0.0
        self._process = os.getpid()

    def run(self, work: "Callable[[], Result]") -> "Result":
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            return work()
        try:
            signal.signal(signal.SIGTERM, self._take)
            try:
                return work()
            finally:
                self._is_over = True  # nothing is raised into what follows
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self.came:
                os.kill(os.getpid(), signal.SIGTERM)

    def _take(self, number: int, frame: "Optional[FrameType]") -> None:
        if os.getpid() != self._process:  # forked meanwhile: none of its jobs
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        now = time.monotonic()
        is_wish, self.came = not self.came or now - self._last > _SAME_WISH_SECONDS, True
        if is_wish and not self._is_over:
            self._last = now
            raise Terminated

"""What a rank says when it ends: its exception with the line, or the code that it leaves with."""
import atexit
import os
import re
import signal
import sys
import traceback
from pathlib import Path

from . import _gathers, _modules

# What a rank says whose peer is gone: another one is the cause.
SECONDARY = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL error", "ncclRemoteError", "ncclSystemError",
             "Socket closed", "DistNetworkError", "DistBackendError", "Read error", "Application timeout caused pair closure", "recvValue failed")

LONG = 200  # words behind which nobody looks for a place
ASKED_TO_END = 128 + signal.SIGTERM  # src/lockstep/guard/asked_to_end.h

_told = False


def tell(native):
    global _told
    if _told:
        return
    _told = True
    before, leave, leave_politely, pid = sys.excepthook, os._exit, sys.exit, os.getpid()
    said = [0]  # the exit code, as far as it is known

    def excepthook(kind, value, trace):
        before(kind, value, trace)
        if os.getpid() != pid or issubclass(kind, SystemExit):
            return
        if issubclass(kind, KeyboardInterrupt):
            said[0] = ASKED_TO_END  # as the others are, one a moment before another
            return
        text = f"{kind.__name__}: {value}"
        secondary = any(word in text for word in SECONDARY)
        place = _place_of(trace)
        if secondary:
            native.wait_in_last_call()
            native.await_ending(1.5)
        known = _names_of(text) + _gathers.about(value) + (f", at {place}" if place else "")
        lines = str(value).splitlines() or [""]
        told = f"{kind.__name__}{known}: {lines[0]}" if len(text) > LONG else f"{kind.__name__}: {lines[0]}{known}"
        native.say_last_words("\n  ".join([told, *lines[1:]]), place, secondary, 1)
        native.await_ending(3.0 if secondary else 1.0)

    def exit_politely(code=None):
        said[0] = 0 if code is None else code if isinstance(code, int) else 1
        leave_politely(code)

    def exit_now(code):
        if os.getpid() == pid:
            native.finish(code if isinstance(code, int) else 1)
        leave(code)

    sys.excepthook = excepthook
    os._exit, sys.exit = exit_now, exit_politely
    atexit.register(lambda: os.getpid() == pid and native.finish(said[0]))


def _place_of(trace):
    frames = traceback.extract_tb(trace)
    inside = ("site-packages", "/lockstep_guard/", "<")
    own = [frame for frame in frames if not any(part in frame.filename for part in inside)] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name}" if own else ""


def _names_of(text):
    """DDP counts parameters; a person knows them by their names."""
    found = re.search(r"did not receive grad for rank \d+: ([\d ]+)", text)
    names = _modules.names_of_parameters()
    if found is None or not names:
        return ""
    unused = [names[int(index)] for index in found[1].split() if int(index) < len(names)]
    return f" (without a gradient: {', '.join(unused[:8])}{' and others' if len(unused) > 8 else ''})"

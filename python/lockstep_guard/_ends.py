"""What a rank says when it ends: its exception with the line, or the code that it leaves with."""
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path

from . import _gathers, _modules
from ._places import is_of_others, own_line

# What a rank says whose peer is gone: another one is the cause.
SECONDARY = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL error", "ncclRemoteError", "ncclSystemError",
             "Socket closed", "DistNetworkError", "DistBackendError", "Read error", "Application timeout caused pair closure", "recvValue failed",
             "Timed out waiting")

LONG = 200  # words behind which nobody looks for a place
ASKED_TO_END = 128 + signal.SIGTERM  # src/lockstep/guard/asked_to_end.h

_told = False


def at_exit():
    """What is said when Python leaves; until tell(): nothing."""


def tell(native):
    global _told, at_exit
    if _told:
        return
    _told = True
    before, before_in_thread, leave, leave_politely, pid = sys.excepthook, threading.excepthook, os._exit, sys.exit, os.getpid()
    # What is known of the end: that somebody wanted it; by which words; an exception that was told; the line of one without a word.
    asked_to_end = left = already = None
    where = ""

    def is_to_tell(value):
        nonlocal asked_to_end
        if isinstance(value, KeyboardInterrupt):
            asked_to_end = ASKED_TO_END  # as the others are, one a moment before another
        return os.getpid() == pid and not asked_to_end and value is not already and not isinstance(value, SystemExit)

    def tell_exception(value):
        nonlocal already
        if not is_to_tell(value):
            return
        already = value
        text, place, secondary = _words_of(value)
        if secondary:
            native.wait_in_last_call()
            native.await_ending(1.5)
        native.say_last_words(text, place, secondary, 1)
        native.await_ending(3.0 if secondary else 1.0)

    def excepthook(kind, value, trace):
        before(kind, value, trace)
        _quietly(tell_exception, value)

    def excepthook_of_thread(told):
        """It ends no process: said of the rank where that is what it is waited for."""
        before_in_thread(told)
        if os.getpid() == pid and told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
            _quietly(lambda: native.stand_at(f"thread {told.thread.name if told.thread else '?'} ended by {_words_of(told.exc_value)[0].splitlines()[0]}"))

    def way(words, code):
        """By which somebody leaves: the exception that he has caught, or who ends it where."""
        line = own_line(sys._getframe(2))
        return sys.exc_info()[1], (f"it left by {words}{f', at {line}' if line else ''}", line, False), code

    def exit_politely(code=None):
        """Somebody may still catch it: told when the process does end so."""
        nonlocal left, asked_to_end
        number = _status_of(code)
        if 128 < number < 160 or _in_handler_of_signal():
            asked_to_end = ASKED_TO_END
        if not number:
            _quietly(note_exit, "sys.exit")
        now = way(f"sys.exit({code!r:.60})", number) if number else None
        goes_on = now and left and left[2] == number and sys.exc_info()[1] is None and (left[0] or not now[1][1])
        if not goes_on:  # as multiprocessing does, with the code of what it has caught
            left = now
        leave_politely(code)

    def exit_now(status):
        if os.getpid() == pid:
            number = _status_of(status)
            if number and not asked_to_end:  # a process of multiprocessing has caught its sys.exit
                _quietly(tell_way, *(left if left and left[2] == number else way(f"os._exit({number})", number)))
            elif not number:
                _quietly(note_exit, "os._exit")
            native.finish(asked_to_end or number, where)
        leave(status)

    def note_exit(way):
        """Of one without a word, should it be too early."""
        nonlocal where
        line = own_line(sys._getframe(3))
        if line and threading.current_thread() is threading.main_thread():
            where = f"{way} at {line}"

    def tell_way(reason, words, code):
        if reason is not None:
            tell_exception(reason)
        else:
            native.say_last_words(*words, code)
            native.await_ending(1.0)

    def exit_at_last():
        if os.getpid() != pid:
            return
        uncaught = None if hasattr(sys, "ps1") or "IPython" in sys.modules else getattr(sys, "last_value", None)
        if isinstance(uncaught, BaseException):  # a job may have put a hook of its own in the place of ours
            _quietly(tell_exception, uncaught)
        if left and not already:
            reason, words, code = left
            if reason is None or is_to_tell(reason):
                words = words if reason is None else _words_of(reason)
                if not asked_to_end:
                    return native.end_with(*words, code)  # where that is the code in the end
        native.finish(asked_to_end or (1 if already else -1), where)

    sys.excepthook, threading.excepthook = excepthook, excepthook_of_thread
    for ours, module, name in ((exit_now, "os", "_exit"), (exit_politely, "sys", "exit")):  # pickled by their names, as Python's own
        ours.__module__, ours.__name__, ours.__qualname__ = module, name, name
    os._exit, sys.exit = exit_now, exit_politely
    at_exit = exit_at_last


def _words_of(value):
    """What is said of an exception, where, and whether another rank has caused it."""
    place = _place_in(traceback.extract_tb(value.__traceback__))
    failures = getattr(value, "failures", None) if type(value).__name__ == "CheckpointException" else None
    if not isinstance(failures, dict):
        return _words_at(value, place, False)
    # Of torch's distributed checkpoints: all ranks raise what some of them could not do.
    error, frames = failures.get(_rank_in_checkpoint(value), (None, None))
    if not isinstance(error, BaseException):
        return _words_at(value, place, True)
    return _words_at(error, _place_in(frames or [], own_alone=True) or place, False)


def _rank_in_checkpoint(value):
    """As the group counts that saves it."""
    trace = value.__traceback__
    while trace is not None:
        saves = trace.tb_frame.f_locals.get("self")
        if type(saves).__name__ == "_DistWrapper":
            return saves.rank
        trace = trace.tb_next
    return None


def _words_at(value, place, by_another):
    kind, message = type(value), _message_of(value)
    known = _names_of(message) + _gathers.about(value) + (f", at {place}" if place else "")
    lines = message.splitlines() or [""]
    head = f"{kind.__name__}: {lines[0]}" if lines[0] else kind.__name__
    told = f"{kind.__name__}{known}: {lines[0]}" if len(message) > LONG else f"{head}{known}"
    return "\n  ".join([told, *lines[1:]]), place, by_another or _is_secondary(value, message)


def _is_secondary(value, message):
    """c10d raises what Python's own network code does not: that one's errors are of somebody else's connections."""
    return not isinstance(value, OSError) and any(word in f"{type(value).__name__}: {message}" for word in SECONDARY)


def _status_of(code):
    """What the parent sees of it: -1 is 255."""
    return 0 if code is None else code & 0xFF if isinstance(code, int) else 1


def _in_handler_of_signal():
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    codes = [getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers]
    frame = sys._getframe(1)
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame is not None


def _quietly(function, *args):
    """A job is never worse off."""
    try:
        function(*args)
    except Exception:
        pass


def _message_of(value):
    """What can be sent and shown: names of files may hold bytes that are no text."""
    try:
        text = str(value)
    except Exception:
        text = "an exception without a message that can be shown"
    return text.encode("utf-8", "replace").decode("utf-8")


def _place_in(frames, own_alone=False):
    own = [frame for frame in frames if not is_of_others(frame.filename)] or ([] if own_alone else frames)
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name}" if own else ""


def _names_of(text):
    """DDP counts parameters; a person knows them by their names."""
    found = re.search(r"did not receive grad for rank \d+: ([\d ]+)", text)
    names = _modules.names_of_parameters()
    if found is None or not names:
        return ""
    unused = [names[int(index)] for index in found[1].split() if int(index) < len(names)]
    return f" (without a gradient: {', '.join(unused[:8])}{' and others' if len(unused) > 8 else ''})"

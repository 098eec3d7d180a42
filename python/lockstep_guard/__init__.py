"""The roll call for PyTorch jobs: who, what, where and why when ranks hang, die or go different ways.

LOCKSTEP_GUARD=1 in the environment switches it on in every process that imports torch; so do `python -m lockstep_guard train.py`
and `lockstep_guard.enable()` before torch.distributed is initialised.
"""
import atexit
import functools
import sys
import threading

from . import _settings

__all__ = ["enable", "report"]

_lock = threading.Lock()
_enabled = False
_native = None


def enable():
    """Watches c10d from now on; ranks join when the default group is made. Says once why not where it cannot, and never raises."""
    global _enabled, _native
    with _lock:
        if _enabled:
            return
        _enabled = True
    try:
        import torch.distributed.distributed_c10d as c10d
        from . import _core, _groups, _places, _waits
        _core.watch_collectives()
        _core.watch_waits(c10d.Work)
        _native = _core
        replaced = _groups.learn(c10d, _core)
        _waits.tell(_core)
        original = c10d._update_default_pg
        init = c10d.init_process_group
    except Exception as error:  # a job is never worse off
        _settings.say(f"guard off: {error}")
        return

    @functools.wraps(init)
    def initialised(*args, **kwargs):
        _of_roll_call("meet", _core, args, kwargs)
        return init(*args, **kwargs)

    def updated(*args, **kwargs):
        done = original(*args, **kwargs)
        if c10d.is_initialized():
            _of_roll_call("begin", _core, c10d)
        return done

    atexit.register(_at_exit)
    _places.put_in_place({**replaced, init: initialised}, ("torch.distributed",))
    c10d._update_default_pg = updated


def _of_roll_call(what, *args):
    """Imported with the first job: programs that only import torch do not wait for it."""
    try:
        from . import _roll_call
    except Exception as error:
        if what == "begin":
            _settings.say(f"guard off: {error}")
        return
    getattr(_roll_call, what)(*args)


def _at_exit():
    """Behind what the job has registered since, which may still make calls."""
    if ends := sys.modules.get(f"{__name__}._ends"):
        ends.at_exit()
    elif _native is not None:  # it has never come to a meeting
        from . import _launcher
        _launcher.tell_end(_native)


class Report(dict):
    """"calls" of this rank, those "unwatched", "bytes" that it gave to them, and "seconds_by_rank" that calls have taken on each rank of this
    machine; "slowest" is the one on which they took the least: the others wait for it there."""

    def __str__(self):
        lines = [f"{self['calls']} calls, {self['bytes'] / 1e6:.1f} MB given to them, {self['unwatched']} not compared"]
        lines += [f"rank {rank}: {seconds:.1f} s in calls{', the others wait for it' if rank == self['slowest'] else ''}"
                  for rank, seconds in sorted(self["seconds_by_rank"].items())]
        return "\n".join(lines)


def report():
    """What the guard has seen so far, as a dict; str() of it is for people."""
    met = _native is not None and f"{__name__}._roll_call" in sys.modules  # else a process that is forked from here would share what is made now
    found = Report(_native.counts() if met else {"calls": 0, "unwatched": 0, "bytes": 0, "seconds_by_rank": {}})
    times = found["seconds_by_rank"]
    found["slowest"] = min(times, key=times.get) if len(times) > 1 else None
    return found


def _autoload():
    """Of the entry point: at the end of `import torch`."""
    if _settings.mode() != "off":
        enable()

"""The roll call for PyTorch jobs: who, what, where and why when ranks hang, die or go different ways.

LOCKSTEP_GUARD=1 in the environment switches it on in every process that imports torch; so do `python -m lockstep_guard train.py`
and `lockstep_guard.enable()` before torch.distributed is initialised.
"""
import functools
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
        from . import _core, _groups, _places, _roll_call, _waits
        _core.watch_collectives()
        _native = _core
        _groups.learn(c10d, _core)
        _waits.tell(_core)
        original = c10d._update_default_pg
        init = c10d.init_process_group
    except Exception as error:  # a job is never worse off
        _settings.say(f"guard off: {error}")
        return

    @functools.wraps(init)
    def initialised(*args, **kwargs):
        _roll_call.meet(_core, args, kwargs)
        return init(*args, **kwargs)

    def updated(*args, **kwargs):
        done = original(*args, **kwargs)
        if c10d.is_initialized():
            _roll_call.begin(_core, c10d)
        return done

    _places.put_in_place(init, initialised, ("torch.distributed",))
    c10d._update_default_pg = updated


def report():
    """Of this rank: "calls" that it made, those "unwatched", "bytes" that it gave to them, "waited_seconds" until they were through."""
    return dict(_native.counts()) if _native is not None else {"calls": 0, "unwatched": 0, "bytes": 0, "waited_seconds": 0.0}


def _autoload():
    """Of the entry point: at the end of `import torch`."""
    if _settings.mode() != "off":
        enable()

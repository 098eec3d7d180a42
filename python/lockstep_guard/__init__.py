"""The roll call for PyTorch jobs: who, what, where and why when ranks hang, die or go different ways.

LOCKSTEP_GUARD=1 in the environment switches it on in every process that imports torch; so do `python -m lockstep_guard train.py`
and `lockstep_guard.enable()` before torch.distributed is initialised.
"""
import atexit
import functools
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path

__all__ = ["enable", "report"]

SOFT_SECONDS, HARD_SECONDS = 3.0, 600.0
ADDRESS = "at "
# What a rank says whose peer is gone: another one is the cause.
SECONDARY = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL error", "ncclRemoteError", "ncclSystemError",
             "Socket closed", "DistNetworkError", "DistBackendError", "Read error", "Application timeout caused pair closure", "recvValue failed")

_lock = threading.Lock()
_enabled = _joined = False
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
        from . import _core
        _native = _core
        _core.watch_collectives()
        original = c10d._update_default_pg
    except Exception as error:  # a job is never worse off
        _say(f"guard off: {error}")
        return

    def updated(*args, **kwargs):
        done = original(*args, **kwargs)
        _join(c10d)
        return done

    c10d._update_default_pg = updated


def report():
    """{"calls": of all groups, "unwatched": those of groups in which not all ranks are}."""
    return dict(_native.counts()) if _native is not None else {"calls": 0, "unwatched": 0}


def _autoload():
    """Of the entry point: at the end of `import torch`."""
    if os.environ.get("LOCKSTEP_GUARD", "0").lower() not in ("", "0", "off", "false", "no"):
        enable()


def _say(text):
    if os.environ.get("RANK", "0") == "0":
        print(f"lockstep {text}", file=sys.stderr, flush=True)


def _number(name, default):
    try:
        return float(os.environ.get(name, default))
    except ValueError:
        return default


def _join(c10d):
    """Once, after the default group: the first rank of a node starts its agent and the others learn of it at the store."""
    global _joined
    with _lock:
        if _joined or not c10d.is_initialized():
            return
        _joined = True
    try:
        rank, world = c10d.get_rank(), c10d.get_world_size()
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        local_world = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        if world == 1:
            return
        if local_world != world:
            return _say("guard off: several nodes are not watched yet")
        key = f"lockstep_guard/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/agent"
        store = c10d._get_default_store()
        if local_rank == 0:
            _tell_agent(store, key, local_world, world)
        agent = store.get(key).decode()
        if not agent.startswith(ADDRESS):
            return _say(f"guard off: {agent}")
        agent = agent.removeprefix(ADDRESS)
        _native.join(rank, world, local_rank, agent, os.environ.get("TORCHELASTIC_ERROR_FILE", ""))
        _watch_the_end()
        _tell_phases()
    except Exception as error:
        print(f"lockstep guard off: {error}", file=sys.stderr, flush=True)  # of this rank alone


def _tell_agent(store, key, local_world, world):
    """Its address, or why there is none: the others wait for either."""
    try:
        store.set(key, ADDRESS + _start_agent(local_world, world))
    except Exception as error:
        store.set(key, str(error) or type(error).__name__)


def _start_agent(local_world, world):
    program = Path(__file__).with_name("agent")
    process = subprocess.Popen([program, str(local_world), str(world), str(_number("LOCKSTEP_GUARD_NOTICE_SECONDS", SOFT_SECONDS)),
                                str(_number("LOCKSTEP_GUARD_PATIENCE", HARD_SECONDS))], stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().strip()
    process.stdout.close()
    process.wait()
    if not address:
        raise RuntimeError(f"{program} has not started")
    return address


def _tell_phases():
    """Between these a rank is in the forward pass, as far as anybody can see from outside."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def during(phase, function):
        @functools.wraps(function)
        def told(*args, **kwargs):
            before = _native.enter_phase(phase)
            try:
                return function(*args, **kwargs)
            finally:
                _native.enter_phase(before)
        return told

    torch.autograd.backward = during("backward", torch.autograd.backward)
    _BaseDataLoaderIter.__next__ = during("data", _BaseDataLoaderIter.__next__)
    register_optimizer_step_pre_hook(lambda *_: _native.enter_phase("step") and None)
    register_optimizer_step_post_hook(lambda *_: _native.enter_phase("forward") and None)


def _watch_the_end():
    before, leave, leave_politely, pid = sys.excepthook, os._exit, sys.exit, os.getpid()
    said = [0]  # the exit code, as far as it is known

    def excepthook(kind, value, trace):
        if os.getpid() == pid and not issubclass(kind, (SystemExit, KeyboardInterrupt)):
            text = f"{kind.__name__}: {value}"
            secondary = any(word in text for word in SECONDARY)
            frames = traceback.extract_tb(trace)
            own = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith("<")] or frames
            place = f"{Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name}" if own else ""
            before(kind, value, trace)
            if secondary:
                _native.wait_in_last_call()
                _native.await_ending(1.5)
            _native.say_last_words(f"{text}, at {place}" if place else text, place, secondary, 1)
            _native.await_ending(3.0 if secondary else 1.0)
        else:
            before(kind, value, trace)

    def exit_politely(code=None):
        said[0] = 0 if code is None else code if isinstance(code, int) else 1
        leave_politely(code)

    def exit_now(code):
        if os.getpid() == pid:
            _native.finish(code if isinstance(code, int) else 1)
        leave(code)

    sys.excepthook = excepthook
    os._exit, sys.exit = exit_now, exit_politely
    atexit.register(lambda: os.getpid() == pid and _native.finish(said[0]))

"""Groups of c10d: what each is called, and which ranks are in it; and calls between two of them."""
import functools
import sys
import threading

from . import _settings
from ._places import own_line

WITHOUT_FUTURE = ("send", "recv", "reduce_scatter", "reduce_scatter_tensor")


def learn(c10d, native):
    """Every way to make a group ends in this table. Returns the functions of c10d that are to be replaced, and by what."""
    class Watched(dict):
        def __setitem__(self, group, ranks):
            super().__setitem__(group, ranks)
            try:
                name = group.group_name
                about = getattr(group, "group_desc", "")
                title = "default" if name in ("", "0") else name if about in ("", "undefined") else f"{name} ({about})"
                native.learn_group(name, title, sorted(ranks, key=ranks.get), _has_two_backends(c10d, group))
            except Exception:  # a group of one's own class: watched when all ranks are in it
                pass

    known = Watched()
    for group, ranks in c10d._pg_group_ranks.items():
        known[group] = ranks
    c10d._pg_group_ranks = known
    originals = [getattr(c10d, name) for name in WITHOUT_FUTURE if hasattr(c10d, name)]
    longer = {c10d._set_pg_timeout: _waiting_longer(c10d, native)} if hasattr(c10d, "_set_pg_timeout") else {}  # of torch's own
    return {**{original: _blocking(native, original) for original in originals}, **longer, c10d.destroy_process_group: _leaving(c10d, native),
            c10d.new_group: _making(c10d, native), c10d.monitored_barrier: _standing(native, c10d.monitored_barrier)}


def _has_two_backends(c10d, group):
    """"cpu:gloo,cuda:nccl": each has an order of its own."""
    config = getattr(c10d._world, "pg_backend_config", {}).get(group, "")
    return len({part.partition(":")[2] for part in config.split(",") if ":" in part}) > 1


def _patience(native, group, timeout):
    """Who makes a group to wait there for long, for the one that prepares what all need, has said how long."""
    if timeout is not None and _settings.patience_seconds(0.0) == 0.0:
        native.set_patience(group.group_name, timeout.total_seconds())


def _waiting_longer(c10d, native):
    """From now on, as programs do behind a first step that compiles."""
    function = c10d._set_pg_timeout

    @functools.wraps(function)
    def told(timeout, group=None):
        done = function(timeout, group)
        try:
            _patience(native, c10d._get_default_group() if group is None else group, timeout)
        except Exception:  # a group of one's own class
            pass
        return done
    return told


def _standing(native, function):
    """It carries nothing that could be compared: this is where the rank stands meanwhile."""
    @functools.wraps(function)
    def told(*args, **kwargs):
        is_main, line = threading.current_thread() is threading.main_thread(), own_line(sys._getframe(1))
        if is_main:
            native.stand_at(f"in {function.__name__} at {line}")
        try:
            return function(*args, **kwargs)
        finally:
            if is_main:
                native.stand_at(f"behind {function.__name__} at {line}")
    return told


def _making(c10d, native):
    """It returns when its ranks have come to it: until then, this is where they stand."""
    function = c10d.new_group

    @functools.wraps(function)
    def told(*args, **kwargs):
        if threading.current_thread() is threading.main_thread():
            ranks = args[0] if args else kwargs.get("ranks")
            known = isinstance(ranks, (list, tuple, range))  # an iterator is not ours to read
            local = kwargs.get("use_local_synchronization") or len(args) > 4 and args[4]
            native.stand_at(f"in new_group({list(ranks[:16]) if known else ''}), which {'its' if local else 'all'} ranks must call, "
                            f"{own_line(sys._getframe(1))}")
            if not local and (known or ranks is None):  # these are named by their order
                return patient(_in_order(native, range(c10d.get_world_size()) if ranks is None else ranks, lambda: function(*args, **kwargs)),
                               args, kwargs)
        return patient(function(*args, **kwargs), args, kwargs)

    def patient(group, args, kwargs):
        try:
            _patience(native, group, kwargs.get("timeout", args[1] if len(args) > 1 else None))
        except Exception:  # none of its ranks, or a group of one's own class
            pass
        return group
    return told


def _in_order(native, ranks, make):
    try:
        call = native.make_group(list(ranks))
    except Exception:  # what torch will refuse
        call = None
    done = False
    try:
        group = make()
        done = True
        return group
    finally:
        if call is not None:
            native.group_made(call, not done)


def _leaving(c10d, native):
    """What a group has left, and of the default one all groups, will not come to a call of it any more."""
    destroy = c10d.destroy_process_group

    @functools.wraps(destroy)
    def told(group=None):
        try:
            for one in list(c10d._pg_group_ranks) if group is None or group == c10d.GroupMember.WORLD else [group]:
                native.leave_group(one.group_name)
        except Exception:  # a group of one's own class
            pass
        return destroy(group)
    return told


def _blocking(native, function):
    """Gloo does not say when these are through: the thread that waits for it does."""
    reduces = function.__name__.startswith("reduce")

    @functools.wraps(function)
    def told(*args, **kwargs):
        if kwargs.get("async_op") or reduces and len(args) > 4 and args[4]:
            return function(*args, **kwargs)
        before = native.block(True)
        try:
            return function(*args, **kwargs)
        finally:
            native.block(before)
    return told

"""Groups of c10d: what each is called, and which ranks are in it; and calls between two of them."""
import functools

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
                native.learn_group(name, title, sorted(ranks, key=ranks.get))
            except Exception:  # a group of one's own class: watched when all ranks are in it
                pass

    known = Watched()
    for group, ranks in c10d._pg_group_ranks.items():
        known[group] = ranks
    c10d._pg_group_ranks = known
    originals = [getattr(c10d, name) for name in WITHOUT_FUTURE if hasattr(c10d, name)]
    return {original: _blocking(native, original) for original in originals}


def _blocking(native, function):
    """Gloo does not say when these are through: the thread that waits for it does."""
    @functools.wraps(function)
    def told(*args, **kwargs):
        if kwargs.get("async_op"):
            return function(*args, **kwargs)
        before = native.block(True)
        try:
            return function(*args, **kwargs)
        finally:
            native.block(before)
    return told

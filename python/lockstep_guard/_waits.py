"""Waits outside of any call: for nodes that torchrun expects, and for a lock file that another process has left behind."""
import functools
import os
import sys
import threading
import time

from . import _settings
from ._places import own_line, when_imported

EXIT_CODE = 6  # as of every job that the guard ends


class _Watched:
    """Says what is waited for, once, and ends the job when the patience is over."""

    def __init__(self, native, describe, patience):
        self.native, self.describe, self.since = native, describe, time.monotonic()
        self.timers = [threading.Timer(_settings.notice_seconds() + 4, self._tell)]
        if _settings.mode() != "notice":
            self.timers.append(threading.Timer(patience, self._end))

    def _text(self):
        what, fix = self.describe()
        line = own_line(sys._current_frames().get(threading.main_thread().ident))
        return f"{what} for {time.monotonic() - self.since:.0f}s{f', at {line}' if line else ''}", fix

    def _tell(self):
        what, fix = self._text()
        _settings.say(f"guard: notice: {what}\n  fix     {fix}")

    def _end(self):
        what, fix = self._text()
        self.native.say_last_words(f"{what}; {fix}", "", False, EXIT_CODE)  # what all ranks say is told as one
        if self.native.await_ending(2.0) is not None:
            time.sleep(10.0)  # the roll call says it, and ends this process
        _settings.say_alone(f"guard: the job was ended: {what}\n  fix     {fix}")
        os._exit(EXIT_CODE)

    def __enter__(self):
        for timer in self.timers:
            timer.daemon = True
            timer.start()

    def __exit__(self, *_):
        for timer in self.timers:
            timer.cancel()


def tell(native):
    def lock_files(module):
        wait = module.FileBaton.wait

        @functools.wraps(wait)
        def watched(baton, *args, **kwargs):
            def describe():
                path = baton.lock_file_path
                try:
                    age = f", made {(time.time() - os.stat(path).st_mtime) / 60:.0f} minutes ago"
                except OSError:
                    age = ""
                return (f"waiting for the lock {path}{age},",
                        f"if no other process builds an extension there, it was left by one that died: rm {path}")
            with _Watched(native, describe, _settings.patience_seconds()):
                return wait(baton, *args, **kwargs)
        module.FileBaton.wait = watched

    def own_limit(group):
        """Seconds after which torchrun gives up by itself: --rdzv_conf join_timeout."""
        try:
            timeouts = group.spec.rdzv_handler._settings.timeout
            return (timeouts.join + timeouts.last_call).total_seconds()
        except AttributeError:  # of another kind of rendezvous
            return 0.0

    def rendezvous(module):
        meet = module.SimpleElasticAgent._rendezvous

        @functools.wraps(meet)
        def watched(agent, group):
            def describe():
                settings = getattr(group.spec.rdzv_handler, "_settings", None)
                nodes, job = getattr(settings, "min_nodes", 0), getattr(settings, "run_id", "")
                return (f"the other nodes{f' of {nodes}' if nodes else ''} have not come to torchrun's meeting{f' {job}' if job else ''}",
                        "start torchrun on the missing nodes with the same --nnodes, --rdzv_id and --rdzv_endpoint, or set --nnodes to those "
                        "that are there; from each of them the endpoint must be reachable")
            with _Watched(native, describe, _settings.patience_seconds(max(1800.0, own_limit(group) + 60))):  # who says more there wants it
                return meet(agent, group)
        module.SimpleElasticAgent._rendezvous = watched

    when_imported("torch.utils.file_baton", lock_files)
    when_imported("torch.distributed.elastic.agent.server.api", rendezvous)

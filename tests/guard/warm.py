"""Python programs that begin with what is imported here: they are forked from this process, and spare the seconds that torch and its
libraries take to be imported, once a rank and once for torchrun. What their guard does from there on is what it does in a job of anybody.

    warm.ready("torch.distributed.fsdp")
    process = warm.Popen([sys.executable, "-m", "torch.distributed.run", …], env=…, cwd=…)   # as subprocess.Popen
"""
import atexit
import ctypes
import faulthandler
import gc
import importlib
import inspect
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from types import SimpleNamespace

LAUNCHER = ["-m", "torch.distributed.run"]
_leave = os._exit  # the guard of a rank puts its own there


def ready(*modules):
    """Imports them and torch, for all that begin from now on."""
    os.environ.pop("LOCKSTEP_GUARD", None)  # which is for ranks
    for module in ("torch.distributed.run", "torch._dynamo", *modules):  # the second: by the first step of an optimizer
        importlib.import_module(module)
    gc.freeze()


class Popen(subprocess.Popen):
    """Forked, where it is a script or torchrun in this Python; any other program is begun as ever."""

    def _execute_child(self, *args, **named):
        given = SimpleNamespace(**inspect.signature(super()._execute_child).bind(*args, **named).arguments)
        python, *words = (str(word) for word in given.args if word != "-u")  # torchrun's flag; PYTHONUNBUFFERED says the same
        if python != sys.executable or not (words[:2] == LAUNCHER or words[:1] and words[0].endswith(".py")):
            return super()._execute_child(*args, **named)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _be_a_new_process(given)
                ctypes.PyDLL(None).exit(_run(words))  # with what C++ has to say at the end
            except BaseException:
                traceback.print_exc()
            finally:
                _leave(70)
        self._child_created = True
        self._close_pipe_fds(given.p2cread, given.p2cwrite, given.c2pread, given.c2pwrite, given.errread, given.errwrite)


def _be_a_new_process(given):
    """What exec would leave: standard streams, folder, environment, and signals as they come."""
    if given.start_new_session:
        os.setsid()
    for number, stream in enumerate((given.p2cread, given.c2pwrite, given.errwrite)):
        if stream != -1:
            os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    faulthandler.disable()  # torchrun's
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if given.cwd is not None:
        os.chdir(given.cwd)
    if given.env is not None:
        os.environ.clear()
        os.environ.update(given.env)


def _run(words):
    """As the interpreter runs a script, or torchrun; returns the exit code."""
    launcher = words[:2] == LAUNCHER
    sys.argv[:] = words[1:] if launcher else words
    sys.path[0] = os.getcwd() if launcher else os.path.dirname(words[0])
    sys.path[1:1] = os.environ["PYTHONPATH"].split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    try:
        if launcher:
            _launch()
        else:
            import torch
            torch._import_device_backends()  # at the end of `import torch`: there the guard is switched on
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
    except BaseException:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def _launch():
    """Its ranks are forked too."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
    subprocess_handler.Popen, subprocess_handler.subprocess = Popen, SimpleNamespace(Popen=Popen)  # as torch 2.11, and 2.8, name it
    run.main()

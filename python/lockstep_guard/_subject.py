"""What the main thread's call is about: an exception that is on its way, which a clean-up holds up, or the parameter that it sends."""
import sys
import threading
import time
from pathlib import Path

from ._ends import SECONDARY
from ._places import TORCH, locals_of, own_frame

DEPTH = 40
OURS = "/lockstep_guard/"
LONGEST = 0.25  # seconds


def of_main_thread():
    thread = threading.main_thread().ident
    return "; ".join(part for part in (_exception(thread), _tensor(sys._current_frames().get(thread))) if part)


def waits_in_torch():
    """The main thread, or in a line of a person's own; and not in Python's locks, queues and files, where another thread may be what it
    waits for. No other thread does anything of a person's own: it might make the very call."""
    frames = sys._current_frames()
    frame = frames.pop(threading.main_thread().ident, None)
    file = "<" if frame is None else frame.f_code.co_filename
    pythons_own = file.startswith("<") or ("/lib/python3" in file and "-packages/" not in file)
    return "" if pythons_own or any(own_frame(other) for other in frames.values()) else "yes"


def _exception(thread):
    error = getattr(sys, "_current_exceptions", dict)().get(thread)
    error = error[1] if isinstance(error, tuple) else error  # until 3.11
    if not isinstance(error, BaseException):
        return ""
    trace = found = error.__traceback__
    while trace is not None:
        if OURS not in trace.tb_frame.f_code.co_filename:  # sys.exit is called through a function of ours
            found = trace
        trace = trace.tb_next
    if _comes_of_others(error, found):
        return ""
    line = "" if found is None else f" at {Path(found.tb_frame.f_code.co_filename).name}:{found.tb_lineno}"
    return f"an exception is on its way: {type(error).__name__}: {error}{line}"


def _comes_of_others(error, raised):
    """What a call raises because another rank has ended, or has not sent the same: no cause, and nothing to mend on this rank."""
    by_torch = raised is not None and any(part in raised.tb_frame.f_code.co_filename for part in ("/torch/distributed/", "/torch/nn/parallel/"))
    return (by_torch and isinstance(error, RuntimeError)) or any(word in str(error) for word in SECONDARY)


def nan_of_main_thread():
    """Asked on the thread that sends it, which is held meanwhile: of a large model it is a part that is looked at."""
    import torch
    names, until = [], time.monotonic() + LONGEST
    for model in _models_of(sys._current_frames().get(threading.main_thread().ident)):
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and time.monotonic() < until and bool(torch.isnan(parameter.grad).any()):
                names.append(f"{name} of {type(model).__name__}")
    return f"in the gradient of {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}" if names else ""


def _frames(frame):
    for _ in range(DEPTH):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _models_of(frame):
    import torch
    models = []
    for one in _frames(frame):
        if TORCH in one.f_code.co_filename:
            continue
        for value in [*locals_of(one).values(), *one.f_globals.values()]:
            for model in (value, vars(value).get("model") if hasattr(value, "__dict__") else None):
                model = getattr(model, "module", model) if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
                if isinstance(model, torch.nn.Module) and not any(model is known for known in models):
                    models.append(model)
    return models


def _tensor(frame):
    """Of the innermost frames, which are those of torch."""
    import torch
    tensors = []
    for one in _frames(frame):
        if TORCH not in one.f_code.co_filename:
            break
        for value in locals_of(one).values():
            tensors += [part for part in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(part, torch.Tensor)]
    for model in _models_of(frame):
        for name, parameter in model.named_parameters():
            if any(tensor is parameter or tensor is parameter.grad for tensor in tensors):
                gradient = not any(tensor is parameter for tensor in tensors)
                return f"the tensor is {'the gradient of ' if gradient else ''}{name} of {type(model).__name__}"
    return ""

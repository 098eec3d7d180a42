"""Lines of a person's own, and functions of other packages in whose place ours stand, wherever they were imported to, and when."""
import importlib.abc
import importlib.util
import inspect
import sys
from pathlib import Path

_torch = importlib.util.find_spec("torch")
TORCH = f"{Path(_torch.origin).parent}/" if _torch is not None and _torch.origin else "/torch/"  # a person's folder may be called torch too
OF_OTHERS = ("/site-packages/", "/dist-packages/", TORCH, "/torchinductor_", "/lockstep_guard/", "/lib/python3", "<")


def is_of_others(file):
    return any(part in file for part in OF_OTHERS)


def own_frame(frame):
    """The nearest of a person's own, from here outwards; None: there is none."""
    while frame is not None and is_of_others(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def own_line(frame):
    """train.py:41 of it, or nothing."""
    frame = own_frame(frame)
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def locals_of(frame):
    """Until Python 3.12 a frame keeps a copy of what it was asked for, until its function returns: tensors of a step that is long over. It is
    emptied here, unless somebody else has it, as locals() gives it, or it is no copy."""
    found = frame.f_locals
    copy = dict(found)
    if isinstance(found, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(found) <= 3:  # the frame, here, the count
        found.clear()
    return copy


def put_in_place(replaced, packages):
    """Everywhere in these packages where a module has an original under some name: `replaced` is {original: ours}. A walk over torch's modules
    takes half a millisecond: all of a kind in one."""
    ours = {id(original): function for original, function in replaced.items()}
    inside = tuple(f"{package}." for package in packages)
    for name, module in list(sys.modules.items()):
        if module is not None and (name in packages or name.startswith(inside)):
            for key, value in list(vars(module).items()):
                if id(value) in ours:
                    setattr(module, key, ours[id(value)])


class _AfterImport(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.waiting = {}

    def find_spec(self, name, path, target=None):
        waiting = self.waiting.pop(name, None)  # before others are asked, who may ask in turn
        if waiting is None:
            return None
        # In their order: a package that is installed to be edited has a finder of its own.
        found = (other.find_spec(name, path, target) for other in sys.meta_path if other is not self and hasattr(other, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.loader is None:
            self.waiting[name] = waiting
            return None
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            for then in waiting:
                then(module)
        spec.loader.exec_module = executed
        return spec


_after_import = _AfterImport()


def when_imported(name, then):
    """Calls then(module) now or when it is imported. What it raises is dropped: a job is never worse off."""
    def quietly(module):
        try:
            then(module)
        except Exception:
            pass
    if name in sys.modules:
        return quietly(sys.modules[name])
    _after_import.waiting.setdefault(name, []).append(quietly)
    if _after_import not in sys.meta_path:
        sys.meta_path.insert(0, _after_import)

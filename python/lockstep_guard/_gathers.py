"""Functions of Accelerate and transformers that gather nests of values: what they are about to gather is told before the first call."""
import ast
import functools
import linecache
import sys
import threading

from . import _trainer
from ._places import TORCH, put_in_place, when_imported
from ._structures import nodes_of, show

PASSED_OVER = (TORCH, "/accelerate/", "/lockstep_guard/", "/contextlib.py", "/functools.py", "/transformers/trainer_pt_utils.py")

_inside = threading.local()


def tell(native):
    def watch(names, packages):
        def watched(module):
            originals = [getattr(module, name) for name in names if hasattr(module, name)]
            put_in_place({original: _while_gathering(native, original) for original in originals}, packages)
        return watched

    when_imported("accelerate.utils.operations", watch(("gather", "pad_across_processes", "broadcast", "reduce"), ("accelerate", "transformers", "trl")))
    when_imported("transformers.trainer_pt_utils", watch(("nested_gather", "distributed_concat"), ("transformers", "trl")))


def about(error):
    """What is known of an exception besides its words."""
    found = getattr(error, "lockstep_about", None)
    return f" ({found})" if found else ""


def _while_gathering(native, function):
    @functools.wraps(function)
    def told(value, *args, **kwargs):
        if getattr(_inside, "gathers", False):
            return function(value, *args, **kwargs)
        try:
            title, more = _asked(sys._getframe(1))
            nodes = nodes_of(value) + _trainer.batch
            label = show(native, "values", title, nodes, **more)
        except Exception:
            return function(value, *args, **kwargs)
        before, _inside.gathers = native.label(label), True
        try:
            return function(value, *args, **kwargs)
        except Exception as error:
            _note(error, title, nodes)
            raise
        finally:
            _inside.gathers = False
            native.label(before)
    return told


def _note(error, title, nodes):
    """What was to be gathered and is no tensor: the words of whoever could not gather it do not say which."""
    for path, what in nodes:
        if not path[:1].isalpha() and " value" not in what and "tensor" not in what:
            error.lockstep_about = f"{title}{path} is {what}"
            return


def _asked(frame):
    """Title of what is gathered, with names and repairs of its parts, by the line that asks for it: a person's, or a Trainer's."""
    while frame is not None and any(part in frame.f_code.co_filename for part in PASSED_OVER):
        frame = frame.f_back
    if frame is None:
        return "values", {"note": _trainer.collation()}
    title, parts = _argument(frame.f_code, frame.f_lineno)
    names, fixes = _trainer.repairs(frame, title)
    return title, {"names": {f"[{i}]": name for i, name in enumerate(parts)} | names, "fixes": fixes, "note": _trainer.collation()}


@functools.lru_cache(maxsize=256)
def _argument(code, line):
    """("labels", []) of gather(labels), ("values", ["a", "b"]) of gather((a, b))."""
    try:
        call = next(node for node in ast.walk(ast.parse(linecache.getline(code.co_filename, line).strip())) if isinstance(node, ast.Call)
                    and any(word in ast.unparse(node.func) for word in ("gather", "pad_across", "reduce", "broadcast")))
        first = call.args[0]
        if isinstance(first, (ast.Tuple, ast.List)):
            return "values", [ast.unparse(part) for part in first.elts]
        return ast.unparse(first)[:40] if isinstance(first, (ast.Name, ast.Attribute, ast.Subscript)) else "values", []
    except (SyntaxError, StopIteration, IndexError):
        return "values", []

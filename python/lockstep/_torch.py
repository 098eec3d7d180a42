"""The one LibTorch of the process: that of the installed torch, whether it is imported before, after or never."""
import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path

from ._built import TORCH, VERSION

_SHARED = ("libc10.so", "libtorch_cpu.so")


def folder() -> Path:
    """Of the installed torch, which need not be imported for that."""
    imported = sys.modules.get("torch")
    if imported is not None and getattr(imported, "__file__", None):
        return Path(str(imported.__file__)).parent
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        raise ImportError(f"lockstep {VERSION} needs torch {TORCH}, found none\n  hint: pip install torch=={TORCH}")
    return Path(found.origin).parent


def version() -> str:
    """"2.11.0", without what it was built for ("+cu130")."""
    imported = sys.modules.get("torch")
    text = str(getattr(imported, "__version__", "")) if imported is not None else ""
    if not text:
        found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", (folder() / "version.py").read_text(), re.M)
        text = found[1] if found else "of no known version"
    return text.split("+")[0]


def prepare() -> None:
    """Loads the libraries that ours are linked with, so that no second copy of them comes."""
    if version() != TORCH:
        raise ImportError(f"lockstep {VERSION} was built for torch {TORCH}, found torch {version()} in {folder()}\n"
                          f"  hint: pip install torch=={TORCH}, or make the wheel anew beside the other: make wheel")
    if "torch" not in sys.modules:
        for name in _SHARED:
            ctypes.CDLL(str(folder() / "lib" / name))


def check_loaded() -> None:
    """What another module has brought along would be a second LibTorch, with which tensors could not be shared."""
    with open("/proc/self/maps") as maps:
        loaded = {line.split(None, 5)[5].rstrip("\n") for line in maps if "/libtorch_cpu.so" in line}
    own = folder() / "lib" / "libtorch_cpu.so"
    others = sorted(path for path in loaded if not (os.path.exists(path) and os.path.samefile(path, own)))
    if others:
        raise ImportError(f"lockstep {VERSION}: this process has loaded another LibTorch beside that of torch ({own}): {', '.join(others)}\n"
                          "  hint: import torch or lockstep before what brings it")


def library_path() -> "str | None":
    """For programs of this package, where torch lies elsewhere than beside it."""
    own, beside = folder(), Path(__file__).parent.parent / "torch"
    if beside.exists() and os.path.samefile(own, beside):
        return None
    return os.pathsep.join([str(own / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])

"""Starts the program that this package holds."""
import os
import sys

from . import _torch
from ._jobs import PROGRAM, search_path


def main() -> None:
    os.environ["PATH"] = search_path()
    libraries = _torch.library_path()
    if libraries is not None:
        os.environ["LD_LIBRARY_PATH"] = libraries
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()

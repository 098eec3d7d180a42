"""Starts the program that this package holds."""
import os
import sys

from ._jobs import PROGRAM, search_path


def main() -> None:
    os.environ["PATH"] = search_path()
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()

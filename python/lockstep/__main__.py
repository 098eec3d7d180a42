"""Starts the program that this package holds."""
import os
import sys
from pathlib import Path


def main() -> None:
    program = str(Path(__file__).parent / "bin" / "lockstep")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()

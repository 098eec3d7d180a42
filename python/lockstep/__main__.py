"""Starts the program that this package holds."""
import os
import sys
from pathlib import Path


def main() -> None:
    program = str(Path(__file__).parent / "bin" / "lockstep")
    # Programs in Python that a run starts (metrics, trackers) have this Python's packages, whether or not its environment is active.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), *filter(None, [os.environ.get("PATH")])])
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()

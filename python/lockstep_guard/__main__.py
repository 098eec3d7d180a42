"""python -m lockstep_guard train.py …: a script of one's own under the roll call; `-m package` runs a module."""
import os
import runpy
import sys
from pathlib import Path

import lockstep_guard


def main():
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m lockstep_guard script.py …   or   python -m lockstep_guard -m module …\n\n"
              "under torchrun: torchrun --nproc_per_node 2 -m lockstep_guard train.py …", file=sys.stderr)
        return 0 if words else 2
    lockstep_guard.enable()
    os.environ.setdefault("LOCKSTEP_GUARD", "1")  # of processes that the script starts
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = str(Path(words[0]).resolve().parent)  # as Python has it: what lies beside the script is imported
        runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

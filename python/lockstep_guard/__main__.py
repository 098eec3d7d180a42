"""python -m lockstep_guard train.py …: a script of one's own under the roll call; `-m package` runs a module."""
import runpy
import sys

import lockstep_guard


def main():
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m lockstep_guard script.py …   or   python -m lockstep_guard -m module …\n\n"
              "under torchrun: torchrun --nproc_per_node 2 -m lockstep_guard train.py …", file=sys.stderr)
        return 0 if words else 2
    lockstep_guard.enable()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

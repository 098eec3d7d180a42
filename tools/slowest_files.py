#!/usr/bin/env python3
"""slowest_files.py BUILD_FOLDER: the ten files that took longest to compile, from ninja's log (0.0 s: ccache had it)."""
import sys
from pathlib import Path


def main():
    took = {}
    for line in Path(sys.argv[1], ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if output.endswith(".o"):
            took[output] = (int(end) - int(start)) / 1000
    print("slowest to compile:")
    for output, seconds in sorted(took.items(), key=lambda item: -item[1])[:10]:
        print(f"  {seconds:6.1f} s  {output.split('.dir/')[-1].removeprefix('__/__/').removesuffix('.o')}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Says which figures of bench/results are older than 50 commits, or do not say of what they are. It never fails a build."""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 50


def age_of(commit):
    """Commits since; None where this clone does not reach back."""
    done = subprocess.run(["git", "-C", ROOT, "rev-list", "--count", f"{commit}..HEAD"], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else None


def main():
    for path in sorted((ROOT / "bench/results").glob("*.json")):
        found = json.loads(path.read_text())
        commit = re.sub(r"\+$", "", found.get("commit", "")) if isinstance(found, dict) else ""
        age = age_of(commit) if commit else None
        if not commit:
            print(f"warning: {path.relative_to(ROOT)} does not say of which commit it is; make bench measures anew")
        elif age is not None and age > MOST:
            print(f"warning: {path.relative_to(ROOT)} is {age} commits old ({commit}); make bench measures anew")
        else:
            print(f"{path.relative_to(ROOT)}: {commit}, {'as old as this clone, or older' if age is None else f'{age} commits ago'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

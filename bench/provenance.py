"""Where figures come from: results carry the commit, the CPU and the packages that they were measured with.

A results file is {"commit": …, "cpu": {…}, "measured": "2026-01-31", "packages": {…}, "rows": […]}. Figures of another
kind of CPU are never replaced without being asked: a ratio of one kind says little about another.
"""
import datetime
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # what matrix products are made with


def cpu():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    field = lambda name: next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(name)), "")  # noqa: E731
    flags = set(field("flags").split())
    names = [f"family {field('cpu family')} model {field('model')}".replace("\t", "")]
    return {"name": " ".join([field("model name"), *names]), "sets": [name for name in SETS if name in flags],
            "cores": len(os.sched_getaffinity(0)), "limits": {name: os.environ[name] for name in (
                "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY") if name in os.environ}}


def commit():
    """The commit of the tree, "+" behind it where files were changed since."""
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout  # noqa: E731
    changed = [line for line in git("status", "--porcelain", "--untracked-files=no").splitlines() if "bench/results/" not in line]
    return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")


def packages(*names):
    return {name: importlib.metadata.version(name) for name in names}


def add_flags(parser, name):
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results" / name)
    parser.set_defaults(usual_out=ROOT / "bench/results" / name)
    parser.add_argument("--replace", action="store_true", help="also replace figures of another kind of CPU")


def check_place(args):
    """Before anything is measured: the figures that stand there may be replaced."""
    if args.replace or not args.out.exists():
        return
    found = json.loads(args.out.read_text())
    theirs, ours = (found["cpu"] if isinstance(found, dict) else None), cpu()
    if theirs != ours:
        sys.exit(f"{args.out} holds figures of another kind of CPU:\n  there {theirs or 'not said'}\n  here  {ours}\n"
                 "--out FILE keeps both; --replace takes the place of those")


def write(args, rows, whole=None, **more):
    """A part of the cases (--only, or what `whole` says) never takes the place of all."""
    whole = not getattr(args, "only", "") if whole is None else whole
    if not whole and args.out == args.usual_out:
        print("not written: a part of the cases; --out FILE keeps it")
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    head = {"commit": commit(), "cpu": cpu(), "measured": datetime.date.today().isoformat(), **more}
    args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    print("written", args.out)

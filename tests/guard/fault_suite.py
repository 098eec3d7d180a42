#!/usr/bin/env python3
"""Every fault for real, in small torchrun jobs of every kind, and whether what is said of it is true.

fault_suite.py [--ranks 2 3 4] [--only REGEX] [--seed N] [--peers guard plain detail timeout10 debug_mode] [--limit 60]
               [--cold] [--package DIR] [--json FILE] [--markdown] [--texts]

The package must be installed in DIR; run it with a Python that has torch, transformers and accelerate (deepspeed for the rows of zero.py).
What stands in the file of --json with the same seed is taken from there, so that a long run can be made in portions.
"""
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "faults"), str(HERE.parent)]

import warm
from fault import draw
from fault_table import markdown, shares
from running import run, suite_parser
from truth import TRUTHS
from verdict import in_words, judge, said_by_guard, said_by_torch

PEERS = {
    "guard": {"LOCKSTEP_GUARD": "1"},
    "plain": {},
    "detail": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    "timeout10": {"FAULT_TIMEOUT": "10"},
    "debug_mode": {"ACCELERATE_DEBUG_MODE": "1"},
}
NEEDS = {"accelerated": "accelerate", "hf_trainer": "transformers", "hf_llava": "transformers", "zero": "deepspeed"}
IMPORTED = {"fsdp2": ["torch.distributed.fsdp"], "accelerated": ["accelerate"], "hf_trainer": ["transformers.trainer", "transformers.models.llama"],
            "hf_llava": ["transformers.trainer", "transformers.models.llava"]}  # before the job is forked
OF_ACCELERATE = ("accelerated", "hf_trainer", "hf_llava")
SHORT_PATIENCE = "8"


def parse():
    parser = suite_parser(__doc__, [3], "faults whose “job fault” it matches", 60, "seconds after the fault: who is still there hangs")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["guard"])
    parser.add_argument("--cold", action="store_true", help="every process imports torch, as always with other peers; else it is forked with torch")
    return parser.parse_args()


def variables(peer, truth, package):
    env = {"LOCKSTEP_GUARD": "0", **PEERS[peer]}
    if peer == "guard":
        env["PYTHONPATH"] = str(package)
        if truth.stalls:
            env["LOCKSTEP_GUARD_PATIENCE"] = SHORT_PATIENCE
    return env


def why_skipped(truth, peer, ranks):
    if ranks < truth.least:
        return f"it takes {truth.least} ranks"
    if peer == "debug_mode" and truth.job not in OF_ACCELERATE:
        return "not a job of Accelerate"
    needed = NEEDS.get(truth.job)
    return f"no {needed} here" if needed and importlib.util.find_spec(needed) is None else ""


def one(truth, peer, ranks, args):
    result = {"row": truth.row, "title": truth.title, "peer": peer, "ranks": ranks, "seed": args.seed, "stalls": truth.stalls,
              "skipped": why_skipped(truth, peer, ranks)}
    if result["skipped"]:
        return result | {"words": f"skipped: {result['skipped']}"}
    begin = subprocess.Popen if args.cold or peer != "guard" or truth.fault == "absent_node" else warm.Popen  # that launcher has a guard itself
    if begin is warm.Popen:
        warm.ready(*IMPORTED.get(truth.job, []))
    folder = tempfile.mkdtemp(prefix="fault_")  # no TemporaryDirectory: whoever is forked would take it away at its end
    try:
        done = run(truth, ranks, args.seed, variables(peer, truth, args.package), args.limit, folder, begin)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = said_by_guard(done) if peer == "guard" else said_by_torch(done)
    checks = judge(truth, done, said, args.seed, ranks)
    if truth.ends != "never" and done.moment is None:
        checks = {"no hang": done.code is not None, "told": False}
        return result | {"words": f"did not come to the fault (code {done.code})", "checks": checks, "code": done.code, "output": done.text[-20_000:]}
    culprit, step = draw(truth.fault, args.seed, ranks)
    return result | {
        "culprit": culprit, "step": step, "words": in_words(truth, done, said, checks), "checks": checks, "code": done.code,
        "named_after": None if said.at is None else said.at - (done.moment or done.begun),
        "gone_after": None if said.at is None or done.gone is None or done.code is None else done.gone - said.at,
        "wrong": done.wrong, "said": said.text if peer == "guard" else "", "output": done.text[-20_000:]}


def key_of(result):
    return result["peer"], result["ranks"], result["title"], result["seed"]


def rest_of(kept, results):
    made = set(map(key_of, results))
    return [result for key, result in kept.items() if key not in made]


def main():
    args = parse()
    args.package = args.package.resolve()  # jobs run elsewhere
    if "guard" in args.peers and not (args.package / "lockstep_guard").is_dir():
        sys.exit(f"fault_suite.py: there is no lockstep_guard in {args.package}: pip install --no-build-isolation --target {args.package} ./python")
    truths = [truth for truth in TRUTHS if re.search(args.only, truth.title)]
    print(f"seed {args.seed}, {len(truths)} faults, ranks {args.ranks}, peers {args.peers}", flush=True)
    kept = {key_of(result): result for result in json.loads(args.json.read_text())} if args.json and args.json.exists() else {}
    results = []
    for peer in args.peers:
        for ranks in args.ranks:
            for truth in truths:
                result = kept.get((peer, ranks, truth.title, args.seed)) or one(truth, peer, ranks, args)
                results.append(result)
                print(f"{truth.row:3} {truth.title:36} {peer:10} {ranks} ranks  {result['words']}", flush=True)
                if args.texts and not all(ok is not False for ok in result.get("checks", {}).values()):
                    print("    | " + (result.get("said") or result["output"][-3000:]).replace("\n", "\n    | "), flush=True)
                if args.json:
                    args.json.write_text(json.dumps([*results, *rest_of(kept, results)], indent=1))
    if args.markdown:
        print(markdown(results))
    print(shares(results))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Jobs of every kind in which nothing is wrong, each with and without the guard: it says nothing, and what they compute is the same to the bit.

fault_free.py [--ranks 2 3 4] [--only REGEX] [--seeds N …] [--limit 300] [--package DIR] [--json FILE] [--markdown] [--texts]

Ranks are late at random, as the seed draws it; the kinds "stalls" and "stragglers" have more of that. Run it with a Python that has torch and
the packages whose kinds shall run; what is left out for want of one is named. What stands in the file of --json with the same seed is taken from
there, so that a long run can be made in portions, and with several Pythons.
"""
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from kinds import programs
from running import end_all, suite_parser
from story import environment, free_port

KINDS = ("ddp", "workers", "stalls", "stragglers", "fsdp1", "fsdp2", "hsdp", "tensor_parallel", "pipeline", "functional", "compiled", "collectives", "objects",
         "pairs", "groups", "all_to_all", "coalesced", "barriers", "branches", "children", "checkpoints", "join", "accelerate", "trainer", "peft", "zero1",
         "zero2", "zero3", "trainer_zero3", "trl", "swift", "llamafactory")
NEEDS = {"accelerate": ["accelerate"], "trainer": ["transformers"], "peft": ["peft"], "zero1": ["deepspeed"], "zero2": ["deepspeed"],
         "zero3": ["deepspeed"], "trainer_zero3": ["deepspeed", "transformers"], "trl": ["trl", "peft"], "swift": ["swift"],
         "llamafactory": ["llamafactory"]}
LATE = re.compile(r"lockstep guard: notice: (ranks? [\d, -]+ (is|are) busy elsewhere|.* came; the job goes on)")
MEANT_TO_BE_LATE = ("stalls",)


def parse():
    parser = suite_parser(__doc__, [2, 3, 4], "kinds whose name it matches", 300, "seconds: a job that is still there hangs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[random.randrange(10_000)])
    return parser.parse_args()


def missing(kind):
    return [name for name in NEEDS.get(kind, []) if importlib.util.find_spec(name) is None]


def command(kind, ranks, seed, folder):
    if hasattr(programs, kind):
        words, env = getattr(programs, kind)(folder, ranks, free_port())
        return [Path(sys.executable).parent / words[0], *words[1:]], env
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks, HERE / "healthy.py", folder, "--kinds", kind,
            "--seed", seed], {}


def job(kind, ranks, seed, guard, args):
    """Its exit code, None where it hangs; its output; what its ranks got; and for how many seconds it was there."""
    mark = str(uuid.uuid4())
    with tempfile.TemporaryDirectory(prefix="healthy_") as folder:
        folder = Path(folder)
        words, env = command(kind, ranks, seed, folder)
        env = environment({"PYTHONUNBUFFERED": "1", "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(args.package), "FAULT_RUN": mark,
                           "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **env})
        begun, code = time.monotonic(), None
        with open(folder / "output.txt", "w+", errors="replace") as output:
            process = subprocess.Popen([str(word) for word in words], env=env, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = process.wait(args.limit)
            except subprocess.TimeoutExpired:
                pass
            seconds = time.monotonic() - begun
            end_all(mark, folder)
            process.wait()
        text = (folder / "output.txt").read_text(errors="replace")
        got = None if code != 0 else programs.trained(folder) if hasattr(programs, kind) else [
            (folder / f"{rank}.json").read_text() for rank in range(ranks)]
        calls = folder / "0.calls"
        return {"code": code, "text": text, "got": got, "seconds": seconds, "calls": json.loads(calls.read_text())["calls"] if calls.exists() else None}


def one(kind, ranks, seed, args):
    runs = {guard: job(kind, ranks, seed, guard, args) for guard in ("0", "1")}
    off, on = runs["0"], runs["1"]
    said = [line for line in on["text"].splitlines() if "lockstep guard" in line]
    late = [line for line in said if LATE.search(line)]
    alarms = [line for line in said if line not in late]
    if on["code"] != 0:
        alarms.append(f"exit code {on['code']}, {off['code']} without the guard")
    if on["calls"] == 0 or off["calls"]:
        alarms.append(f"{on['calls']} calls were seen, {off['calls']} without the guard")
    if kind in MEANT_TO_BE_LATE and not late:
        alarms.append("nothing was said of a rank that the others wait for")
    wrong = bool(alarms) or on["got"] != off["got"] or off["code"] != 0
    return {"kind": kind, "ranks": ranks, "seed": seed, "alarms": alarms, "late": late, "equal": off["got"] is not None and on["got"] == off["got"],
            "ran": off["code"] == 0, "seconds": [off["seconds"], on["seconds"]], "calls": on["calls"],
            "output": (off["text"][-6000:] + "\n— with the guard:\n" + on["text"][-20_000:]) if wrong else "\n".join(said)}


def words_of(result):
    if not result["ran"]:
        return "; ".join(["failed WITHOUT the guard", *(f"ALARM: {line}" for line in result["alarms"])])
    parts = ["equal" if result["equal"] else "OTHER NUMBERS", *(f"ALARM: {line}" for line in result["alarms"])]
    return "; ".join([*parts, f"{len(result['late'])} notices of a late rank"] if result["late"] else parts)


def key_of(result):
    return result["kind"], result["ranks"], result["seed"]


def markdown(results):
    """One row a kind."""
    lines = ["| kind | ranks | runs with the guard | alarms | told of a late rank | what the ranks got |", "|---" * 6 + "|"]
    for kind in KINDS:
        of = [result for result in results if result["kind"] == kind]
        if of:
            equal = sum(result["equal"] for result in of)
            lines.append(f"| {kind} | {', '.join(map(str, sorted({result['ranks'] for result in of})))} | {len(of)} | "
                         f"{sum(bool(result['alarms']) for result in of)} | {sum(bool(result['late']) for result in of)} | "
                         f"{'equal' if equal == len(of) else f'equal in {equal}'} |")
    return "\n".join(lines) + "\n"


def main():
    args = parse()
    args.package = args.package.resolve()  # jobs run elsewhere
    if not (args.package / "lockstep_guard").is_dir():
        sys.exit(f"fault_free.py: there is no lockstep_guard in {args.package}: pip install --no-build-isolation --target {args.package} ./python")
    kinds = [kind for kind in KINDS if re.search(args.only, kind)]
    kept = {key_of(result): result for result in json.loads(args.json.read_text())} if args.json and args.json.exists() else {}
    print(f"seeds {args.seeds}, {len(kinds)} kinds, ranks {args.ranks}", flush=True)
    left_out = []
    for seed in args.seeds:
        for ranks in args.ranks:
            for kind in kinds:
                key = (kind, ranks, seed)
                if key not in kept and missing(kind):
                    left_out.append(kind)
                    continue
                if key not in kept:
                    kept[key] = one(kind, ranks, seed, args)
                result = kept[key]
                print(f"{kind:16} {ranks} ranks, seed {seed:5}  {words_of(result)}", flush=True)
                if args.texts and (result["alarms"] or not result["equal"]):
                    print("    | " + result["output"].replace("\n", "\n    | "), flush=True)
                if args.json:
                    args.json.write_text(json.dumps(list(kept.values()), indent=1))
    results = [result for result in kept.values() if result["kind"] in kinds and result["ranks"] in args.ranks and result["seed"] in args.seeds]
    if args.markdown:
        print(markdown(results))
    for kind in dict.fromkeys(left_out):
        print(f"left out: {kind}, for want of {', '.join(missing(kind))}")
    print(f"{len(results)} runs with the guard: {sum(bool(result['alarms']) for result in results)} with an alarm, "
          f"{sum(result['ran'] and not result['equal'] for result in results)} with other numbers than without it, "
          f"{sum(not result['ran'] for result in results)} of jobs that failed without it; "
          f"{sum(bool(result['late']) for result in results)} told of a rank that the others waited for")


if __name__ == "__main__":
    main()

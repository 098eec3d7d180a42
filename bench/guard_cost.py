"""What the guard costs a PyTorch job: DDP steps of about a millisecond on two ranks with and without it, in turns; a call, also one whose backend
does nothing; the import.

guard_cost.py --package DIR [--pairs 12] [--steps 3000]     with a Python that has torch; the package installed in DIR
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOB = '''
import json, os, resource, sys, time
import torch, torch.distributed as dist
import torch.testing._internal.distributed.fake_pg
from torch import nn
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.ones(32, 64)
def step():
    model(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(200):
    step()
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
cpu, wall = used(), time.time()
for _ in range(int(sys.argv[1])):
    step()
out = {"cpu": used() - cpu, "wall": time.time() - wall}
def of_this_job(p):  # others' agents may be there
    try:
        return b"lockstep_guard/agent" in open(f"/proc/{p}/cmdline", "rb").read() and sys.argv[2].encode() in open(f"/proc/{p}/environ", "rb").read()
    except OSError:
        return False
value, calls = torch.zeros(1), 20000
cpu = used()
for _ in range(calls):
    dist.all_reduce(value)
out["call_us"] = (used() - cpu) / calls * 1e6
if dist.get_rank() == 0:
    agents = [p for p in os.listdir("/proc") if p.isdigit() and of_this_job(p)]
    ticks = [open(f"/proc/{p}/stat").read().rsplit(") ", 1)[1].split() for p in agents]
    out["agent_cpu"] = sum(int(t[11]) + int(t[12]) for t in ticks) / os.sysconf("SC_CLK_TCK")
    out["agent_wall"] = time.time() - wall
nowhere, turns = dist.new_group(backend="fake"), []
for _ in range(200):
    cpu = time.thread_time()
    for _ in range(500):
        dist.all_reduce(value, group=nowhere)
    turns.append((time.thread_time() - cpu) / 500 * 1e6)
out["record_us"] = sorted(turns)[len(turns) // 4]
dist.barrier()
open(f"{sys.argv[2]}/{dist.get_rank()}.json", "w").write(json.dumps(out))
dist.destroy_process_group()
'''


def run(args, guard):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.py").write_text(JOB)
        env = {**os.environ, "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(args.package), "OMP_NUM_THREADS": "1", "GUARD_COST": folder}
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", f"{folder}/job.py", str(args.steps), folder],
                       env=env, check=True, capture_output=True)
        ranks = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(2)]
    return {"cpu_ms": sum(rank["cpu"] for rank in ranks) / 2 / args.steps * 1e3, "wall_ms": ranks[0]["wall"] / args.steps * 1e3,
            "call_us": min(rank["call_us"] for rank in ranks), "record_us": min(rank["record_us"] for rank in ranks),
            "agent": 100 * ranks[0].get("agent_cpu", 0) / max(ranks[0].get("agent_wall", 1), 1)}


def import_seconds(args, guard):
    env = {**os.environ, "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(args.package)}
    words = "import time; begun = time.perf_counter(); import torch; print(time.perf_counter() - begun)"
    return float(subprocess.run([sys.executable, "-c", words], env=env, check=True, capture_output=True, text=True).stdout)


def switched_on_seconds(args):
    """What the entry point does at the end of `import torch`, on the clock alone: of an import that takes seconds it is lost in the noise."""
    env = {**os.environ, "LOCKSTEP_GUARD": "1", "PYTHONPATH": str(args.package), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    words = "import time, torch; begun = time.perf_counter(); import lockstep_guard; lockstep_guard._autoload(); print(time.perf_counter() - begun)"
    return float(subprocess.run([sys.executable, "-c", words], env=env, check=True, capture_output=True, text=True).stdout)


def interval(values):
    """Mean and the half width of its 95 % interval."""
    return statistics.mean(values), 2 * statistics.stdev(values) / len(values) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    pairs = []
    for i in range(args.pairs):
        order = ("0", "1") if i % 2 == 0 else ("1", "0")
        found = {guard: run(args, guard) for guard in order}
        pairs.append((found["0"], found["1"]))
        print(f"pair {i + 1}: " + ", ".join(f"{key} {found['0'][key]:.3f} / {found['1'][key]:.3f}" for key in found["0"]), flush=True)
    for key in ("cpu_ms", "wall_ms", "call_us"):
        mean, half = interval([100 * (on[key] / off[key] - 1) for off, on in pairs])
        print(f"{key}: {statistics.median(off[key] for off, _ in pairs):.3f} without, {statistics.median(on[key] for _, on in pairs):.3f} with, "
              f"{mean:+.2f} % +- {half:.2f}")
    mean, half = interval([on["record_us"] - off["record_us"] for off, on in pairs])
    print(f"a call that does nothing: {statistics.median(off['record_us'] for off, _ in pairs):.2f} us without, {mean:+.2f} us +- {half:.2f} with")
    print(f"agent: {statistics.median(on['agent'] for _, on in pairs):.2f} % of a core")
    times = [(import_seconds(args, "0"), import_seconds(args, "1")) for _ in range(20)]
    switched = [1e3 * switched_on_seconds(args) for _ in range(20)]
    best = [min(column) for column in zip(*times)]
    print(f"the guard at the end of import torch: {statistics.median(switched):.1f} ms (median), {min(switched):.1f} ms (best)")
    print(f"import torch: {1e3 * statistics.median(on - off for off, on in times):+.1f} ms (median of pairs), {1e3 * (best[1] - best[0]):+.1f} ms (best)")


if __name__ == "__main__":
    main()

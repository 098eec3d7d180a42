"""What the guard costs a PyTorch job: DDP steps of about a millisecond of CPU time, a call, one whose backend does nothing, the import.

The job with the guard and the one without run at the same time on the same cores, which give them turns of milliseconds: the clock,
which sways by a third within seconds, is the same for both. The agent is measured beside a job that is alone.

guard_cost.py --package DIR [--pairs 12] [--steps 3000]     with a Python that has torch; the package installed in DIR
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = '''
import json, os, resource, sys, time
import torch, torch.distributed as dist
import torch.testing._internal.distributed.fake_pg
from torch import nn
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
torch.set_num_threads(1)
dist.init_process_group("gloo")
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
begun, out, value = time.time(), {}, torch.zeros(1)
'''

JOB = HEAD + '''
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.ones(32, 64)
def step():
    model(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
def milliseconds(work, times):
    # the lower quartile of turns: what disturbs some of them is left out
    turns = []
    for _ in range(times // 100):
        cpu = used()
        for _ in range(100):
            work()
        turns.append((used() - cpu) / 100 * 1e3)
    return sorted(turns)[len(turns) // 4]
milliseconds(step, 200)
out["step_ms"] = milliseconds(step, int(sys.argv[1]))
out["call_us"] = milliseconds(lambda: dist.all_reduce(value), 10000) * 1e3
'''

CALLS = HEAD + '''
nowhere, turns = dist.new_group(backend="fake"), []
for _ in range(0 if dist.get_rank() else 6000):
    cpu = time.thread_time()
    for _ in range(100):
        dist.all_reduce(value, group=nowhere)
    turns.append((time.thread_time() - cpu) / 100 * 1e6)
out["call_us"] = sorted(turns)[len(turns) // 4] if turns else None
'''

TAIL = '''
def of_this_job(p):  # others' agents may be there
    try:
        return b"lockstep_guard/agent" in open(f"/proc/{p}/cmdline", "rb").read() and sys.argv[2].encode() in open(f"/proc/{p}/environ", "rb").read()
    except OSError:
        return False
ticks = [open(f"/proc/{p}/stat").read().rsplit(") ", 1)[1].split() for p in os.listdir("/proc") if p.isdigit() and of_this_job(p)]
out["agent"] = 100 * sum(int(t[11]) + int(t[12]) for t in ticks) / os.sysconf("SC_CLK_TCK") / (time.time() - begun)
dist.barrier()
open(f"{sys.argv[2]}/{dist.get_rank()}.json", "w").write(json.dumps(out))
dist.destroy_process_group()
'''


def started(args, guard, job, folder, seed):
    (Path(folder) / "job.py").write_text(job + TAIL)
    env = {**os.environ, "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(args.package), "OMP_NUM_THREADS": "1", "GUARD_COST": folder,
           "LOCKSTEP_GUARD_NOTICE_SECONDS": "60", "PYTHONHASHSEED": str(seed)}
    return subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", f"{folder}/job.py", str(args.steps),
                             folder], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def measured(args, job, guards, seed=0):
    """What the ranks of jobs that run at once have written, a list for each job. How Python's tables lie is the seed's: it makes a tenth."""
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in guards]
        processes = [started(args, guard, job, folder, seed) for guard, folder in zip(guards, folders)]
        texts = [process.communicate()[0] for process in processes]
        for process, text in zip(processes, texts):
            if process.returncode != 0:
                raise SystemExit(f"a job ended with {process.returncode}:\n{text[-3000:]}")
        return [[json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(2)] for folder in folders]


def pair(args, job, i):
    """The ranks of the job without the guard and of the one with it; which of them is started first takes turns."""
    order = ("0", "1") if i % 2 == 0 else ("1", "0")
    found = dict(zip(order, measured(args, job, order, seed=i)))
    return found["0"], found["1"]


def import_seconds(args):
    """CPU time of `import torch` without the guard and with it, at the same time on one core."""
    words = "import os, time; os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}); begun = time.process_time(); import torch; print(time.process_time() - begun)"
    both = [subprocess.Popen([sys.executable, "-c", words], env={**os.environ, "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(args.package)},
                             stdout=subprocess.PIPE, text=True) for guard in ("0", "1")]
    return [float(one.communicate()[0]) for one in both]


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
        pairs.append([{key: sum(rank[key] for rank in ranks) / 2 for key in ("step_ms", "call_us")} for ranks in pair(args, JOB, i)])
        print(f"pair {i + 1}: " + ", ".join(f"{key} {pairs[-1][0][key]:.3f} / {pairs[-1][1][key]:.3f}" for key in pairs[-1][0]), flush=True)
    for key in ("step_ms", "call_us"):
        mean, half = interval([100 * (on[key] / off[key] - 1) for off, on in pairs])
        print(f"{key}, CPU: {statistics.median(off[key] for off, _ in pairs):.3f} without, {statistics.median(on[key] for _, on in pairs):.3f} with, "
              f"{mean:+.2f} % +- {half:.2f}")
    calls = [[ranks[0]["call_us"] for ranks in pair(args, CALLS, i)] for i in range(args.pairs)]
    mean, half = interval([on - off for off, on in calls])
    print(f"a call that does nothing: {statistics.median(off for off, _ in calls):.2f} us without, {mean:+.2f} us +- {half:.2f} with")
    print(f"agent: {statistics.median(measured(args, JOB, ('1',))[0][0]['agent'] for _ in range(3)):.2f} % of a core")
    times = [import_seconds(args) for _ in range(20)]
    mean, half = interval([1e3 * (on - off) for off, on in times])
    switched = [1e3 * switched_on_seconds(args) for _ in range(20)]
    print(f"import torch, CPU: {1e3 * statistics.median(off for off, _ in times):.0f} ms without, {mean:+.1f} ms +- {half:.1f} with")
    print(f"the guard at its end, wall: {statistics.median(switched):.1f} ms (median), {min(switched):.1f} ms (best)")


if __name__ == "__main__":
    main()

"""The package lockstep-guard in real torchrun jobs: faults are named with their place, and jobs without one are left as they are."""
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys

from story import ROOT, Story, main

JOBS = ROOT / "tests" / "guard"
RANKS = 3
package = None  # where it is installed


def setUpModule():
    missing = [name for name in ("torch", "transformers", "accelerate", "nanobind", "scikit_build_core") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")
    global package
    build = ROOT / "build" / "guard"
    package = build / "package"
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--upgrade",
                           "--target", package, f"--config-settings=build-dir={build / 'objects'}", ROOT / "python"], text=True, capture_output=True,
                          env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"})
    if done.returncode != 0:
        raise RuntimeError(f"lockstep-guard could not be built:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")


def places(line):
    """faulty.py:LINE of the line that says so."""
    for number, text in enumerate((JOBS / "faulty.py").read_text().splitlines(), 1):
        if line in text:
            return f"faulty.py:{number}"
    raise KeyError(line)


USUAL = "# usual call"
HELD_UP = ("stall", "loader", "backward")  # for longer than anybody waits
# What rank 1 does, and what must be said of it.
FAULTS = {
    "shape": ("rank 1 sent another shape: all_reduce sum f32[5] beside all_reduce sum f32[3, 4]", places("torch.zeros(5)"), places(USUAL)),
    "dtype": ("rank 1 sent another dtype: i32 beside f32", places("torch.int32"), places(USUAL)),
    "reduction": ("rank 1", "all_reduce max f32[3, 4]", places("ReduceOp.MAX"), places(USUAL)),
    "root": ("rank 1 names root 1 where others name 0", places("src=1 if")),
    "barrier": ("rank 1 made another call: barrier beside all_reduce", places("dist.barrier()"), places(USUAL)),
    "skipped call": ("rank 1 skipped a call", places(USUAL)),
    "skipped step": ("rank 1 finished (exit code 0) while ranks 0, 2 still are in a call", places(USUAL)),
    "kill": ("rank 1 is gone", "its process ended without a word"),
    "stop": ("rank 1 has been stopped (SIGSTOP)", places(USUAL)),
    "exception": ("rank 1: KeyError: 'no such column'", places("raise KeyError")),
    "early exit": ("rank 1 finished (exit code 3) while ranks 0, 2 still are in a call", places(USUAL)),
    "loader": ("rank 1 is busy elsewhere: waiting for data", places("DataLoader(Slow())"), places(USUAL)),
    "backward": ("rank 1 is busy elsewhere: in the backward pass", places("Holds.apply("), places(USUAL)),
    "stall": ("rank 1 is busy elsewhere", "LOCKSTEP_GUARD_PATIENCE=60", places(USUAL)),
}


class Jobs(Story):
    def torchrun(self, *words, guard="1", **env):
        """Returns (exit code, output); nothing of the job may be left."""
        variables = {**os.environ, "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **env}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            variables.pop(name, None)
        process = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(RANKS), *map(str, words)],
                                   env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder)
        try:
            output = process.communicate(timeout=120)[0]  # until the last who holds the pipe is gone
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.fail(f"{words}: still there after 120 s\n{process.communicate()[0][-4000:]}")
        return process.returncode, output

    def test_faults_are_named_with_their_place(self):
        for kind, expected in FAULTS.items():
            with self.subTest(kind):
                code, output = self.torchrun(JOBS / "faulty.py", kind, **({"LOCKSTEP_GUARD_PATIENCE": "6"} if kind in HELD_UP else {}))
                self.assertEqual(code, 1, output)
                cause = output[output.find("Root Cause"):]
                for part in expected:
                    self.assertIn(part, output)
                self.assertEqual(output.count("lockstep guard: the job was ended") + output.count("lockstep guard: error:"), 1, output)
                if kind not in ("exception", "kill"):  # torchrun shows the first rank that went: these went by themselves
                    self.assertIn(expected[0], cause)

    def test_a_slow_rank_is_told_and_waited_for(self):
        code, output = self.torchrun(JOBS / "faulty.py", "slow")
        self.assertEqual(code, 0, output)
        self.assertIn("lockstep guard: notice: rank 1 is busy elsewhere", output)

    def test_a_job_without_a_fault_is_left_as_it_is(self):
        results = {}
        for guard in ("0", "1"):
            folder = self.folder / guard
            folder.mkdir()
            code, output = self.torchrun(JOBS / "healthy.py", folder, guard=guard)
            self.assertEqual(code, 0, output)
            self.assertNotIn("lockstep guard", output)
            results[guard] = [(folder / f"{rank}.json").read_text() for rank in range(RANKS)]
            calls = json.loads((folder / "0.calls").read_text())
            self.assertEqual(calls["calls"] > 50, guard == "1", calls)
            self.assertEqual(calls["unwatched"] > 0, guard == "1", "groups of a part of the ranks")
        self.assertEqual(results["0"], results["1"])
        code, output = self.torchrun(JOBS / "faulty.py", "os._exit")
        self.assertEqual(code, 0, output)
        self.assertNotIn("lockstep guard", output)


    def test_a_job_runs_on_where_the_guard_cannot(self):
        broken = self.folder / "package"
        shutil.copytree(package, broken)
        (broken / "lockstep_guard" / "agent").unlink()
        code, output = self.torchrun(JOBS / "faulty.py", "none", PYTHONPATH=str(broken))
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("lockstep guard off:"), 1, output)


if __name__ == "__main__":
    main()

"""The package lockstep-guard in real torchrun jobs: faults are named with their place, and jobs without one are left as they are.

With LOCKSTEP_TORCH_ALONE=1 the Python that runs it needs torch and what builds the package, and jobs of other libraries are left out:
so story.guard_older_torch runs some of these with an older torch.
"""
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from story import ROOT, Story, free_port, main, sampled

JOBS = ROOT / "tests" / "guard"
sys.path.insert(0, str(JOBS))
import fault_suite
import warm

RANKS = 3
AWAITED = {"LOCKSTEP_GUARD_NOTICE_SECONDS": "60"}  # on a busy machine ranks await each other longer than a notice is held back
TORCH_ALONE = os.environ.get("LOCKSTEP_TORCH_ALONE") == "1"
package = None  # where it is installed


def setUpModule():
    needed = ("torch", "nanobind", "scikit_build_core", *(() if TORCH_ALONE else ("transformers", "accelerate")))
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")
    global package
    build = ROOT / "build" / ("guard_older" if TORCH_ALONE else "guard")
    package = build / "package"
    quick = ["--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"] if TORCH_ALONE else []  # there it is the headers of another torch that matter
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--upgrade",
                           "--target", package, f"--config-settings=build-dir={build / 'objects'}", *quick, ROOT / "python"], text=True, capture_output=True,
                          env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"})
    if done.returncode != 0:
        raise RuntimeError(f"lockstep-guard could not be built:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")


# One of each way to find out; tests/guard/fault_suite.py has them all.
FAULTS = ("plain dtype_i32_f32", "plain equal_calls_swapped", "plain sum_max", "plain broadcast_source", "plain all_reduce_skipped", "plain wrong_group",
          "plain groups_in_another_order", "plain both_receive_later", "plain send_to_another", "plain receive_left_out", "plain short_receive",
          "plain group_of_members", "ends exit_early", "ends raises_then_barrier", "ends unsaved", "ends sigkill", "ends sigstop", "ends stalled_data", "meeting absent_rank", "meeting ends_before",
          "meeting other_world_size", "ddp tower_unused", "ddp nan_gradient", "ddp deeper_model", "fsdp2 tower_unused", "accelerated none_tensor",
          "hf_trainer raises", "hf_llava metadata_missing", "hf_llava image_on_some")
OF_TORCH_ALONE = ("plain dtype_i32_f32", "plain sum_max", "plain wrong_group", "plain both_receive_later", "ends exit_early", "ends sigkill", "ddp tower_unused",
                  "fsdp2 tower_unused")


class Jobs(Story):
    def torchrun(self, *words, guard="1", cold=False, **env):
        """Returns (exit code, output); nothing of the job may be left. `cold`: each of its processes imports torch, as those of anybody."""
        return self.ended(self.started(["--standalone", "--nproc_per_node", RANKS], words, guard, env, cold), words)

    def nodes(self, kind, packages=(None, None)):
        """Two of two ranks each, on this machine. As anybody's, whose ranks take as long to come as nodes to meet. `packages`: where each has ours."""
        where = ["--nnodes", 2, "--nproc_per_node", 2, "--master_addr", "127.0.0.1", "--master_port", free_port()]
        env = {"LOCKSTEP_JOB_SECRET": "a long text that nobody else knows", **AWAITED}
        jobs = [self.started([*where, "--node_rank", node], [JOBS / "calls.py", kind], "1", {**env, "PYTHONPATH": str(place or package)}, cold=True)
                for node, place in enumerate(packages)]
        return [self.ended(job, kind) for job in jobs]

    def started(self, where, words, guard, env, cold=False):
        return self.python(["-m", "torch.distributed.run", *where, *words], guard, env, cold)

    def spawned(self, how, kind, folder, env=None, cold=False):
        """Ranks are new Pythons where it is cold, else forked."""
        return self.ended(self.python([JOBS / "spawned.py", how, kind, folder, *([] if cold else ["fork"])], "1", {**AWAITED, **(env or {})}, cold), how)

    def python(self, words, guard, env, cold):
        ours = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        variables = {**ours, "LOCKSTEP_GUARD": guard, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **env}
        if not cold:
            warm.ready()
        begin = subprocess.Popen if cold else warm.Popen
        return begin([sys.executable, *map(str, words)], env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                     start_new_session=True, cwd=self.folder)

    def ended(self, process, words):
        try:
            output = process.communicate(timeout=600)[0]  # until the last who holds the pipe is gone
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.fail(f"{words}: still there after 600 s\n{process.communicate()[0][-4000:]}")
        return process.returncode, output

    def test_faults_are_named_with_their_place(self):
        seed = int(os.environ.get("LOCKSTEP_FUZZ_SEED", 20261125))
        print(f"seed {seed}", flush=True)
        asked = SimpleNamespace(seed=seed, package=package, limit=60, cold=False)
        by_title = {truth.title: truth for truth in fault_suite.TRUTHS}
        for title in sampled(OF_TORCH_ALONE if TORCH_ALONE else FAULTS):
            with self.subTest(title):
                result = fault_suite.one(by_title[title], "guard", RANKS, asked)
                wrong = [check for check, right in result["checks"].items() if right is False and check != "before wrong numbers"]
                self.assertEqual(wrong, [], f"{title}, seed {seed}: {result['words']}\n{result['output']}")

    def test_a_repair_that_is_said_repairs(self):
        """Taken word for word from what is said of an evaluation whose batches, or whose outputs, differ between ranks."""
        warm.ready(*fault_suite.IMPORTED["hf_llava"])
        for fault, repair, variable in (("metadata_shorter", r"TrainingArguments\(label_names=(\[.*?\])\)", "FAULT_LABEL_NAMES"),
                                        ("image_on_some", r"trainer\.evaluate\(ignore_keys=(\[.*?\])\)", "FAULT_IGNORE_KEYS")):
            with self.subTest(fault):
                job = [JOBS / "faults" / "hf_llava.py", fault, 3, self.folder]
                code, output = self.torchrun(*job)
                self.assertEqual(code, 1, output)
                found = re.search(repair, output.replace("\n          ", ""))
                self.assertIsNotNone(found, output)
                code, output = self.torchrun(*job, **{variable: found[1]}, **AWAITED)
                self.assertEqual(code, 0, output)
                self.assertNotIn("lockstep guard", output)

    def test_a_mode_says_what_is_done_about_it(self):
        """Told and left to itself; or not even begun, and the one line that parted is named."""
        code, output = self.torchrun(JOBS / "calls.py", "shape", guard="notice")
        self.assertEqual(code, 1, output)
        self.assertIn("lockstep guard: notice: rank 1", output)
        self.assertNotIn("the job was ended", output)
        code, output = self.torchrun(JOBS / "calls.py", "shape", guard="strict")
        self.assertEqual(code, 1, output)
        self.assertIn("lockstep guard: the job was ended: rank 1", output)
        self.assertNotIn("terminate called", output)
        # What is known from the lines alone is a notice, but where the guard is strict.
        code, output = self.torchrun(JOBS / "faults" / "plain.py", "equal_calls_swapped", 3, self.folder, guard="strict")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"lockstep guard: the job was ended: rank \d made two calls in the other order")
        for mode in ("notice", "strict"):
            code, output = self.torchrun(JOBS / "calls.py", "none", guard=mode, **AWAITED)
            self.assertEqual(code, 0, output)
            self.assertNotIn("lockstep guard", output)

    def test_each_way_to_end_early_is_told_as_what_it_is(self):
        for way, said in (("caught", "error: rank 1: ValueError: bad row 12, at calls.py:"), ("hooked", "error: rank 1: ValueError: bad row 12, at calls.py:"),
                          ("SystemExit", "rank 1 finished (exit code 3) while rank"),
                          ("sys.exit", "error: rank 1: it left by sys.exit('no learning rate'), at calls.py:"),
                          ("sys.exit 0", "rank 1: ending (sys.exit at calls.py:"), ("crashed", "rank 1 crashed (SIGSEGV)"),
                          ("os._exit 3", "error: rank 1: it left by os._exit(3), at calls.py:"),
                          ("left, and sys.exit", "rank 1 finished (exit code 0) while rank"),
                          ("left, and SystemExit", "rank 1 finished (exit code 0) while rank"),
                          ("destroyed", 'rank 1 has left group "default" (destroy_process_group) while rank')):
            with self.subTest(way):
                code, output = self.torchrun(JOBS / "calls.py", way, cold=way in ("hooked", "sys.exit 0"), **AWAITED)
                self.assertNotEqual(code, 0, output)
                self.assertIn(said, output)

    def test_who_makes_a_call_alone_is_named_with_its_line(self):
        code, output = self.torchrun(JOBS / "calls.py", "alone", **AWAITED)
        self.assertNotEqual(code, 0, output)
        self.assertIn("the job was ended: rank 1 is in a call that ranks 0, 2 did not make, and have finished", output)
        self.assertRegex(output, r"look for a branch on the rank around calls\.py:\d+")

    def test_what_a_call_raises_for_others_is_not_told_as_the_cause(self):
        """DDP compares sizes itself: what it raises stood in the place of the remedy."""
        _, output = self.torchrun(JOBS / "calls.py", "order", **AWAITED)
        self.assertIn("lockstep guard: the job was ended: rank 1 holds another structure: parameters of ModuleDict.b.weight is number 1", output)
        self.assertNotIn("an exception is on its way", output)
        self.assertIn("fix     build it with its keys in one order on all ranks", output)

    def test_what_is_sent_and_not_taken_is_told_of_both(self):
        _, output = self.torchrun(JOBS / "calls.py", "splits", **AWAITED)
        self.assertIn("lockstep guard: the job was ended: rank 0 sends 6 numbers to rank 1 in all_to_all, which takes 15 from it", output)
        self.assertRegex(output, r"rank 1 +all_to_all, sends \[6, 6, 6\], takes \[15, 6, 6\] +at calls\.py:\d+")

    def test_what_ddp_is_told_on_one_rank_alone_is_named(self):
        _, output = self.torchrun(JOBS / "calls.py", "unused", **AWAITED)
        self.assertIn("lockstep guard: the job was ended: rank 1 holds another structure: find_unused_parameters is True there, where ranks 0, 2 have False", output)
        self.assertIn("with the same options", output)

    def test_a_thread_that_died_is_told_of_the_rank_that_is_late_for_it(self):
        _, output = self.torchrun(JOBS / "calls.py", "thread", LOCKSTEP_GUARD_NOTICE_SECONDS="1")
        self.assertIn("notice: rank 1 is busy elsewhere: running (thread loader ended by ValueError: bad row 12, at calls.py:", output)

    def test_where_a_rank_stands_that_is_in_a_call_nobody_compares_is_told(self):
        _, output = self.torchrun(JOBS / "calls.py", "monitored", LOCKSTEP_GUARD_NOTICE_SECONDS="2")
        self.assertRegex(output, r"notice: ranks 0, 2 are busy elsewhere: running \(in monitored_barrier at calls\.py:\d+\)")

    def test_a_rank_that_gloo_aborts_is_asked_first(self):
        """Where Python's faulthandler, which answers such a signal too, was there before the guard."""
        _, output = self.torchrun(JOBS / "calls.py", "shape, and faulthandler", **AWAITED)
        self.assertIn("lockstep guard: the job was ended: rank 1 sent another shape: all_reduce sum f32[5] beside all_reduce sum f32[3, 4]", output)
        self.assertRegex(output, r"\n  stack   Thread 0x.*\n *File ")

    def test_nan_is_looked_up_in_what_is_sent(self):
        """And not in gradients that are written meanwhile: the parameters that are named fill the bucket."""
        _, output = self.torchrun(JOBS / "calls.py", "nan", **AWAITED)
        told = re.search(r"rank 1 gave NaN to all_reduce sum f32\[(\d+)\].* in the gradient of (\d+)\.(weight|bias) of Sequential and (\d+) more", output)
        self.assertIsNotNone(told, output)
        behind = 399 - int(told[2])
        self.assertEqual(int(told[1]), behind * 20 + (20 if told[3] == "weight" else 4), output)
        self.assertEqual(int(told[4]), behind * 2 + (1 if told[3] == "weight" else 0), output)

    def test_calls_begun_in_another_order_are_no_fault_to_the_strict(self):
        code, output = self.torchrun(JOBS / "calls.py", "crossed", guard="strict", **AWAITED)
        self.assertEqual(code, 0, output)
        self.assertNotIn("lockstep guard", output)

    def test_groups_may_be_left_and_made_again(self):
        for kind in ("again", "other members"):
            with self.subTest(kind):
                code, output = self.torchrun(JOBS / "calls.py", kind, **AWAITED)
                self.assertEqual(code, 0, output)
                self.assertNotIn("lockstep guard", output)

    def test_who_has_no_room_for_a_pair_is_not_missed_there(self):
        code, output = self.torchrun(JOBS / "calls.py", "many tags", LOCKSTEP_GUARD_NOTICE_SECONDS="5")
        self.assertEqual(code, 0, output)
        self.assertNotIn("lockstep guard", output)

    def test_groups_that_are_destroyed_make_room_for_others(self):
        _, output = self.torchrun(JOBS / "calls.py", "many teams", **AWAITED)
        self.assertRegex(output, r"the job was ended: ranks? [01] and ranks? [01] differ in what goes between them: (send|recv) f32\[[35]\]")

    def test_what_is_unusual_is_no_fault(self):
        for kind in ("at exit", "parted", "other ranks", "two swapped", "patient", "patient later", "locals", "hooks"):
            with self.subTest(kind=kind):
                code, output = self.torchrun(JOBS / "unusual.py", kind, self.folder, **AWAITED)
                self.assertEqual(code, 0, output)
                self.assertNotIn("lockstep guard:", output)

    def test_a_shell_may_stand_between_torchrun_and_its_ranks(self):
        for kind, limit in (("shape", ""), ("none", "ulimit -f 20000; ")):
            with self.subTest(kind=kind, limit=limit):
                line = f"{limit}{sys.executable} {JOBS / 'calls.py'} {kind}; exit $?"
                code, output = self.torchrun("--no-python", "bash", "-c", line, cold=True, **AWAITED)
                self.assertEqual(code == 0, kind == "none", output)
                self.assertEqual("the job was ended: rank 1 sent another shape" in output, kind == "shape", output)
                self.assertEqual(output.count("lockstep guard off:"), 1 if limit else 0, output)  # a file of its size is no board

    def test_a_job_runs_on_where_one_rank_alone_has_it(self):
        line = f"LOCKSTEP_GUARD=$((RANK == 0)) exec {sys.executable} {JOBS / 'calls.py'} none"
        code, output = self.torchrun("--no-python", "bash", "-c", line, cold=True, **AWAITED)
        self.assertEqual(code, 0, output)
        self.assertIn("lockstep guard off: not all ranks have it", output)

    def test_hosts_may_have_other_numbers_of_ranks(self):
        where = ["--nnodes", 2, "--master_addr", "127.0.0.1", "--master_port", free_port()]
        jobs = [self.started([*where, "--nproc_per_node", count, "--node_rank", node], [JOBS / "calls.py", "none"], "1", AWAITED, cold=True)
                for node, count in enumerate((1, 2))]
        for job in jobs:
            code, output = self.ended(job, "none")
            self.assertEqual(code, 0, output)
            self.assertNotIn("lockstep guard:", output)

    def test_ranks_of_several_nodes_are_one_job(self):
        said = self.nodes("shape")
        for code, output in said:
            self.assertEqual(code, 1, output)
            self.assertIn("lockstep guard: the job was ended: rank 1 ", output)
            self.assertIn("ranks 0, 2, 3", output)
        for code, output in self.nodes("none"):
            self.assertEqual(code, 0, output)
            self.assertNotIn("lockstep guard", output)

    def test_a_slow_rank_is_told_and_waited_for(self):
        code, output = self.torchrun(JOBS / "calls.py", "slow")
        self.assertEqual(code, 0, output)
        self.assertIn("lockstep guard: notice: rank 1 is busy elsewhere", output)
        self.assertRegex(output, r"rank 1: \d+\.\d s in calls, the others wait for it")

    def test_a_job_without_a_fault_is_left_as_it_is(self):
        results = {}
        warm.ready(*(() if TORCH_ALONE else ("transformers.trainer", "accelerate", "peft")))
        for guard in ("0", "1"):
            folder = self.folder / guard
            for again in range(3):
                folder.mkdir()
                code, output = self.torchrun(JOBS / "healthy.py", folder, guard=guard, cold=guard == "1", **AWAITED)
                if code == 0 or "gloo/transport/tcp/loop.cc" not in output:
                    break  # seen without the guard: Gloo's own thread ends the process when epoll_wait fails
                print(f"guard {guard}: Gloo's loop has failed", flush=True)
                shutil.rmtree(folder)
            self.assertEqual(code, 0, output)
            self.assertNotIn("lockstep guard", output)
            results[guard] = [(folder / f"{rank}.json").read_text() for rank in range(RANKS)]
            calls = json.loads((folder / "0.calls").read_text())
            self.assertEqual(calls["calls"] > 50, guard == "1", calls)
        self.assertEqual(results["0"], results["1"])
        for kind in ("os._exit", "one number"):
            code, output = self.torchrun(JOBS / "calls.py", kind, **AWAITED)
            self.assertEqual(code, 0, output)
            self.assertNotIn("lockstep guard", output)

    def test_a_script_finds_what_lies_beside_it(self):
        place = self.folder / "torch"  # a folder's name makes nobody a library
        place.mkdir()
        (place / "helper_of_job.py").write_text("SIZES = (4, 5)\n")
        name = "finetune_of_a_model_with_a_name_that_is_long_indeed.py"
        (place / name).write_text("import torch, torch.distributed as dist\nfrom helper_of_job import SIZES\ndist.init_process_group('gloo')\n"
                                  "for size in [4] * 20 + [SIZES[dist.get_rank() == 1]]: dist.all_reduce(torch.zeros(size))\n")
        _, output = self.torchrun("-m", "lockstep_guard", place / name, cold=True, **AWAITED)
        self.assertIn("rank 1 sent another shape: all_reduce sum f32[5] beside all_reduce sum f32[4]", output)
        self.assertIn("at finetune_of_a_model_with_a_name_that_is_long~:4", output)

    def test_ranks_that_no_launcher_has_started(self):
        for how in ("env", "tcp", "file", "store"):
            for kind in ("none", "shape"):
                with self.subTest(how=how, kind=kind):
                    folder = self.folder / f"{how} {kind}"
                    folder.mkdir()
                    code, output = self.spawned(how, kind, folder, cold=(how, kind) in (("env", "none"), ("tcp", "shape")))
                    self.assertEqual(code, 0 if kind == "none" else 1, output)
                    said = "lockstep guard: the job was ended: rank 1 sent another shape: all_reduce sum f32[5] beside all_reduce sum f32[3]"
                    self.assertEqual(output.count("lockstep guard"), 0 if kind == "none" else 1, output)
                    self.assertEqual(said in output, kind == "shape", output)

    def test_ranks_that_are_forked_after_a_report_have_each_a_board_of_their_own(self):
        code, output = self.spawned("env", "shape", self.folder, {"REPORT_FIRST": "1"})
        self.assertEqual(code, 1, output)
        self.assertIn("lockstep guard: the job was ended: rank 1 sent another shape: all_reduce sum f32[5] beside all_reduce sum f32[3]", output)

    def test_what_a_launcher_has_left_in_the_environment_is_of_another_job(self):
        of_torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
        for left in ({"LOCAL_RANK": "0"}, of_torchrun):
            for how in ("env", "tcp"):
                with self.subTest(how=how, left=left):
                    code, output = self.spawned(how, "none", self.folder, left, cold=how == "env" and left is of_torchrun)
                    self.assertEqual(code, 0, output)
                    self.assertNotIn("lockstep guard", output)

    def test_a_job_that_is_suspended_as_a_whole_goes_on(self):
        def tree(pid):
            try:
                children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
            except OSError:
                children = []
            return [pid, *(one for child in children for one in tree(child))]

        job = self.started(["--standalone", "--nproc_per_node", RANKS], [JOBS / "calls.py", "for ever"], "1", AWAITED)
        awaited = RANKS
        while awaited > 0:
            heard = job.stdout.readline()
            self.assertNotEqual(heard, "", "it ended by itself")
            awaited -= heard.count("up")
        time.sleep(1)
        for number, pause in ((signal.SIGSTOP, 5), (signal.SIGCONT, 3)):  # Ctrl-Z, and fg
            for pid in tree(job.pid):
                os.kill(pid, number)
            time.sleep(pause)
        self.assertIsNone(job.poll())
        job.terminate()
        _, output = self.ended(job, "suspended")
        self.assertNotIn("lockstep guard", output)

    def test_an_exception_in_a_process_of_a_spawned_job_is_told(self):
        for kind in ("raises", "raises, and aborts"):  # as torch may, when Python leaves
            code, output = self.spawned("env", kind, self.folder, cold=True)
            self.assertEqual(code, 1, output)
            self.assertIn("lockstep guard: error: rank 1: ValueError: bad row 12, at spawned.py:", output)

    def test_a_process_of_a_spawned_job_that_is_killed_is_told_with_the_signal(self):
        """Its parent has asked how it ended before the agent could look."""
        _, output = self.spawned("env", "killed", self.folder)
        self.assertRegex(output, r"lockstep guard: the job was ended: rank 1 (was killed \(SIGKILL\)|is gone)")
        self.assertRegex(re.search("lockstep guard: the job was ended.*", output, re.S)[0], "SIGKILL")

    def test_an_end_that_somebody_wants_is_no_fault_and_leaves_nothing(self):
        # Asleep: the others are in a call, where they hear of a signal only when this rank has gone.
        for kind, line, way in (("for ever", "up", signal.SIGINT), ("asleep", "asleep", signal.SIGINT), ("for ever", "up", signal.SIGTERM),
                                ("for ever", "up", signal.SIGKILL)):
            with self.subTest(way.name, kind=kind):
                job = self.started(["--standalone", "--nproc_per_node", RANKS], [JOBS / "calls.py", kind], "1", AWAITED)
                awaited = 1 if kind == "asleep" else RANKS
                while awaited > 0:
                    heard = job.stdout.readline()
                    self.assertNotEqual(heard, "", "it ended by itself")
                    awaited -= heard.count(line)
                time.sleep(1 if kind == "asleep" else 0)
                (os.killpg if way == signal.SIGINT else os.kill)(job.pid, way)
                _, output = self.ended(job, way.name)
                self.assertNotIn("lockstep guard", output)

    def test_a_job_runs_on_where_the_guard_cannot(self):
        broken = self.folder / "package"
        shutil.copytree(package, broken)
        (broken / "lockstep_guard" / "agent").unlink()
        code, output = self.torchrun(JOBS / "calls.py", "none", PYTHONPATH=str(broken))
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("lockstep guard off:"), 1, output)
        # On the first node alone: nobody waits for what its agent would say.
        (code, output), (other, alone) = self.nodes("none", (broken, None))
        self.assertEqual((code, other), (0, 0), output + alone)
        self.assertEqual(output.count("lockstep guard off:"), 1, output)
        self.assertIn("lockstep guard: notice: node 1 judges its ranks alone: node 0 has no agent", alone)


if __name__ == "__main__":
    main()

"""Signals: who stops a job stops all of it, in every phase, and is told what becomes of it."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from small_job import make_model, make_rows, sft_words
from story import BINARY, Story, environment, finish, free_port, main, start, training_all


def processes_with(words):
    """Numbers of the processes, ranks and agents too, on whose command line all of the words stand."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue  # it ended while we looked
        if line and all(str(word) in line for word in words):
            found.append(int(entry.name))
    return found


def seconds_of_threads(pid):
    """Of the processor, by the name of the thread."""
    spent = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
        except OSError:
            continue  # it ended while we looked
        spent[name] = spent.get(name, 0) + sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return spent


class Stop(Story):
    def wait_for_line(self, process, beginning):
        line = ""
        while not line.startswith(beginning):
            line = process.stdout.readline()
            self.assertNotEqual(line, "", f"it ended before it said {beginning!r}")
        return line

    def wait_until(self, condition, seconds, what):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)

    def begun(self, *command):
        return subprocess.Popen([*map(str, command)], env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def test_a_closed_terminal_does_not_stop_what_nohup_has_started(self):
        model, rows = make_model(self.folder, family="qwen2"), make_rows(self.folder, count=8, images=False)
        for nproc in (1, 2):
            process = self.begun("nohup", BINARY, *training_all(sft_words(model, rows, self.folder / f"nohup-{nproc}", steps=60, nproc=nproc)))
            self.wait_for_line(process, "step ")
            os.killpg(process.pid, signal.SIGHUP)
            done = finish(process)
            self.assertEqual(done.returncode, 0, done.text)
            self.assertIn("step 60/60", done.stdout)

    def test_children_that_were_there_before_stay(self):
        model, rows = make_model(self.folder, family="qwen2"), make_rows(self.folder, count=8, images=False)
        words = training_all(sft_words(model, rows, self.folder / "exec", steps=2, nproc=2))
        pid = self.folder / "pid"
        done = finish(self.begun("bash", "-c", f'sleep 1000 >/dev/null 2>&1 & echo $! > {pid}; exec "$@"', "bash", BINARY, *words))
        self.assertEqual(done.returncode, 0, done.text)
        os.kill(int(pid.read_text()), signal.SIGKILL)  # it is there

    def test_who_stops_a_job_before_its_ranks_listen_is_told_so(self):
        model = make_model(self.folder, family="qwen2")
        rows = make_rows(self.folder, count=8, images=False)
        for signal_sent in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            out = self.folder / f"early-{signal_sent.name}"
            process = start(*sft_words(model, rows, out, steps=100000, nproc=2))
            self.wait_until(lambda: len(processes_with([out])) > 1, 20, "no rank has begun")
            process.send_signal(signal_sent)
            text = "".join(process.communicate(timeout=60))
            self.assertEqual(process.returncode, 130, text)
            self.assertRegex(text, "interrupted|stopping", signal_sent.name)

    def wait_until_all_is_read(self, pid):
        """What a long step needs: it computes for half a second, and its thread that reads does nothing meanwhile."""
        reader, since = None, 0

        def computes_alone():
            nonlocal reader, since
            spent = seconds_of_threads(pid)
            before, reader, rest = reader, spent.pop("loader-0", None), sum(spent.values())
            since = since if reader == before else rest
            return reader is not None and rest - since > 0.5

        self.wait_until(computes_alone, 120, "it does not come to compute")

    def test_a_stopped_demo_leaves_nothing_that_runs(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = start("demo", "--output_dir", self.folder, "--train_rows", 200, "--eval_rows", 20, "--steps", 100000)
            self.wait_for_line(process, "step ")
            self.assertGreaterEqual(len(processes_with(["sft", self.folder])), 3)  # the launcher and two ranks
            os.kill(process.pid, number)  # the demo alone, as `kill` does
            done = finish(process, timeout=30)
            self.assertEqual(done.returncode, 130 if number == signal.SIGTERM else -9, done.text)
            self.wait_until(lambda: not processes_with(["sft", self.folder]), 10, "its children go on")

    def test_a_closed_terminal_and_one_rank_alone_save_before_they_end(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        for ranks in (1, 2):
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                out = self.folder / f"out{ranks}{number}"
                process = start(*sft_words(model, rows, out, steps=100000, save_steps=90000, nproc=ranks))
                self.wait_for_line(process, "step ")
                os.kill(process.pid, number)
                done = finish(process, timeout=30)
                self.assertEqual(done.returncode, 130, done.text)
                self.assertIn("stopping after this step, with a checkpoint", done.stderr)
                saved, = out.glob("checkpoint-*")
                self.assertIn(f"--resume_from_checkpoint {saved}", done.stdout)

    def test_a_stop_in_an_evaluation_keeps_what_was_trained(self):
        """A batch system does not wait for an evaluation to end: it is made when the run goes on."""
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        out = self.folder / "out"
        words = dict(steps=2, eval_steps=1, save_steps=90000, nproc=2)
        for count, told, more in ((40000, "step ", {}), (8000, "answers", {"predict_with_generate": "true", "max_new_tokens": 2})):
            shutil.rmtree(out, ignore_errors=True)
            many = make_rows(self.folder, count=count, images=False, name="many.jsonl")
            process = start(*sft_words(model, rows, out, val_dataset=many, **words, **more))
            self.wait_for_line(process, told)
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGTERM)
            done = finish(process, timeout=60)
            self.assertEqual(done.returncode, 130, done.text)
            self.assertIn("step 1: stopping, so its evaluation is given up; it is made when the run goes on", done.stdout)
            self.assertEqual([path.name for path in out.glob("checkpoint-*")], ["checkpoint-1"], done.text)
        few = make_rows(self.folder, count=8, images=False, name="few.jsonl")
        done = self.lockstep(*sft_words(model, rows, out, val_dataset=few, resume_from_checkpoint="true", **words), expect=0)
        logged = [json.loads(line) for line in (out / "logging.jsonl").read_text().splitlines()]
        self.assertEqual([one["global_step/max_steps"] for one in logged if "eval_loss" in one and "global_step/max_steps" in one], ["1/2", "2/2"], done.text)

    def test_a_rank_that_stands_still_after_a_wish_to_stop_is_named(self):
        """The launcher waits for ranks that save, and would wait for ever."""
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        out = self.folder / "out"
        process = start(*sft_words(model, rows, out, steps=100000, save_steps=90000, nproc=2))
        self.wait_for_line(process, "step ")
        ranks = [pid for pid in processes_with(["sft", out]) if self.started_by(pid, process.pid)]
        os.kill(max(ranks), signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        done = finish(process, timeout=30)
        self.assertEqual(done.returncode, 6, done.text)
        self.assertIn("has been stopped (SIGSTOP)", done.stderr)

    def test_no_step_follows_the_one_in_which_the_wish_came(self):
        """Steps of some seconds: the answer comes at once, and what is saved is the step that was under way."""
        model = make_model(self.folder, "qwen2")
        rows = make_rows(self.folder, count=1000, images=False)
        out = self.folder / "out"
        process = start(*sft_words(model, rows, out, steps=100000, save_steps=90000, per_device_train_batch_size=50,
                                   gradient_accumulation_steps=20))
        step = 0
        while step < 2:
            line = self.wait_for_line(process, "step ")
            step = int(re.match(r"step\s+(\d+)/", line)[1])
        os.kill(process.pid, signal.SIGINT)
        done = finish(process)
        saved, = out.glob("checkpoint-*")
        self.assertLessEqual(int(saved.name.split("-")[1]), step + 1, done.text)
        self.assertEqual(done.returncode, 130, done.text)

    def test_a_second_signal_ends_it_at_once(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, count=40000, images=False)
        out = self.folder / "out"
        process = start(*sft_words(model, rows, out, steps=100000, save_steps=90000, per_device_train_batch_size=50,
                                   gradient_accumulation_steps=400))  # one step an epoch, which no machine ends in a few seconds
        self.wait_for_line(process, "sft ")
        self.wait_until_all_is_read(process.pid)  # a wish that comes before ends it as soon as all is read
        os.kill(process.pid, signal.SIGINT)
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGINT)
        done = finish(process, timeout=15)
        self.assertEqual(done.returncode, 130, done.text)
        self.assertEqual(list(out.glob("checkpoint-*")), [])
        self.assertIn("what was not saved is lost", done.stderr)

    def test_a_rank_that_waits_for_others_obeys_and_its_agent_goes(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            world = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": free_port()}
            process = start(*sft_words(model, rows, self.folder / "out", steps=3), env=world)
            session = lambda: [pid for pid in processes_with(["agent", "--world_size"]) if self.started_by(pid, process.pid)]
            self.wait_until(session, 20, "no agent came")
            agents = session()
            time.sleep(0.5)
            os.kill(process.pid, number)
            done = finish(process, timeout=10)
            if number != signal.SIGKILL:
                self.assertIn("interrupted before the first step; nothing was saved", done.stderr)
            self.assertEqual(done.returncode, -9 if number == signal.SIGKILL else 130, done.text)
            self.wait_until(lambda: not [pid for pid in agents if Path(f"/proc/{pid}/exe").exists()], 10, "the agent stays")

    def test_a_stop_of_another_launchers_rank_is_told_as_one(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        port = free_port()
        ranks = [start(*sft_words(model, rows, self.folder / "out", steps=3),
                       env={"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                 for rank in range(2)]  # the third never comes: there is no first step
        agents = lambda: [pid for pid in processes_with(["agent", "--world_size"]) if self.started_by(pid, ranks[0].pid)]
        self.wait_until(agents, 20, "no agent came")
        time.sleep(2)  # rank 1 has joined it
        os.kill(ranks[1].pid, signal.SIGTERM)
        done = [finish(rank, timeout=20) for rank in ranks]
        for one in done:
            self.assertEqual(one.returncode, 130, one.text)
        said = done[0].stderr + done[1].stderr
        self.assertIn("lockstep sft: rank 1: interrupted before the first step (SIGTERM); nothing was saved", said)
        self.assertNotRegex(said, "is gone|crashed|without a word|error:")

    def test_a_reader_that_goes_does_not_stop_a_run_in_silence(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        process = start(*sft_words(model, rows, self.folder / "out", steps=300, save_steps=300))
        self.wait_for_line(process, "step ")
        process.stdout.close()
        self.assertEqual(process.wait(600), 0)
        said = process.stderr.read()
        process.stderr.close()
        self.assertEqual(said.count("standard output takes no more"), 1, said)
        self.assertTrue((self.folder / "out" / "checkpoint-300").is_dir())

    def test_output_that_is_lost_is_an_error(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        for words in (("eval", "--model", model, "--val_dataset", rows, "--json"), ("inspect", model), ("--help",),
                      ("eval", "--model", model, "--val_dataset", rows, "--nproc", 2)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([str(BINARY), *map(str, words)], env=environment(), stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=60)
            self.assertEqual(done.returncode, 3, f"{words}: {done.stderr}")
            self.assertIn("standard output took not all", done.stderr)

    @staticmethod
    def started_by(pid, parent):
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) == parent
        except OSError:
            return False


if __name__ == "__main__":
    main()

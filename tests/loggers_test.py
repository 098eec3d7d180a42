"""--report_to: trackers of experiments, by stand-ins of their packages that write down what they are told, and programs of one's own."""
import json
import os
import sys
import unittest

from small_job import but_for_pace, make_model, make_rows, records, sft_words
from story import Story, main

# As much of each package as is called; what they get stands in the file TOLD.
STAND_IN = '''
import json, os, sys
def tell(*what):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps(what) + "\\n")
print("a package that prints")
class Run:
    def __init__(self, words=None): self.words = words or {}
    @property
    def url(self):
        if self.words.get("mode") == "offline": raise ValueError("this run is not online")
        return "http://tracker/run"
    def log(self, values): tell("log", values["train/global_step"], values)
    def finish(self, exit_code): tell("finish", exit_code)
    class info: run_id = "r1"
def init(**words):
    tell("init", words)
    return Run(words)
def define_metric(*words, **more): pass
def get_run(): return None
def log(values, step): tell("log", step, values)
def finish(**words): tell("finish", 0 if not words else words["state"])
def set_experiment(name): tell("experiment", name)
def start_run(run_name): tell("init", {"run_name": run_name}); return Run
def log_params(words): tell("params", len(words)); assert len(words) <= 100
def log_metrics(values, step): tell("log", step, values)
def end_run(status): tell("finish", status)
def get_tracking_uri(): return "http://tracker"
'''


class Loggers(Story):
    def setUp(self):
        super().setUp()
        self.model, self.rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        # A python3 that has the packages, first along PATH: as in an environment that is active.
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "python3").write_text(f"#!/bin/sh\nPYTHONPATH='{self.folder / 'packages'}' exec '{sys.executable}' \"$@\"\n")
        (self.folder / "bin" / "python3").chmod(0o755)
        (self.folder / "packages").mkdir()
        self.env = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "TOLD": str(self.folder / "told")}

    def train(self, name, *loggers, expect=0, env=None, **flags):
        out = self.folder / name
        words = sft_words(self.model, self.rows, out, **{"nproc": 2, "device": "cpu", "steps": 4, "save_strategy": "no", **flags})
        at = words.index("--report_to")
        words[at + 1:at + 2] = loggers
        return out, self.lockstep(*words, expect=expect, env={**self.env, **(env or {})}, cwd=self.folder)

    def told(self):
        lines = [json.loads(line) for line in (self.folder / "told").read_text().splitlines()]
        (self.folder / "told").unlink()
        return lines

    def test_trackers_get_the_curves_under_the_usual_names(self):
        for tracker in ("wandb", "swanlab", "mlflow"):
            (self.folder / "packages" / f"{tracker}.py").write_text(STAND_IN)
        for tracker in ("wandb", "swanlab", "mlflow"):
            out, done = self.train(f"out {tracker}", "tensorboard", tracker, val_dataset=self.rows, eval_strategy="steps", eval_steps=2, project="mine",
                                   swanlab_mode="offline", **({} if tracker == "mlflow" else {"run_name": "first"}))
            told = self.told()
            words = next(what[1] for what in told if what[0] == "init")
            if tracker == "mlflow":
                self.assertIn(["experiment", "mine"], told)
                self.assertEqual(words["run_name"], out.name)
                self.assertIn("note: mlflow: http://tracker, run r1", done.stdout)
            else:
                self.assertEqual((words["project"], words["config"]["seed"]), ("mine", 42))
                self.assertEqual(words.get("name", words.get("experiment_name")), "first")
                self.assertEqual(words.get("mode"), "offline" if tracker == "swanlab" else None)
                self.assertEqual("note: wandb: http://tracker/run" in done.stdout, tracker == "wandb")
            expected = records(out)
            found = {what[1]: what[2]["train/loss"] for what in told if what[0] == "log" and "train/loss" in what[2]}
            self.assertEqual(list(found), list(expected))
            for step, loss in found.items():
                self.assertAlmostEqual(loss, expected[step]["loss"], places=6)
            self.assertEqual([what[1] for what in told if what[0] == "log" and "eval/loss" in what[2]], [2, 4])
            self.assertEqual(told[-1], ["finish", "FINISHED" if tracker == "mlflow" else 0])
            self.assertTrue(list((out / "runs").iterdir()), "TensorBoard's file is there beside it")
            self.assertNotIn("a package that prints", done.text)

    def test_a_package_that_is_missing_ends_the_run_before_it_begins(self):
        (self.folder / "packages" / "wandb.py").write_text("raise ImportError('no module named wandb')\n")
        out, done = self.train("out", "wandb", expect=2)
        self.assertIn("--report_to wandb: it has ended with code 1", done.stderr)
        self.assertIn("-m pip install wandb", done.stderr)
        self.assertFalse(out.exists())
        _, done = self.train("out", "comet_ml", expect=2)
        self.assertIn("--report_to comet_ml: expected tensorboard, wandb, swanlab, mlflow, a program of yours", done.stderr)
        _, done = self.train("out", "none", "tensorboard", expect=2)
        self.assertIn("none stands beside others", done.stderr)
        _, done = self.train("out", "./no_logger.py", expect=2)
        self.assertIn("--report_to ./no_logger.py: expected a program, found no file", done.stderr)

    def test_a_tracker_that_breaks_does_not_break_the_run(self):
        (self.folder / "packages" / "wandb.py").write_text(STAND_IN.replace('def log(self, values): tell(', 'def log(self, values): raise OSError("disk full"); tell('))
        out, done = self.train("out", "wandb", steps=20)
        self.assertEqual(max(records(out)), 20)
        self.assertEqual(done.stdout.count("logging.jsonl holds all"), 1)
        self.assertIn("OSError: disk full", done.stdout)

    def test_ranks_end_well_while_a_tracker_still_sends(self):
        program = self.folder / "slow.sh"
        program.write_text("#!/bin/sh\necho ready\ncat > /dev/null\nsleep 4\necho sent\n")
        program.chmod(0o755)
        _, done = self.train("out", "./slow.sh")
        self.assertIn("note: --report_to ./slow.sh is sending what it has; it has a minute for it\n", done.stdout)
        self.assertIn("note: sent\n", done.stdout)
        self.assertEqual(but_for_pace(done.stderr), "")

    def test_a_program_of_ones_own_hears_of_a_run_that_fails(self):
        program = self.folder / "my_logger.sh"
        program.write_text(f"#!/bin/sh\necho ready\necho \"heard by $1\"\ncat > '{self.folder / 'heard'}'\n")
        program.chmod(0o755)
        out, done = self.train("out", "./my_logger.sh me")
        heard = [json.loads(line) for line in (self.folder / "heard").read_text().splitlines()]
        self.assertEqual([line["event"] for line in (heard[0], heard[-1])], ["begin", "end"])
        self.assertEqual((heard[0]["name"], heard[0]["dir"], heard[0]["args"]["max_steps"]), (out.name, str(out), 4))
        self.assertEqual((heard[-1]["outcome"], heard[-1]["exit_code"]), ("done", 0))
        self.assertIn("note: heard by me", done.stdout)
        _, done = self.train("fails", "./my_logger.sh me", expect=None, learning_rate="1e30", steps=20)
        self.assertNotEqual(done.returncode, 0, done.text)
        last = json.loads((self.folder / "heard").read_text().splitlines()[-1])
        self.assertEqual((last["event"], last["exit_code"]), ("end", done.returncode))


if __name__ == "__main__":
    main()

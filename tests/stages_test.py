"""Training in stages: one file, one command, a checkpoint between, and the same command goes on after an interruption."""
import json
import os
import shlex
import shutil
import signal
import time
from pathlib import Path

from small_job import losses, make_model, make_rows, sft_words
from story import Story, finish, main, start

FILE = """
model: {model}
dataset: [{rows}]
output_dir: {out}
torch_dtype: float32
deepspeed: zero3
per_device_train_batch_size: 3
gradient_accumulation_steps: 1
logging_steps: 1
warmup_steps: 1
save_steps: 2
report_to: none
stages:
  - name: projector
    train: projector
    learning_rate: 1e-3
    max_steps: 4
  - name: all
    train: [llm, projector]
    learning_rate: 1e-4
    component_lr: projector=2e-4
    max_steps: 3
"""


def processes_with(path):
    """Of those that run, the ones that have the path in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if any(word.startswith(str(path).encode()) for word in words):
            found.append(words)
    return found


class Stages(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder, count=12)

    def write(self, out="out", text=FILE, name="stages.yaml", **values):
        path = self.folder / name
        path.write_text(text.format(model=self.model, rows=self.rows, out=self.folder / out, **values))
        return path

    def result(self, out="out"):
        """What a staged run leaves that does not depend on when it ran."""
        folder = self.folder / out
        return {"first": losses(folder / "1-projector"), "second": losses(folder / "2-all"),
                "weights": (folder / "2-all" / "checkpoint-3" / "model.safetensors").read_bytes()}

    def record(self, out="out"):
        return [(s["name"], s["finished"], s["checkpoint"]) for s in json.loads((self.folder / out / "stages.json").read_text())["stages"]]

    def test_two_stages_are_two_runs_of_which_the_second_starts_where_the_first_ends(self):
        done = self.lockstep("sft", self.write(), "--nproc", 2, expect=0)
        self.assertIn("stage 1 of 2 (projector) trained projector; frozen llm, vision; 12 rows, learning rate 0.001, zero3", done.stdout)
        self.assertIn("stage 2 of 2 (all) trained llm, projector; frozen vision;", done.stdout)
        self.assertLess(done.stdout.index("stage 2 of 2 (all) trained"), done.stdout.index("step 1/4"), "checked before the first begins")
        self.assertEqual(self.record(), [("projector", True, "1-projector/checkpoint-4"), ("all", True, "2-all/checkpoint-3")])
        by_hand = sft_words(self.model, self.rows, self.folder / "one", steps=4, nproc=2, warmup_steps=1, save_steps=2,
                            train="projector", freeze_vit=None, freeze_aligner=None)
        self.lockstep(*by_hand, expect=0)
        by_hand = sft_words(self.folder / "one" / "checkpoint-4", self.rows, self.folder / "two", steps=3, nproc=2, warmup_steps=1,
                            save_steps=2, train="llm,projector", learning_rate="1e-4", component_lr="projector=2e-4",
                            freeze_vit=None, freeze_aligner=None)
        self.lockstep(*by_hand, expect=0)
        result = self.result()
        self.assertEqual(result["first"], losses(self.folder / "one"))
        self.assertEqual(result["second"], losses(self.folder / "two"))
        self.assertEqual(result["weights"], (self.folder / "two" / "checkpoint-3" / "model.safetensors").read_bytes())
        again = self.lockstep("sft", self.folder / "stages.yaml", "--nproc", 2, expect=2)
        self.assertIn("holds a run in stages already", again.stderr)
        idle = self.lockstep("sft", self.folder / "stages.yaml", "--nproc", 2, "--resume_from_checkpoint", "auto", expect=0)
        self.assertIn("stage 2 of 2 (all) is finished", idle.stdout)
        self.assertNotIn("step 1/", idle.stdout)
        self.assertEqual(self.result(), result)

    def test_json_of_the_same_shape_and_one_rank(self):
        path = self.folder / "stages.json"
        path.write_text(json.dumps({"model": str(self.model), "dataset": str(self.rows), "torch_dtype": "float32", "max_steps": 2,
                                    "save_steps": 2, "stages": [{"name": "text", "no_build": "vision", "train": "llm"},
                                                                {"name": "tower", "train": "vision"}]}))
        done = self.lockstep("sft", path, "--output_dir", self.folder / "out", "--nproc", 1, "--logging_steps", 1, expect=0)
        self.assertIn("stage 1 of 2 (text) trained llm; not built vision, projector", done.stdout)
        self.assertEqual(len(losses(self.folder / "out" / "2-tower")), 2)
        self.assertIn("all 2 stages are finished", done.stdout)

    def test_killed_between_and_within_stages_the_same_command_goes_on(self):
        words = ("sft", self.write("whole"), "--nproc", 2)
        self.lockstep(*words, expect=0)
        whole = self.result("whole")
        # Between: the first stage has ended, its successor has not begun.
        between = self.folder / "between"
        shutil.copytree(self.folder / "whole", between)
        shutil.rmtree(between / "2-all")
        record = json.loads((between / "stages.json").read_text())
        record["stages"][1].update(finished=False, checkpoint="")
        # As if the kill had come before the end of the first stage was written down, and after.
        for known in (False, True):
            record["stages"][0].update(finished=known, checkpoint="1-projector/checkpoint-4" if known else "")
            (between / "stages.json").write_text(json.dumps(record))
            done = self.lockstep(*words, "--output_dir", between, "--resume_from_checkpoint", "auto", expect=0)
            self.assertEqual("stage 1 of 2 (projector) is finished" in done.stdout, known)
            self.assertNotIn("step 1/4", done.stdout)
            self.assertEqual(self.result("between"), whole)
            shutil.rmtree(between / "2-all")
        # Within: the second stage has saved step 2 of 3.
        within = self.folder / "within"
        shutil.copytree(self.folder / "whole", within)
        shutil.rmtree(within / "2-all" / "checkpoint-3")
        record["stages"][0].update(finished=True, checkpoint="1-projector/checkpoint-4")
        (within / "stages.json").write_text(json.dumps(record))
        done = self.lockstep(*words, "--output_dir", within, "--resume_from_checkpoint", "true", expect=0)
        self.assertIn("resumes after step 2", done.stdout)
        self.assertEqual(self.result("within"), whole)

    def test_killed_while_a_stage_trains(self):
        path = self.write("whole")
        self.lockstep("sft", path, "--nproc", 2, expect=0)
        words = ["sft", path, "--nproc", 2, "--output_dir", self.folder / "killed"]
        process = start(*words)
        for line in process.stdout:
            if line.startswith("stage 2 of 2 (all) starts"):
                break
        until = time.monotonic() + 60
        while not (self.folder / "killed" / "2-all" / "logging.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        finish(process)
        until = time.monotonic() + 10
        while (left := processes_with(self.folder / "killed")) and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(left, [], "a rank outlived its launcher")
        self.lockstep(*words, "--resume_from_checkpoint", "auto", expect=0)
        self.assertEqual(self.result("killed"), self.result("whole"))

    def test_a_signal_saves_and_prints_the_command_that_goes_on_with_all_stages(self):
        path = self.write(text=FILE.replace("max_steps: 4", "max_steps: 100000").replace("save_steps: 2", "save_steps: 90000"))
        process = start("sft", path, "--nproc", 2)
        for line in process.stdout:
            if line.startswith("step "):
                break
        os.killpg(process.pid, signal.SIGINT)
        done = finish(process)
        self.assertEqual(done.returncode, 130, done.text)
        self.assertEqual(self.record(), [("projector", False, ""), ("all", False, "")])
        saved = [folder.name for folder in (self.folder / "out" / "1-projector").glob("checkpoint-*")]
        self.assertEqual(len(saved), 1, done.text)
        command = [line for line in done.stdout.splitlines() if line.startswith("next: ")]
        self.assertEqual(command, [f"next: lockstep sft {path} --nproc 2 --resume_from_checkpoint auto"])
        # Fewer steps than are done: the stage ends where it was interrupted, and the next one begins.
        done = self.lockstep(*shlex.split(command[0])[2:], "--max_steps", 1, expect=0)
        self.assertEqual(self.record(), [("projector", True, f"1-projector/{saved[0]}"), ("all", True, "2-all/checkpoint-1")])

    def test_a_slip_in_a_later_stage_shows_before_the_first_begins(self):
        slips = [("train: [llm, projector]", "train: [llm, projecter]", 2, 'found "projecter"'),
                 (FILE[FILE.index("train: [llm"):FILE.index("    max_steps: 3")], "freeze: [llm, vision, projector]\n", 2,
                  "nothing is left to train"),
                 ("component_lr: projector=2e-4", "component_lr: vision=2e-4", 2, "vision is frozen and learns nothing"),
                 ("component_lr: projector=2e-4", "no_build: vision", 2, "projector is not built"),
                 ("component_lr: projector=2e-4", "learning_rat: 1", 2, "did you mean --learning_rate?"),
                 ("component_lr: projector=2e-4", "dataset: gone.jsonl", 3, "gone.jsonl"),
                 ("component_lr: projector=2e-4", "virtual_devices: 2\n    device_map: {{language_modell: 0}}", 2, "language_modell"),
                 ("component_lr: projector=2e-4", "metric: gone.py\n    predict_with_generate: true", 2, "gone.py")]
        for old, new, code, expected in slips:
            done = self.lockstep("sft", self.write(text=FILE.replace(old, new)), "--nproc", 2, expect=code)
            self.assertIn("checking stage 2 (all)", done.stderr)
            self.assertIn(expected, done.stderr)
            self.assertEqual(done.stderr.count("error: "), 1, done.text)
            self.assertFalse((self.folder / "out").exists())
        done = self.lockstep("sft", self.write(text=FILE.replace("max_steps: 4", "max_steps: 4\n    save_strategy: 'no'")), expect=2)
        self.assertIn("checking stage 1 (projector)", done.stderr)
        self.assertIn("the next stage starts from this one's last checkpoint", done.stderr)
        done = self.lockstep("sft", self.write(text=FILE.replace("    train: projector", "    tuner_type: lora")), expect=2)
        self.assertIn("checking stage 1 (projector)", done.stderr)
        self.assertIn("the next stage starts from whole weights, and this one leaves adapters", done.stderr)

    def test_other_launchers_and_verbs_are_refused(self):
        path = self.write()
        ranks = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1234}
        done = self.lockstep("sft", path, env=ranks, expect=2)
        self.assertIn("a run in stages starts its ranks itself", done.stderr)
        done = self.lockstep("eval", path, expect=2)
        self.assertIn("stages are for lockstep sft", done.stderr)

    def test_a_yaml_file_of_flags_is_a_file_of_flags(self):
        flat = FILE.split("stages:")[0]
        done = self.lockstep("sft", self.write(text=flat, name="flat.yaml"), "--max_steps", 2, "--add_version", "false", expect=0)
        self.assertEqual(len(losses(self.folder / "out")), 2, done.text)
        self.lockstep("plan", self.write(text="model: {model}\ntrain: projector\n", name="plan.yml"), expect=0)

    def test_a_failing_stage_says_how_to_go_on(self):
        path = self.write()
        model = self.folder / "out" / "1-projector"
        done = self.lockstep("sft", path, "--nproc", 2, "--save_total_limit", 1, "--max_grad_norm", 1, expect=0)
        self.assertEqual([p.name for p in model.glob("checkpoint-*")], ["checkpoint-4"])
        record = json.loads((self.folder / "out" / "stages.json").read_text())
        record["stages"][1].update(finished=False, checkpoint="")
        (self.folder / "out" / "stages.json").write_text(json.dumps(record))
        shutil.rmtree(self.folder / "out" / "2-all")
        weights = model / "checkpoint-4" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
        words = ("sft", path, "--nproc", 2, "--save_total_limit", 1, "--max_grad_norm", 1, "--resume_from_checkpoint", "auto")
        done = self.lockstep(*words, expect=4)
        self.assertIn("stage 2 of 2 (all) ended with exit code 4; what is finished is kept, and this goes on: lockstep sft", done.stderr)


if __name__ == "__main__":
    main()

"""A training run from the outside: what it prints, what it writes, and that stages and ranks do not change the numbers."""
import json
import shutil

from small_job import but_for_pace, losses, make_model, make_rows, records, sft_words
from story import Story, main


class Training(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder)

    def train(self, name, **flags):
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / name, **flags), expect=0)
        return self.folder / name, done

    def test_twenty_steps_on_two_ranks_write_a_whole_run_folder(self):
        out, done = self.train("out", steps=20, nproc=2, save_steps=10, save_total_limit=1, val_dataset=self.rows,
                               eval_steps=10, predict_with_generate="true", max_new_tokens=4, report_to="tensorboard")
        for name in ("args.json", "plan.json", "logging.jsonl", "report.html"):
            self.assertTrue((out / name).is_file(), name)
        self.assertEqual(len(list((out / "runs").glob("events.out.tfevents.*"))), 1)
        self.assertEqual([path.name for path in out.glob("checkpoint-*")], ["checkpoint-20"])
        curve = losses(out)
        self.assertEqual(sorted(curve), list(range(1, 21)))
        self.assertLess(curve[20], 0.7 * curve[1])
        self.assertEqual(records(out)[1]["learning_rate"], 0.0)
        self.assertIn("step 20/20", done.stdout)
        self.assertIn("[[red</s>]]" if "[[red" in done.stdout else "[[", done.stdout)
        self.assertEqual(but_for_pace(done.stderr), "")

    def test_a_checkpoint_is_a_folder_that_other_verbs_read(self):
        out, _ = self.train("out", steps=4, nproc=2)
        checkpoint = out / "checkpoint-4"
        manifest = json.loads((checkpoint / "lockstep_manifest.json").read_text())
        found = {path.name: path.stat().st_size for path in checkpoint.iterdir() if path.name != "lockstep_manifest.json"}
        self.assertEqual(found, {name: entry["bytes"] for name, entry in manifest["files"].items()})
        for path in self.model.iterdir():
            self.assertIn(path.name, found)
        state = json.loads((checkpoint / "trainer_state.json").read_text())
        self.assertEqual((state["global_step"], state["max_steps"], len(state["log_history"])), (4, 4, 4))
        self.lockstep("inspect", checkpoint, expect=0)
        self.lockstep("eval", "--model", checkpoint, "--val_dataset", self.rows, "--max_new_tokens", 4, expect=0)

    def test_stages_transports_and_recompute_give_the_same_losses_to_the_bit(self):
        first, _ = self.train("zero3", nproc=2)
        expected = losses(first)
        for name, flags in {"zero0": {"deepspeed": "zero0"}, "zero1": {"deepspeed": "zero1"}, "zero2": {"deepspeed": "zero2"},
                            "gloo": {"transport": "gloo"}, "kept": {"gradient_checkpointing": "false"}}.items():
            out, _ = self.train(name, nproc=2, **flags)
            self.assertEqual(losses(out), expected, name)
            weights = "checkpoint-8/model.safetensors"
            self.assertEqual((out / weights).read_bytes(), (first / weights).read_bytes(), name)

    def test_ranks_and_splits_change_nothing_but_the_last_digits(self):
        first, _ = self.train("whole", per_device_train_batch_size=6)
        for name, flags in {"ranks": {"nproc": 3, "per_device_train_batch_size": 2},
                            "accumulated": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}}.items():
            out, _ = self.train(name, **flags)
            for step, loss in losses(out).items():
                self.assertAlmostEqual(loss, losses(first)[step], delta=1e-5, msg=f"{name} step {step}")

    def test_steps_that_train_nothing_do_not_count_in_the_mean_loss(self):
        """Neither in that of the run nor in that of a window, and not after a resume either."""
        rows = self.folder / "some.jsonl"
        with open(rows, "w") as out:
            for i in range(12):
                answer = {"role": "assistant", "content": f"number {i}", "loss": not 3 <= i < 9}
                out.write(json.dumps({"messages": [{"role": "user", "content": f"Say {i}."}, answer]}) + "\n")
        flags = {"dataset": rows, "dataset_shuffle": "false", "logging_steps": 4, "logging_first_step": "false", "save_steps": 2, "steps": 4}
        out, done = self.train("some", **flags)
        self.assertEqual(done.stdout.count("so it changes nothing"), 2, done.text)

        def means():
            logged = [json.loads(line) for line in (out / "logging.jsonl").read_text().splitlines()]
            return [record["loss"] for record in logged if "loss" in record] + [record["train_loss"] for record in logged if "train_loss" in record]

        whole = means()
        self.assertEqual(len(whole), 2, done.text)
        self.assertAlmostEqual(whole[0], whole[1], delta=1e-6)
        shutil.rmtree(out / "checkpoint-4")
        self.train("some", resume_from_checkpoint="true", **flags)
        self.assertEqual(means(), whole)

    def test_every_epoch_sees_every_row(self):
        out, _ = self.train("epochs", steps=-1, num_train_epochs=2, nproc=2, gradient_accumulation_steps=3)
        steps = records(out)
        self.assertEqual(len(steps), 4)  # 24 rows in micro-batches of 6: windows of 3 and 1
        self.assertEqual([steps[i]["samples_seen"] for i in (1, 2, 3, 4)], [18, 24, 42, 48])
        self.assertEqual([steps[i]["epoch"] for i in (2, 4)], [1.0, 2.0])


if __name__ == "__main__":
    main()

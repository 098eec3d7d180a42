"""Interrupted runs go on as if nothing had happened."""
import json
import os
import shlex
import shutil
import signal

from small_job import losses, make_model, make_rows, sft_words
from story import Story, finish, main, start


class Resume(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder)
        self.whole = self.folder / "whole"
        self.words = sft_words(self.model, self.rows, self.whole, steps=10, save_steps=5, logging_steps=2, nproc=2)
        self.lockstep(*self.words, expect=0)

    def resume(self, name, words=(), expect=0, damage=None):
        """Continues a copy of the run folder that has nothing after step 5."""
        out = self.folder / name
        shutil.copytree(self.whole, out)
        shutil.rmtree(out / "checkpoint-10")
        if damage:
            damage(out / "checkpoint-5")
        flags = dict(zip(self.words[1::2], self.words[2::2]))
        flags.update({"--output_dir": out, "--resume_from_checkpoint": "true", **dict(zip(words[0::2], words[1::2]))})
        done = self.lockstep("sft", *(word for pair in flags.items() for word in pair), expect=expect)
        return out, done

    def test_the_same_ranks_continue_to_the_bit(self):
        out, done = self.resume("again")
        self.assertIn("resumes after step 5", done.stdout)
        # A logged loss is the mean of two steps, so step 6 also proves that sums in progress were kept.
        self.assertEqual(losses(out), losses(self.whole))
        for name in ("model.safetensors", "optimizer-00000-of-00002.safetensors", "optimizer-00001-of-00002.safetensors"):
            self.assertEqual((out / "checkpoint-10" / name).read_bytes(), (self.whole / "checkpoint-10" / name).read_bytes(), name)

    def test_a_link_to_a_checkpoint_and_true_as_python_has_it(self):
        for name, word in (("linked", self.folder / "linked" / "last"), ("python", "True")):
            out, done = self.resume(name, ["--resume_from_checkpoint", word], damage=lambda saved: (saved.parent / "last").symlink_to(saved.name))
            self.assertIn("resumes after step 5", done.stdout)
            self.assertEqual(losses(out), losses(self.whole))

    def test_another_stage_continues_to_the_bit(self):
        out, _ = self.resume("zero0", ["--deepspeed", "zero0"])
        self.assertEqual(losses(out), losses(self.whole))

    def test_another_number_of_ranks_continues_within_rounding(self):
        for ranks, rows, stage in ((1, 6, "zero0"), (3, 2, "zero2"), (3, 2, "zero3")):
            out, _ = self.resume(f"{ranks}{stage}", ["--nproc", ranks, "--per_device_train_batch_size", rows, "--deepspeed", stage])
            for step, loss in losses(out).items():
                self.assertAlmostEqual(loss, losses(self.whole)[step], delta=1e-5, msg=f"{ranks} ranks {stage}, step {step}")

    def test_rows_are_neither_lost_nor_repeated_by_another_shape(self):
        """Two epochs of 24 rows, cut after 10 of them at 2 ranks, end at exactly two epochs at any other shape."""
        rows = make_rows(self.folder, name="epochs.jsonl", count=24)
        out = self.folder / "epochs"
        words = sft_words(self.model, rows, out, steps=-1, save_steps=1, save_total_limit=30, nproc=2, num_train_epochs=2,
                          per_device_train_batch_size=5, gradient_accumulation_steps=1)
        self.lockstep(*words, expect=0)
        for ranks, batch, accumulation in ((1, 4, 1), (3, 2, 2), (2, 1, 3)):
            name = f"epochs{ranks}{batch}{accumulation}"
            shutil.copytree(out, self.folder / name)
            for checkpoint in (self.folder / name).glob("checkpoint-*"):
                if checkpoint.name != "checkpoint-1":
                    shutil.rmtree(checkpoint)
            flags = dict(zip(words[1::2], words[2::2]))
            flags.update({"--output_dir": self.folder / name, "--resume_from_checkpoint": "true", "--nproc": ranks,
                          "--per_device_train_batch_size": batch, "--gradient_accumulation_steps": accumulation})
            done = self.lockstep("sft", *(word for pair in flags.items() for word in pair), expect=0)
            self.assertIn("rows a step (was 10)", done.stdout)
            last = max((self.folder / name).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
            state = json.loads((last / "trainer_state.json").read_text())
            self.assertEqual((state["epoch"], state["lockstep"]["samples_seen"]), (2.0, 48), done.text)

    def test_another_order_of_rows_is_refused_with_both_values(self):
        for flag, value, words in (("--seed", 7, ("shuffled by seed 42", "shuffled by seed 7")),
                                   ("--data_seed", 8, ("seed 42", "seed 8")),
                                   ("--dataset_shuffle", "false", ("shuffled by seed 42", "in the order of the files"))):
            _, done = self.resume("order" + flag, [flag, value], expect=2)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_an_edit_of_the_rows_that_keeps_their_size_is_seen(self):
        before = self.rows.read_text()
        self.rows.write_text(before.replace("1", "2", 1) if "1" in before else before.replace("e", "a", 1))
        self.assertEqual(len(before), self.rows.stat().st_size)
        _, done = self.resume("edited", expect=3)
        self.assertIn("trained on other rows", done.stderr)

    def test_another_folder_and_another_model_beside_a_checkpoint_count(self):
        kept = {path: path.stat().st_mtime_ns for path in self.whole.rglob("*")}
        new = self.folder / "new"
        flags = dict(zip(self.words[1::2], self.words[2::2]))
        flags.update({"--output_dir": new, "--resume_from_checkpoint": self.whole / "checkpoint-5"})
        self.lockstep("sft", *(word for pair in flags.items() for word in pair), expect=0)
        self.assertEqual(sorted(path.name for path in new.glob("checkpoint-*")), ["checkpoint-10"])
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.whole.rglob("*") if path.name != ".lock"},
                         {path: time for path, time in kept.items() if path.name != ".lock"})
        other = make_model(self.folder, family="llama")
        flags.update({"--model": other, "--output_dir": self.folder / "newer"})
        done = self.lockstep("sft", *(word for pair in flags.items() for word in pair), expect=2)
        self.assertIn("is of another model than --model", done.stderr)

    def test_a_run_does_not_begin_among_the_checkpoints_of_another(self):
        done = self.lockstep(*self.words, expect=2)
        self.assertIn("holds checkpoint-10 of an earlier run", done.stderr)
        self.assertTrue((self.whole / "checkpoint-10").is_dir())
        words = [*self.words, "--overwrite_output_dir", "true"]
        words[words.index("--max_steps") + 1] = 2
        self.lockstep(*words, expect=0)
        self.assertEqual([path.name for path in self.whole.glob("checkpoint-*")], ["checkpoint-2"])

    def test_a_run_folder_has_one_owner_at_a_time(self):
        out = self.folder / "owned"
        words = sft_words(self.model, self.rows, out, steps=100000, save_steps=90000, nproc=1)
        process = start(*words)
        line = ""
        while not line.startswith("step "):
            line = process.stdout.readline()
            self.assertNotEqual(line, "", "the run ended before its first step")
        done = self.lockstep(*words, expect=2)
        self.assertIn("another run writes in", done.stderr)
        os.killpg(process.pid, signal.SIGKILL)
        finish(process)
        words[words.index("--max_steps") + 1] = 2
        self.lockstep(*words, expect=0)

    def test_the_best_checkpoint_names_itself(self):
        words = sft_words(self.model, self.rows, self.folder / "best", steps=2, save_steps=2, nproc=1,
                          val_dataset=self.rows, eval_steps=2)
        self.lockstep(*words, expect=0)
        saved = self.folder / "best" / "checkpoint-2"
        self.assertEqual(json.loads((saved / "trainer_state.json").read_text())["best_model_checkpoint"], str(saved))

    def test_the_best_checkpoint_is_known_wherever_the_folder_stands(self):
        """By its name: a run that goes on under another spelling of its folder does not remove it."""
        flags = {"nproc": 1, "save_steps": 2, "eval_steps": 2, "val_dataset": self.rows, "save_total_limit": 2, "load_best_model_at_end": "true",
                 "create_checkpoint_symlink": "true", "greater_is_better": "true"}  # so that the first evaluation is the best
        self.lockstep(*sft_words(self.model, self.rows, "first", steps=6, **flags), cwd=self.folder, expect=0)

        def resumed(name, resume, output_dir, cwd):
            shutil.copytree(self.folder / "first", self.folder / name, symlinks=True)
            words = sft_words(self.model, self.rows, output_dir, steps=10, resume_from_checkpoint=resume, **flags)
            done = self.lockstep(*words, cwd=cwd, expect=0)
            return self.folder / name, done, shlex.split(done.stdout.split("next: ")[1].splitlines()[0])[-1]

        for name, resume, output_dir, cwd in (("absolute", self.folder / "absolute" / "checkpoint-6", "absolute", self.folder),
                                              ("within", "checkpoint-6", ".", self.folder / "within"),
                                              ("renamed", "true", self.folder / "renamed", None)):
            with self.subTest(name):
                out, done, best = resumed(name, resume, output_dir, cwd)
                self.assertEqual(sorted(path.name for path in out.glob("checkpoint-*")), ["checkpoint-10", "checkpoint-2"], done.text)
                self.assertEqual(((cwd or self.folder) / best).resolve(), out / "checkpoint-2", done.text)
                self.assertEqual((os.readlink(out / "best"), os.readlink(out / "last")), ("checkpoint-2", "checkpoint-10"))
        with self.subTest("in another folder"):
            _, done, best = resumed("left", self.folder / "left" / "checkpoint-6", self.folder / "new", None)
            self.assertEqual(sorted(path.name for path in (self.folder / "new").glob("checkpoint-*")), ["checkpoint-10", "checkpoint-8"])
            self.assertEqual(((self.folder / "new" / "best").resolve(), best), (self.folder / "left" / "checkpoint-2", str(self.folder / "left" / "checkpoint-2")), done.text)
        with self.subTest("gone"):
            shutil.rmtree(self.folder / "first" / "checkpoint-2")
            out, done, best = resumed("gone", "true", self.folder / "gone", None)
            self.assertIn("of step 2, is no longer beside", done.stdout)
            self.assertEqual(best, str(out / "checkpoint-8"), done.text)

    def test_bf16_masters_and_moments_are_kept(self):
        words = sft_words(self.model, self.rows, self.folder / "bf16", steps=6, save_steps=3, nproc=2, torch_dtype="bfloat16")
        self.lockstep(*words, expect=0)
        before = losses(self.folder / "bf16")
        shutil.rmtree(self.folder / "bf16" / "checkpoint-6")
        self.lockstep(*words, "--resume_from_checkpoint", self.folder / "bf16" / "checkpoint-3", expect=0)
        self.assertEqual(losses(self.folder / "bf16"), before)

    def test_a_run_with_nothing_left_to_do_names_the_checkpoint_that_it_has(self):
        flags = {"nproc": 1, "save_steps": 3, "eval_steps": 3, "val_dataset": self.rows, "create_checkpoint_symlink": "true"}
        out = self.folder / "done"
        self.lockstep(*sft_words(self.model, self.rows, out, steps=6, **flags), expect=0)
        best = os.readlink(out / "best")
        for steps in (6, 4):
            for link in ("last", "best"):
                (out / link).unlink()
            done = self.lockstep(*sft_words(self.model, self.rows, out, steps=steps, resume_from_checkpoint="true", **flags), expect=0)
            self.assertIn(f"the checkpoint has 6 steps already, of {steps} in all: nothing is left to train", done.stdout)
            self.assertNotIn("come next", done.stdout)
            self.assertIn(f"last checkpoint: {out / 'checkpoint-6'}\n", done.stdout)
            self.assertIn(f"next: lockstep infer --model {out / 'checkpoint-6'}\n", done.stdout)
            self.assertEqual((os.readlink(out / "last"), os.readlink(out / "best")), ("checkpoint-6", best))
            final = json.loads((out / "logging.jsonl").read_text().splitlines()[-1])
            self.assertEqual((final["last_model_checkpoint"], final["best_model_checkpoint"]), (str(out / "checkpoint-6"), str(out / best)))

    def test_a_damaged_checkpoint_is_named(self):
        def cut(checkpoint):
            path = checkpoint / "optimizer-00001-of-00002.safetensors"
            path.write_bytes(path.read_bytes()[:-1])

        def flip(checkpoint):
            path = checkpoint / "optimizer-00000-of-00002.safetensors"
            data = bytearray(path.read_bytes())
            data[-9] ^= 1
            path.write_bytes(data)

        for name, damage, part in (("cut", cut, "bytes (manifest), found"), ("flip", flip, "xxh64")):
            out = self.folder / name / "checkpoint-5"
            _, done = self.resume(name, ["--resume_from_checkpoint", out], expect=4, damage=damage)
            self.assertIn("optimizer-0000", done.stderr)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stderr.count("error:"), 1, done.text)

    def test_a_damaged_newest_checkpoint_is_skipped_for_the_one_before(self):
        out = self.folder / "older"
        shutil.copytree(self.whole, out)
        (out / "checkpoint-10" / "config.json").unlink()
        flags = dict(zip(self.words[1::2], self.words[2::2]))
        flags.update({"--output_dir": out, "--resume_from_checkpoint": "true"})
        done = self.lockstep("sft", *(word for pair in flags.items() for word in pair), expect=0)
        self.assertIn("skipped a damaged checkpoint", done.stdout)
        self.assertIn("resumes after step 5", done.stdout)
        self.assertEqual(losses(out), losses(self.whole))

    def test_a_damaged_checkpoint_takes_no_place_of_those_that_are_kept(self):
        weights = self.whole / "checkpoint-10" / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-9] ^= 1  # its size is right: what the resume has found must be remembered
        weights.write_bytes(data)
        words = [*self.words, "--resume_from_checkpoint", "true", "--save_total_limit", 2]
        for flag, value in (("--max_steps", 7), ("--save_steps", 1)):
            words[words.index(flag) + 1] = value
        done = self.lockstep(*words, expect=0)
        names = sorted(path.name for path in self.whole.glob("checkpoint-*"))
        self.assertEqual(names, ["checkpoint-10", "checkpoint-6", "checkpoint-7"], done.text)

    def test_damaged_checkpoints_are_not_begun_over(self):
        """auto begins afresh where there are no checkpoints, not where none of those that there are is whole."""
        out = self.folder / "whole"
        (out / "checkpoint-10" / "lockstep_manifest.json").unlink()
        (out / "checkpoint-5" / "config.json").unlink()
        kept = {path: path.stat().st_mtime_ns for path in out.glob("checkpoint-*/*")}
        for resume, more in (("auto", []), ("true", []), ("true", ["--overwrite_output_dir", "true"])):
            done = self.lockstep(*self.words, "--resume_from_checkpoint", resume, *more, expect=4)
            for said in ("holds 2 checkpoints, none of them whole", "checkpoint-10: expected lockstep_manifest.json, found none",
                         "checkpoint-5/config.json: expected a file of", "--overwrite_output_dir true", "another --output_dir"):
                self.assertIn(said, done.stderr)
            self.assertEqual(done.stderr.count("error:"), 1, done.text)
        self.assertEqual({path: path.stat().st_mtime_ns for path in out.glob("checkpoint-*/*")}, kept)
        versioned = ["true" if before == "--add_version" else word for before, word in zip(["", *self.words], self.words)]
        versioned[versioned.index("--max_steps") + 1] = 1
        done = self.lockstep(*versioned, "--resume_from_checkpoint", "auto", expect=0)  # in a folder of its own
        self.assertIn("skipped a damaged checkpoint", done.stdout)
        shutil.rmtree(next(out.glob("v0-*")))
        self.assertEqual({path: path.stat().st_mtime_ns for path in out.glob("checkpoint-*/*")}, kept)
        words = [*self.words, "--resume_from_checkpoint", "auto", "--overwrite_output_dir", "true"]
        words[words.index("--max_steps") + 1] = 2
        done = self.lockstep(*words, expect=0)
        self.assertIn("this run begins afresh", done.stdout)
        self.assertEqual([path.name for path in out.glob("checkpoint-*")], ["checkpoint-2"])

    def test_a_model_card_does_not_decide_whether_a_checkpoint_is_whole(self):
        out = self.folder / "adapters"
        words = sft_words(self.model, self.rows, out, steps=2, save_steps=2, nproc=1, tuner_type="lora")
        self.lockstep(*words, expect=0)
        (out / "checkpoint-2" / "README.md").write_text("Trained on the rows of May.")
        words[words.index("--max_steps") + 1] = 3
        done = self.lockstep(*words, "--resume_from_checkpoint", "auto", expect=0)
        self.assertIn("resumes after step 2", done.stdout)

    def test_a_signal_saves_and_prints_the_command_that_goes_on(self):
        out = self.folder / "stopped"
        words = sft_words(self.model, self.rows, out, steps=100000, save_steps=90000, nproc=2)
        for number in (signal.SIGINT, signal.SIGTERM):
            process = start(*words)
            lines = []
            while not (lines and lines[-1].startswith("step ")):
                lines.append(process.stdout.readline())
                self.assertNotEqual(lines[-1], "", "the run ended before its first step")
            os.killpg(process.pid, number)
            done = finish(process)
            self.assertEqual(done.returncode, 130, done.text)
            command = [line for line in done.stdout.splitlines() if line.startswith("next: ")][0]
            words = shlex.split(command)[2:]
            self.assertTrue((out / words[-1].split("/")[-1] / "lockstep_manifest.json").is_file(), done.text)
        self.assertIn("resumes after step", "".join(lines))


if __name__ == "__main__":
    main()

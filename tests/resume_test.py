"""Interrupted runs go on as if nothing had happened."""
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

    def test_another_stage_continues_to_the_bit(self):
        out, _ = self.resume("zero0", ["--deepspeed", "zero0"])
        self.assertEqual(losses(out), losses(self.whole))

    def test_another_number_of_ranks_continues_within_rounding(self):
        for ranks, rows, stage in ((1, 6, "zero0"), (3, 2, "zero2"), (3, 2, "zero3")):
            out, _ = self.resume(f"{ranks}{stage}", ["--nproc", ranks, "--per_device_train_batch_size", rows, "--deepspeed", stage])
            for step, loss in losses(out).items():
                self.assertAlmostEqual(loss, losses(self.whole)[step], delta=1e-5, msg=f"{ranks} ranks {stage}, step {step}")

    def test_bf16_masters_and_moments_are_kept(self):
        words = sft_words(self.model, self.rows, self.folder / "bf16", steps=6, save_steps=3, nproc=2, torch_dtype="bfloat16")
        self.lockstep(*words, expect=0)
        before = losses(self.folder / "bf16")
        shutil.rmtree(self.folder / "bf16" / "checkpoint-6")
        self.lockstep(*words, "--resume_from_checkpoint", self.folder / "bf16" / "checkpoint-3", expect=0)
        self.assertEqual(losses(self.folder / "bf16"), before)

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

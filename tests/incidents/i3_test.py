"""Incident I3: one card full, the others half empty; or memory that grows until the job dies. Devices are used evenly, in
bytes; what was predicted is what is measured; a limit is kept to, and what does not fit is said before it is tried."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_job import losses, make_model, make_rows, sft_words  # noqa: E402
from story import ROOT, Story, main  # noqa: E402


class UnevenMemory(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder)

    def words(self, name, **flags):
        given = {"steps": 3, "save_strategy": "no", "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, **flags}
        return sft_words(self.model, self.rows, self.folder / name, **given)

    def train(self, name, *extra, **flags):
        done = self.lockstep(*self.words(name, **flags), *extra)
        self.assertEqual(done.returncode, 0, done.text)
        return done

    def predicted(self, name):
        return json.loads((self.folder / name / "plan.json").read_text())["memory"]

    def measured(self, name):
        return json.loads((self.folder / name / "memory.json").read_text())

    def test_devices_are_used_evenly_and_as_predicted(self):
        for devices in (2, 3, 4):
            self.train(f"on-{devices}", virtual_devices=devices, device_map="auto", gradient_accumulation_steps=4)
            peaks = [device["peak"] for device in self.predicted(f"on-{devices}")["devices"]]
            self.assertLessEqual(max(peaks) / min(peaks), 1.10)
            for rank in self.measured(f"on-{devices}")["ranks"]:
                found = [device["peak"] for device in rank["since_start"]["devices"][:devices]]
                self.assertLessEqual(max(found) / min(found), 1.10 * 1.05)
                for said, was in zip(peaks, found):
                    self.assertLessEqual(was, 1.02 * said)

    def test_the_reports_own_model_at_its_own_size(self):
        """InternVL2.5-26B: a tower of 45 layers before 48 that are three times as large."""
        model = ROOT / "configs" / "InternVL2.5-26B"
        for devices in (2, 4, 8):
            done = self.lockstep("plan", "--model", model, "--device_map", "auto", "--virtual_devices", devices, "--nproc", 1, "--json", expect=0)
            peaks = [device["peak"] for device in json.loads(done.stdout)["memory"]["devices"]]
            self.assertEqual(len(peaks), devices)
            self.assertLessEqual(max(peaks) / min(peaks), 1.10)

    def test_zero3_by_one_word_needs_less_and_gives_the_same_losses(self):
        peaks = {}
        for stage in ("zero0", "zero1", "zero2", "zero3"):
            self.train(stage, "--nproc", 2, deepspeed=stage, virtual_devices=1)
            peaks[stage] = [max(device["peak"] for device in rank["since_start"]["devices"][:1]) for rank in self.measured(stage)["ranks"]]
        for stage in ("zero1", "zero2", "zero3"):
            self.assertEqual(losses(self.folder / stage), losses(self.folder / "zero0"), stage)
        self.assertLess(max(peaks["zero2"]), max(peaks["zero0"]))
        self.assertLess(max(peaks["zero3"]), max(peaks["zero2"]))

    def test_a_limit_is_kept_to_by_running_batches_in_parts(self):
        self.train("free", virtual_devices=1)
        rows_alone = dict(per_device_train_batch_size=1, gradient_accumulation_steps=8)
        self.train("alone", virtual_devices=1, **rows_alone)
        free, alone = (self.predicted(name)["devices"][0]["peak"] for name in ("free", "alone"))
        limit = (free + alone) // 2
        done = self.train("limited", virtual_devices=1, memory_limit=limit)
        self.assertIn("run in parts", done.text)
        whole, parts = losses(self.folder / "free"), losses(self.folder / "limited")
        for step in whole:
            self.assertAlmostEqual(parts[step], whole[step], delta=1e-5 * abs(whole[step]))
        for rank in self.measured("limited")["ranks"]:
            self.assertLessEqual(rank["since_start"]["devices"][0]["peak"], limit)

    def test_two_ranks_split_each_their_own_batches(self):
        self.train("free", "--nproc", 2, virtual_devices=1, deepspeed="zero2")
        limit = int(self.predicted("free")["devices"][0]["peak"] * 0.98)
        self.train("limited", "--nproc", 2, virtual_devices=1, deepspeed="zero2", memory_limit=limit)
        whole, parts = losses(self.folder / "free"), losses(self.folder / "limited")
        for step in whole:
            self.assertAlmostEqual(parts[step], whole[step], delta=1e-5 * abs(whole[step]))

    def test_what_cannot_fit_is_refused_with_the_table_before_anything_is_loaded(self):
        done = self.lockstep(*self.words("refused", virtual_devices=1, memory_limit="1MiB"))
        self.assertEqual(done.returncode, 5, done.text)
        for word in ("parameters", "optimizer", "activations", "lockstep plan"):
            self.assertIn(word, done.text)
        self.assertFalse((self.folder / "refused").exists())

    def test_a_row_that_fits_nowhere_is_named_and_skipped_or_stops_a_strict_run(self):
        self.train("free", virtual_devices=1, per_device_train_batch_size=1)
        limit = int(self.predicted("free")["devices"][0]["peak"] * 1.01)
        with open(self.rows, "a") as out:
            out.write(json.dumps({"query": "long " * 600, "response": "yes"}) + "\n")
        flags = dict(virtual_devices=1, memory_limit=limit, per_device_train_batch_size=1, steps=25)
        done = self.train("skipped", **flags)
        self.assertIn("1 of 25 rows do not fit alone", done.text)
        self.assertIn("rows.jsonl:25: ", done.text)
        self.assertIn("tokens and 0 media need more memory", done.text)
        done = self.lockstep(*self.words("strict", strict="true", **flags))
        self.assertEqual(done.returncode, 5, done.text)
        self.assertIn("1 of the 25 rows", done.text)
        self.assertFalse((self.folder / "strict").exists())


if __name__ == "__main__":
    main()

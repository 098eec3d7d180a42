"""Incident I2: "tensors on different devices". Several devices a rank, data parallel and model parallel mixed: where
every block stands is planned, shown before anything is loaded, and the numbers are those of one device."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_job import losses, make_model, make_rows, sft_words  # noqa: E402
from story import Story, main  # noqa: E402


class DifferentDevices(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder)

    def train(self, name, nproc=1, **flags):
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / name, steps=3, save_strategy="no",
                                        gradient_accumulation_steps=4, per_device_train_batch_size=1, **flags),
                             *(["--nproc", nproc] if nproc > 1 else []))
        self.assertEqual(done.returncode, 0, done.text)
        return losses(self.folder / name)

    def expect_same(self, got, wanted):
        self.assertEqual(got.keys(), wanted.keys())
        for step in wanted:
            self.assertLessEqual(abs(got[step] - wanted[step]), 1e-6 * abs(wanted[step]), f"step {step}")

    def test_split_over_devices_the_losses_are_those_of_one(self):
        for nproc in (1, 2):
            one = self.train(f"one-{nproc}", nproc)
            for devices in (2, 4):
                for extra in ({}, {"offload": "optimizer"}, {"offload": "params,optimizer", "deepspeed": "zero2"}):
                    name = f"{nproc}-{devices}-{'-'.join(extra.values())}"
                    self.expect_same(self.train(name, nproc, virtual_devices=devices, device_map="auto", **extra), one)

    def test_a_map_of_a_persons_own_in_accelerates_form(self):
        one = self.train("one")
        file = self.folder / "map.json"
        file.write_text(json.dumps({"": "cuda:1", "vision_tower": 0, "language_model.model.layers.0": "virtual:0",
                                    "language_model.lm_head": 0}))
        self.expect_same(self.train("mapped", virtual_devices=2, device_map=file), one)
        plan = json.loads((self.folder / "mapped" / "plan.json").read_text())
        self.assertEqual({step["device"] for step in plan["steps"]}, {0, 1})

    def test_blocks_on_the_cpu_beside_devices(self):
        one = self.train("one")
        file = self.folder / "map.json"
        file.write_text(json.dumps({"": 0, "language_model.lm_head": "cpu"}))
        self.expect_same(self.train("mapped", virtual_devices=1, device_map=file), one)

    def test_a_map_that_does_not_fit_the_model_is_refused_before_anything_is_loaded(self):
        for text, expected in ((json.dumps({"language_model.model.layer.0": 0, "": 1}), "language_model.model.layers.0"),
                               (json.dumps({"vision_tower": 0}), "language_model"),
                               (json.dumps({"": 7}), "7")):
            done = self.lockstep(*sft_words(self.model, self.rows, self.folder / "refused", virtual_devices=2,
                                            device_map=text))
            self.assertEqual(done.returncode, 2, done.text)
            self.assertIn(expected, done.text)
            self.assertFalse((self.folder / "refused").exists())

    def test_every_tensor_that_crosses_is_told_on_request(self):
        log = self.folder / "crossings.jsonl"
        self.train("logged", virtual_devices=2, device_map="auto", device_log=log, debug_sync=None)
        crossings = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertTrue(crossings)
        for crossing in crossings:
            self.assertEqual(set(crossing), {"tensor", "block", "bytes", "from", "to", "seconds", "gradient", "time"})
        self.assertIn(("virtual:0", "virtual:1"), {(c["from"], c["to"]) for c in crossings})
        self.assertIn(("virtual:1", "virtual:0"), {(c["from"], c["to"]) for c in crossings if c["gradient"]})

    def test_answers_and_embeddings_are_the_same_over_devices(self):
        texts = {}
        for name, extra in (("one", []), ("two", ["--virtual_devices", 2, "--device_map", "balanced"])):
            out = self.folder / f"{name}.jsonl"
            done = self.lockstep("infer", "--model", self.model, "--input", self.rows, "--output", out,
                                 "--max_new_tokens", 5, *extra)
            self.assertEqual(done.returncode, 0, done.text)
            texts[name] = [json.loads(line)["response"] for line in out.read_text().splitlines()]
        self.assertEqual(texts["one"], texts["two"])


if __name__ == "__main__":
    main()

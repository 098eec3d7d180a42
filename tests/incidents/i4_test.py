"""Incident I4: a run that worked with zero2 failed with zero3, because a component was built and never placed.

Here the vision tower of LLaVA is the component that is trained, frozen, or not built at all.
"""
import json
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from small_job import losses, make_model, make_rows, sft_words, wav  # noqa: E402
from story import FIXTURES, Story, main  # noqa: E402

STAGES = ("zero0", "zero1", "zero2", "zero3")
TOWER = ("vision_tower.", "multi_modal_projector.")


def tensors(folder):
    """Every tensor of a folder of safetensors, as (dtype, shape, bytes) by name."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        if path.name.startswith("optimizer"):
            continue
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end]
    return found


class OneWord(Story):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        keep = tempfile.TemporaryDirectory(prefix="lockstep_i4_")
        cls.addClassCleanup(keep.cleanup)
        cls.shared = Path(keep.name)
        cls.model = make_model(cls.shared)
        cls.mixed = make_rows(cls.shared, count=12)
        cls.text = make_rows(cls.shared, count=12, images=False, name="text.jsonl")

    def train(self, name, rows, expect=0, **flags):
        """Three steps on two ranks; without ms-swift's switches unless they are given."""
        flags = {"freeze_vit": None, "freeze_aligner": None, "save_steps": 3, **flags}
        words = sft_words(self.model, rows, self.folder / name, steps=3, nproc=2, **flags)
        return self.lockstep(*words, expect=expect)

    def plan(self, *words, expect=0):
        return self.lockstep("plan", "--model", self.model, *words, expect=expect)

    def planned(self, *words):
        """The components by name, and the memory of the one device."""
        plan = json.loads(self.plan("--world", 2, "--json", "--dataset", self.text, *words).stdout)
        return {row["component"]: row for row in plan["components"]}, plan["memory"]["devices"][0]

    def test_zero2_to_zero3_is_one_word_however_the_tower_is_used(self):
        jobs = {"trained": (self.mixed, {"train": "llm,vision,projector"}),
                "frozen": (self.mixed, {"train": "llm,projector", "freeze": "vision"}),
                "not built": (self.text, {"no_build": "vision"})}
        for use, (rows, flags) in jobs.items():
            seen = {}
            for stage in STAGES:
                self.train(f"{use} {stage}", rows, deepspeed=stage, **flags)
                seen[stage] = losses(self.folder / f"{use} {stage}")
            self.assertEqual(len(seen["zero2"]), 3)
            for stage in STAGES:
                self.assertEqual(seen[stage], seen["zero2"], f"{use}, {stage}")

    def test_a_text_run_without_the_tower_is_the_run_with_it(self):
        self.train("frozen", self.text, train="llm")
        done = self.train("unbuilt", self.text, no_build="vision")
        self.assertEqual(losses(self.folder / "unbuilt"), losses(self.folder / "frozen"))
        self.assertIn("vision and projector are not built (--no_build vision): checkpoints keep their tensors", done.stdout)
        peaks = [max(peak["measured"] for peak in json.loads((self.folder / name / "memory.json").read_text())["peaks"])
                 for name in ("frozen", "unbuilt")]
        held, _ = self.planned("--train", "llm")
        self.assertEqual(peaks[0] - peaks[1], held["vision"]["held"]["total"] + held["projector"]["held"]["total"], "measured")
        whole, before = tensors(self.folder / "frozen" / "checkpoint-3"), tensors(self.model)
        unbuilt = tensors(self.folder / "unbuilt" / "checkpoint-3")
        self.assertEqual(unbuilt, whole)
        carried = [name for name in before if name.startswith(TOWER)]
        self.assertGreater(len(carried), 10)
        for name in carried:
            self.assertEqual(unbuilt[name], before[name], name)
        changed = [name for name in before if not name.startswith(TOWER) and unbuilt[name] != before[name]]
        self.assertGreater(len(changed), 10)
        for path in self.model.iterdir():
            if path.suffix != ".safetensors" and path.name != "config.json":
                self.assertEqual((self.folder / "unbuilt" / "checkpoint-3" / path.name).read_bytes(), path.read_bytes(), path.name)

    def test_what_is_carried_through_keeps_its_dtype(self):
        self.train("bf16", self.text, no_build="vision", torch_dtype="bfloat16")
        saved, before = tensors(self.folder / "bf16" / "checkpoint-3"), tensors(self.model)
        for name, tensor in saved.items():
            if name.startswith(TOWER):
                self.assertEqual(tensor, before[name], name)
            else:
                self.assertEqual(tensor[0], "BF16", name)

    def test_an_unbuilt_component_costs_no_byte(self):
        for stage in STAGES:
            frozen, with_tower = self.planned("--train", "llm", "--deepspeed", stage)
            unbuilt, without = self.planned("--no_build", "vision", "--deepspeed", stage)
            self.assertEqual({name: row["role"] for name, row in frozen.items()},
                             {"llm": "trained", "vision": "frozen", "projector": "frozen"})
            self.assertEqual({name: row["role"] for name, row in unbuilt.items()},
                             {"llm": "trained", "vision": "not built", "projector": "not built"})
            self.assertEqual(unbuilt["llm"], frozen["llm"])
            for name in ("vision", "projector"):
                row = frozen[name]
                self.assertEqual(unbuilt[name]["held"]["total"], 0)
                self.assertEqual(unbuilt[name]["params"], row["params"])
                self.assertEqual((row["held"]["optimizer"], row["held"]["gradients"], row["held"]["master"]), (0, 0, 0))
                share = 2 if stage == "zero3" else 1
                self.assertGreaterEqual(row["held"]["total"], row["weight_bytes"] // share)
            tower = sum(frozen[name]["held"]["total"] for name in ("vision", "projector"))
            for figure in ("alive", "peak"):
                self.assertEqual(with_tower[figure] - without[figure], tower, f"{figure}, {stage}")
        text = self.plan("--no_build", "vision", "--world", 2).stdout
        self.assertIn("--no_build names it; a checkpoint that is saved keeps its tensors as they are", text)
        self.assertIn("it has nothing to read without what --no_build names", text)

    def test_contradictions_are_refused_before_weights_are_read(self):
        weights = self.model / "model.safetensors"
        cases = [
            (("--train", "vision,llm", "--no_build", "vision"), "--train vision,llm: vision is not built (--no_build vision"),
            (("--train", "llm", "--freeze", "llm"), "contradict each other about llm"),
            (("--train", "llm,talker"), "expected components of this llava model (llm, vision, projector), found talker"),
            (("--train", "llm,voice"), 'expected a list of llm, vision, projector, audio, audio_projector, talker, found "voice"'),
            (("--no_build", "llm"), "the language model cannot be left out"),
            (("--no_build", "projector"), "nobody would read what vision computes then"),
            (("--freeze", "llm,vision,projector"), "nothing is left to train"),
            (("--vit_lr", "1e-5"), "--vit_lr 1e-5: vision is frozen and learns nothing"),
            (("--train", "llm,projector", "--no_build", "vision"), "projector is not built"),
        ]
        data = weights.read_bytes()
        header = data[:8 + struct.unpack("<Q", data[:8])[0]]
        broken = self.folder / "broken"  # a header that promises tensors, and nothing behind it that could be read
        broken.mkdir()
        for path in self.model.iterdir():
            if path != weights:
                (broken / path.name).write_bytes(path.read_bytes())
        with open(broken / weights.name, "wb") as file:
            file.write(header)
            file.truncate(len(data))
        for nproc in (1, 2):
            for words, expected in cases:
                done = self.lockstep("sft", "--model", broken, "--dataset", self.mixed, "--output_dir", self.folder / "out",
                                     "--nproc", nproc, *words, expect=2)
                self.assertIn(expected, done.stderr, words)
                self.assertEqual(done.stderr.count("error: "), 1, done.text)
                self.assertFalse((self.folder / "out").exists())
        for words, expected in cases[:6]:
            self.assertIn(expected, self.plan(*words, expect=2).stderr)

    def test_a_model_without_a_tower_says_so(self):
        text = make_model(self.folder, family="qwen2")
        for words in (("--no_build", "vision"), ("--train", "llm,vision")):
            done = self.lockstep("plan", "--model", text, *words, expect=2)
            self.assertIn("expected components of this qwen2 model (llm), found vision", done.stderr)

    def test_rows_with_pictures_are_named_before_and_while_training(self):
        done = self.train("mixed", self.mixed, no_build="vision")
        notice = f"8 of 12 rows that were looked at have media (the first: {self.mixed}:1) and are left out"
        self.assertLess(done.stdout.index(notice), done.stdout.index("step 1/3"))
        self.assertIn("expected a row of text alone, found 1 image: vision and projector are not built", done.stdout)
        strict = self.train("strict", self.mixed, expect=3, no_build="vision", strict="true")
        self.assertIn("expected a row of text alone, found 1 image", strict.stderr)
        self.assertIn("leave --no_build out, or take such rows out of the data", strict.stderr)
        pictures = self.folder / "pictures.jsonl"
        pictures.write_text("".join(line for line in self.mixed.read_text().splitlines(True) if "images" in line))
        for picture in self.shared.glob("*.png"):
            (self.folder / picture.name).write_bytes(picture.read_bytes())
        none = self.train("none", pictures, expect=3, no_build="vision")
        self.assertIn("expected a row of text alone, found 1 image: vision and projector are not built", none.stderr)
        none = self.lockstep("eval", "--model", self.model, "--val_dataset", pictures, "--no_build", "vision", expect=3)
        self.assertIn(f"none of the 8 rows can be used: all have media (the first: {pictures}:1)", none.stderr)

    def test_every_verb_leaves_the_tower_out(self):
        words = ("--model", self.model, "--no_build", "vision", "--nproc", 2)
        done = self.lockstep("eval", *words, "--val_dataset", self.mixed, "--max_new_tokens", 2, "--json", expect=0)
        self.assertEqual(json.loads(done.stdout)["rows"], 4)
        self.assertIn("8 of 12 rows that were looked at have media", done.stderr)
        whole = self.lockstep("eval", "--model", self.model, "--val_dataset", self.text, "--max_new_tokens", 2, "--json", expect=0)
        blind = self.lockstep("eval", *words, "--val_dataset", self.text, "--max_new_tokens", 2, "--json", expect=0)
        for name in ("loss", "exact_match", "target_tokens"):
            self.assertEqual(json.loads(blind.stdout)[name], json.loads(whole.stdout)[name], name)
        answers = self.folder / "answers.jsonl"
        self.lockstep("infer", *words, "--val_dataset", self.mixed, "--result_path", answers, "--max_new_tokens", 2, expect=0)
        rows = [json.loads(line) for line in answers.read_text().splitlines()]
        self.assertEqual(["expected a row of text alone" in row.get("error", "") for row in rows], [True, True, False] * 4)
        refused = self.lockstep("infer", *words[:4], "--prompt", "What is it?", "--image", self.shared / "0.png")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("expected a row of text alone, found 1 image", refused.stderr)
        self.lockstep("embed", *words, "--dataset", self.text, "--output", self.folder / "blind", expect=0)
        self.lockstep("embed", "--model", self.model, "--nproc", 2, "--dataset", self.text, "--output", self.folder / "whole", expect=0)
        self.assertEqual(*(sorted((self.folder / name).glob("embeddings.*"))[0].read_bytes() for name in ("blind", "whole")))
        report = json.loads(self.lockstep("inspect", self.model, "--no_build", "vision", "--json", expect=0).stdout)
        self.assertEqual(set(report["parameters"]), {"llm", "carried", "total"})

    def test_the_other_family_with_a_tower(self):
        model = make_model(self.folder, family="qwen2_5_vl")
        seen = {}
        for name, flags in (("frozen", {"train": "llm"}), ("unbuilt2", {"no_build": "vit", "deepspeed": "zero2"}),
                            ("unbuilt3", {"no_build": "vit"})):
            words = sft_words(model, self.text, self.folder / name, steps=2, nproc=2, save_steps=2, freeze_vit=None,
                              freeze_aligner=None, **flags)
            self.lockstep(*words, expect=0)
            seen[name] = losses(self.folder / name)
        self.assertEqual(seen["unbuilt2"], seen["frozen"])
        self.assertEqual(seen["unbuilt3"], seen["frozen"])
        self.assertEqual(tensors(self.folder / "unbuilt3" / "checkpoint-2"), tensors(self.folder / "frozen" / "checkpoint-2"))

    def test_a_model_that_hears_sees_and_carries_what_speaks(self):
        """Omni: zero2 to zero3 by one word; the tower for sound is not built, frozen, or trained in stages with its projector first."""
        model = make_model(self.folder, family="qwen2_5_omni")
        (self.folder / "a.wav").write_bytes(wav(0.7))
        heard = self.folder / "heard.jsonl"
        heard.write_text("".join(json.dumps({"query": "<audio>" * (i % 2) + f"Say {i}.", "response": f"number {i}",
                                             **({"audios": ["a.wav"]} if i % 2 else {})}) + "\n" for i in range(12)))
        seen = {}
        for stage in ("zero2", "zero3"):
            for use, (rows, flags) in {"projector": (heard, {"train": "audio_projector"}), "llm": (heard, {"train": "llm"}),
                                       "unbuilt": (self.text, {"no_build": "audio"}), "whole": (self.text, {"train": "llm,vision,projector"})}.items():
                words = sft_words(model, rows, self.folder / f"{use} {stage}", steps=2, nproc=2, save_steps=2, deepspeed=stage,
                                  **{"freeze_vit": None, "freeze_aligner": None, **flags})
                self.lockstep(*words, expect=0)
                seen[use, stage] = losses(self.folder / f"{use} {stage}")
        for use in ("projector", "llm", "unbuilt", "whole"):
            self.assertEqual(seen[use, "zero2"], seen[use, "zero3"], use)
        before, after = tensors(model), tensors(self.folder / "projector zero3" / "checkpoint-2")
        self.assertEqual({name for name in before if after[name] != before[name]},
                         {"thinker.audio_tower.proj.weight", "thinker.audio_tower.proj.bias"})
        done = self.lockstep(*sft_words(model, heard, self.folder / "deaf", steps=1, no_build="audio", strict="true", freeze_vit=None,
                                        freeze_aligner=None), expect=3)
        self.assertIn("expected a row without audio", done.stderr)

    def test_zero2_to_zero3_with_a_talker_that_is_built_learns_or_is_not_there(self):
        """ENABLE_AUDIO_OUTPUT says whether it is built, --train whether it learns; the stage stays one word."""
        omni = FIXTURES / "oracle" / "odd" / "qwen2_5_omni" / "checkpoint"
        rows = self.folder / "said.jsonl"
        rows.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"number {i}",
                                            **({"speech": {"speaker": "Chelsie", "codes": [i, 7, 7]}} if i % 3 == 1 else {})}) + "\n" for i in range(12)))
        silent = self.folder / "silent.jsonl"
        silent.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"number {i}"}) + "\n" for i in range(12)))
        seen = {}
        for stage in ("zero2", "zero3"):
            for use, (data, env, flags) in {"frozen": (rows, {}, {"train": "llm"}), "absent": (silent, {"ENABLE_AUDIO_OUTPUT": 0}, {"train": "llm"}),
                                            "learns": (rows, {}, {"train": "llm,talker"})}.items():
                out = self.folder / f"{use} {stage}"
                self.lockstep(*sft_words(omni, data, out, steps=2, nproc=2, save_strategy="no", deepspeed=stage,
                                         **{"freeze_vit": None, "freeze_aligner": None, **flags}), env=env, expect=0)
                seen[use, stage] = losses(out)
        for use in ("frozen", "absent", "learns"):
            self.assertEqual(seen[use, "zero2"], seen[use, "zero3"], use)
        self.assertEqual(seen["frozen", "zero3"], seen["absent", "zero3"])
        self.assertNotEqual(seen["learns", "zero3"], seen["absent", "zero3"])

    def test_components_learn_at_their_own_rates(self):
        done = self.train("rates", self.mixed, train="llm,vision,projector", vit_lr="1e-5",
                          component_lr="projector=2e-3", lr_scheduler_type="constant", warmup_steps=0)
        log = [json.loads(line) for line in (self.folder / "rates" / "logging.jsonl").read_text().splitlines()]
        self.assertEqual({(r["learning_rate"], r["learning_rate_vision"], r["learning_rate_projector"]) for r in log if "grad_norm" in r},
                         {(1e-3, 1e-5, 2e-3)})
        self.assertIn("lr 1.00e-03 vision 1.00e-05 projector 2.00e-03", done.stdout)
        self.train("same", self.mixed, train="llm,vision,projector", vit_lr="1e-3", lr_scheduler_type="constant", warmup_steps=0)
        self.train("plain", self.mixed, train="llm,vision,projector", lr_scheduler_type="constant", warmup_steps=0)
        self.assertEqual(losses(self.folder / "same"), losses(self.folder / "plain"))
        before, after = tensors(self.model), tensors(self.folder / "rates" / "checkpoint-3")
        moved = {}
        for part in (*TOWER, "language_model."):
            moved[part] = max(abs(a - b) for name in before if name.startswith(part) for a, b in zip(
                *(struct.unpack(f"<{len(data) // 4}f", data) for data in (before[name][2], after[name][2]))))
        self.assertLess(moved["vision_tower."] * 20, moved["language_model."])
        self.assertLess(moved["language_model."], moved["multi_modal_projector."])


if __name__ == "__main__":
    main()

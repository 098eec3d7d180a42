"""A model that talks: answers said as transformers says them, a talker that learns on any ranks, and one that is left as it is."""
import json
import struct

from dialects_test import tensors
from small_job import losses, records, sft_words
from story import FIXTURES, Story, main

OMNI = FIXTURES / "oracle" / "odd" / "qwen2_5_omni"
FILMS = {"VIDEO_MIN_PIXELS": 3136, "VIDEO_MAX_PIXELS": 3136}


def recorded(name):
    """A tensor of the reference as a flat list of numbers."""
    raw = (OMNI / "reference.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8:8 + size])[name]
    begin, end = entry["data_offsets"]
    kind = {"I64": "q", "F32": "f"}[entry["dtype"]]
    return list(struct.unpack(f"<{(end - begin) // struct.calcsize(kind)}{kind}", raw[8 + size + begin:8 + size + end]))


class Speech(Story):
    def rows(self, name, rows):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def training_rows(self):
        """Every third is said; some are heard or seen."""
        rows = []
        for i in range(18):
            row = {"query": f"Say {i}.", "response": f"number {i}"}
            if i % 6 in (1, 3):
                row = {"query": "<audio>" + row["query"], "response": "tone", "audios": [str(OMNI / "media" / "b.wav")]}
            if i % 6 == 4:
                row = {"query": "<image>" + row["query"], "response": "seen", "images": [str(OMNI / "media" / "b.jpg")]}
            if i % 3 == 1:
                row["speech"] = {"speaker": "Chelsie", "codes": [(7 * i + k) % 119 for k in range(3 + i % 5)]}
            rows.append(row)
        return rows

    def train(self, name, rows, ranks=1, stage="zero3", expect=0, env=None, steps=4, **flags):
        out = self.folder / name
        done = self.lockstep(*sft_words(OMNI / "checkpoint", rows, out, steps=steps, nproc=ranks, deepspeed=stage, per_device_train_batch_size=1,
                                        gradient_accumulation_steps=6 // ranks, **{"freeze_vit": None, "freeze_aligner": None, **flags}),
                             expect=expect, env={**FILMS, **(env or {})})
        return out, done

    def test_answers_are_said_as_transformers_says_them(self):
        questions = [{"messages": [{"role": "user", "content": "<audio>Say it."}], "audios": [str(OMNI / "media" / "b.wav")]},
                     {"query": "Hello"}, {"query": "<image>What is it?", "images": [str(OMNI / "media" / "b.jpg")]}]
        said = {}
        for ranks, stage in ((1, "zero0"), (2, "zero3"), (3, "zero3")):
            out = self.folder / f"answers {ranks}.jsonl"
            self.lockstep("infer", "--model", OMNI / "checkpoint", "--val_dataset", self.rows("questions", questions), "--result_path", out, "--speech",
                          "--talker_temperature", 0, "--talker_max_new_tokens", 12, "--max_new_tokens", 8, "--torch_dtype", "float32", "--nproc", ranks,
                          "--deepspeed", stage, "--max_batch_size", 2, expect=0)
            said[ranks] = [json.loads(line)["speech"] for line in out.read_text().splitlines()]
        self.assertEqual(said[1][0], {"speaker": "Chelsie", "codes": recorded("talker/out/talker_codes")})
        self.assertEqual(said[2], said[1])
        self.assertEqual(said[3], said[1])
        # What was said is a row to learn from.
        answers = [json.loads(line) for line in (self.folder / "answers 1.jsonl").read_text().splitlines()]
        self.train("again", self.rows("again", answers), train="talker", steps=1, save_strategy="no")

    def test_a_talker_learns_the_same_on_any_ranks(self):
        rows = self.rows("spoken", self.training_rows())
        found = {}
        for ranks, stage in ((1, "zero0"), (2, "zero0"), (2, "zero2"), (2, "zero3"), (3, "zero3")):
            out, _ = self.train(f"{ranks} {stage}", rows, ranks, stage, train="llm,talker", save_strategy="no")
            steps = records(out)
            found[ranks, stage] = {step: (record["loss"], record["talker_loss"]) for step, record in steps.items()}
        for stage in ("zero2", "zero3"):
            self.assertEqual(found[2, stage], found[2, "zero0"], "stages give the same bits")
        for key, other in found.items():
            for step, pair in found[1, "zero0"].items():
                for a, b in zip(other[step], pair):
                    self.assertAlmostEqual(a, b, delta=1e-5, msg=str(key))
        talker = [pair[1] for pair in found[1, "zero0"].values()]
        self.assertLess(talker[-1], talker[0])
        # Weighted, loss holds it so; and what is logged of it stays what it is.
        out, _ = self.train("heavy", rows, train="talker", save_strategy="no", talker_loss_weight=3, steps=1)
        light, _ = self.train("light", rows, train="talker", save_strategy="no", steps=1)
        heavy, light = records(out)[1], records(light)[1]
        self.assertAlmostEqual(heavy["talker_loss"], light["talker_loss"], delta=1e-6)
        self.assertAlmostEqual(heavy["loss"] - light["loss"], 2 * light["talker_loss"], delta=1e-5)

    def test_one_that_is_left_as_it_is_says_so_and_keeps_its_bits(self):
        rows = self.rows("spoken", self.training_rows())
        built, done = self.train("built", rows, 2, save_steps=4, torch_dtype="bfloat16")
        self.assertIn("the talker stays as it is", done.text)
        without, _ = self.train("without", self.rows("silent", [{**row, "speech": None} for row in self.training_rows()]), 2, save_steps=4,
                                torch_dtype="bfloat16", env={"ENABLE_AUDIO_OUTPUT": 0})
        self.assertEqual(losses(built), losses(without))
        before = tensors(OMNI / "checkpoint")
        for out in (built, without):
            after = tensors(out / "checkpoint-4")
            for name in before:
                if name.startswith(("talker.", "token2wav.")):
                    self.assertEqual(before[name], after[name], name)
            self.assertEqual((OMNI / "checkpoint" / "spk_dict.pt").read_bytes(), (out / "checkpoint-4" / "spk_dict.pt").read_bytes())
        learnt, _ = self.train("learnt", rows, 2, train="talker", save_steps=4, torch_dtype="bfloat16")
        after = tensors(learnt / "checkpoint-4")
        changed = {name.split(".")[0] for name in before if before[name] != after[name]}
        self.assertEqual(changed, {"talker"})

    def test_rows_that_cannot_be_said_are_named(self):
        spoken = {"query": "Say it.", "response": "It.", "speech": {"speaker": "Chelsie", "codes": [1, 2]}}
        for row, told, env in (({**spoken, "speech": {"speaker": "Bob", "codes": [1]}}, "expected Chelsie, found \"Bob\"", {}),
                               ({**spoken, "speech": {"speaker": "Chelsie", "codes": [1, 127000]}}, "speech.codes[1]", {}),
                               ({**spoken, "response": ""}, "empty", {}),
                               (spoken, "talker is not built (ENABLE_AUDIO_OUTPUT=0)", {"ENABLE_AUDIO_OUTPUT": 0})):
            flags = {} if env else {"train": "talker"}
            _, done = self.train("refused", self.rows("refused", [row]), expect=3, strict="true", env=env, **flags)
            self.assertIn(told, done.stderr)
            self.assertIn("refused.jsonl:1", done.stderr)
        for words, told in ((["--speaker", "Bob"], "--speaker: expected Chelsie, found \"Bob\""), ([], "--speech: expected a model whose talker is built")):
            done = self.lockstep("infer", "--model", OMNI / "checkpoint", "--val_dataset", self.rows("one", [spoken]), "--result_path", self.folder / f"x{len(words)}.jsonl",
                                 "--speech", *words, env={} if words else {"ENABLE_AUDIO_OUTPUT": 0}, expect=2)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    main()

"""Pre-training goes on: texts and pictures among them as they stand, without a chat template, from every kind of file; also of models that have none."""
import json
import math
import re

from small_job import make_model, make_rows, records, sft_words
from story import Story, main


class PreTraining(Story):
    def train(self, model, rows, name, *more, verb="pt", expect=0, **flags):
        words = sft_words(model, rows, self.folder / name, **{"nproc": 2, "device": "cpu", "steps": 4, "save_strategy": "no", **flags})
        done = self.lockstep(verb, *words[1:], *more, expect=expect)
        return self.folder / name, done

    def texts(self, name="texts.jsonl"):
        lines = [f"The {color} fox number {i} jumps." for i, color in enumerate(("red", "brown", "grey") * 4)]
        file = self.folder / name
        file.write_text("".join((line if name.endswith(".txt") else json.dumps({"text": line})) + "\n" for line in lines))
        return file

    def without_template(self, model):
        for name in ("chat_template.jinja", "chat_template.json"):
            (model / name).unlink(missing_ok=True)
        config = json.loads((model / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (model / "tokenizer_config.json").write_text(json.dumps(config))
        return model

    def test_a_text_is_a_text_in_whatever_file(self):
        model = make_model(self.folder, "qwen2")
        out, done = self.train(model, self.texts(), "jsonl", freeze_vit=None, freeze_aligner=None)
        self.assertIn("no chat template: [[The red fox number 0 jumps.<|im_end|>]]", done.stdout)
        lines, _ = self.train(model, self.texts("texts.txt"), "txt", freeze_vit=None, freeze_aligner=None)
        self.assertEqual({step: one["loss"] for step, one in records(out).items()}, {step: one["loss"] for step, one in records(lines).items()})
        by_flags, _ = self.train(model, self.texts(), "flags", "--use_chat_template", "false", "--loss_scale", "all", verb="sft",
                                 freeze_vit=None, freeze_aligner=None)
        self.assertEqual([one["loss"] for one in records(out).values()], [one["loss"] for one in records(by_flags).values()])
        packed, done = self.train(model, self.texts(), "packed", "--packing", "true", "--max_length", 64, freeze_vit=None, freeze_aligner=None)
        self.assertTrue(all(math.isfinite(one["loss"]) for one in records(packed).values()))

    def test_long_texts_become_several_rows_and_lose_nothing(self):
        model, file = make_model(self.folder, "qwen2"), self.folder / "long.jsonl"
        file.write_text("".join(json.dumps({"text": f"Chapter {i}. " + " ".join(f"The fox number {i * n} jumps." for n in range(40))}) + "\n" for i in range(6))
                        + json.dumps({"text": "A short one."}) + "\n")
        frozen = {"freeze_vit": None, "freeze_aligner": None}
        tokens = {}
        for name, words in {"whole": ["--max_length", 2048, "--packing_length", 2048], "split": ["--max_length", 64, "--truncation_strategy", "split"]}.items():
            _, done = self.train(model, file, name, "--packing", "true", *words, **frozen)
            tokens[name] = re.search(r"rows of (\d+) tokens in", done.stdout).group(1)
        self.assertRegex(done.stdout, r"7 rows are \d\d of at most 64 tokens: longer texts were cut")
        self.assertNotIn("rows are longer", done.stdout)
        self.assertEqual(tokens["split"], tokens["whole"])
        words = ["--truncation_strategy", "split", "--max_length"]
        out, _ = self.train(model, file, "kept", *words, 64, steps=2, save_strategy="steps", save_steps=2, **frozen)
        again = {"steps": 4, "save_strategy": "steps", "save_steps": 2, **frozen}
        _, done = self.train(model, file, "kept", "--resume_from_checkpoint", "true", *words, 48, expect=2, **again)
        self.assertRegex(done.stderr, r"has its rows in \d+ pieces \(\w+\), now they would be in \d+ pieces")
        out, _ = self.train(model, file, "kept", "--resume_from_checkpoint", "true", *words, 64, **again)
        self.assertEqual(max(records(out)), 4)
        self.lockstep("plan", "--model", model, "--dataset", file, "--use_chat_template", "false", *words, 64, expect=0)
        book = self.folder / "book.jsonl"  # nothing but rows that are too long for the model itself, without a length that is asked for
        book.write_text(json.dumps({"text": " ".join(f"The fox number {n} jumps." for n in range(3000))}) + "\n")
        positions = json.loads((model / "config.json").read_text())["max_position_embeddings"]
        _, done = self.train(model, book, "book", "--truncation_strategy", "split", steps=1, **frozen)
        self.assertRegex(done.stdout, rf"1 rows are \d+ of at most {positions} tokens: longer texts were cut")
        self.assertNotIn("cannot be used", done.text)

    def test_long_questions_are_cut_as_texts_are_and_pictures_lose_their_end(self):
        file, frozen = self.folder / "asked.jsonl", {"freeze_vit": None, "freeze_aligner": None}
        long = " ".join(f"The fox number {n} jumps." for n in range(30))
        file.write_text("".join(json.dumps({"query": f"{i}: {long}", "response": f" {long} {i}"}) + "\n" for i in range(6)))
        model, tokens = make_model(self.folder, "qwen2"), {}
        for name, words in {"whole": ["--max_length", 2048, "--packing_length", 2048], "split": ["--max_length", 64, "--truncation_strategy", "split"]}.items():
            out, done = self.train(model, file, name, "--packing", "true", "--split_dataset_ratio", 1, *words, **frozen)
            tokens[name] = re.search(r"rows of (\d+) tokens in", done.stdout).group(1)
            kept = [json.loads(line) for line in (out / "val_dataset.jsonl").read_text().splitlines()]
            self.assertEqual(len(kept), 1, "a row as it was, and not its pieces")
            self.assertIn(kept[0]["messages"][1]["content"][1:-2], long)
        self.assertEqual(tokens["split"], tokens["whole"])
        self.assertRegex(done.stdout, r"5 rows are \d\d of at most 64 tokens: longer texts were cut")
        seen = self.folder / "seen.jsonl"
        row = next(json.loads(line) for line in make_rows(self.folder).read_text().splitlines() if "images" in json.loads(line))
        seen.write_text("".join(json.dumps({"text": f"<image> {long}", "images": row["images"]}) + "\n" for _ in range(6)))
        out, done = self.train(make_model(self.folder, "llava"), seen, "seen", "--max_length", 128, "--truncation_strategy", "split")
        self.assertEqual(done.stdout.count("6 of 6 rows are not text alone"), 1)
        self.assertNotIn("cannot be used", done.text)
        self.assertEqual(len(records(out)), 4)

    def test_pictures_stand_among_texts(self):
        rows = make_rows(self.folder)
        plain = self.folder / "plain.jsonl"
        made = [json.loads(line) for line in rows.read_text().splitlines()]
        plain.write_text("".join(json.dumps({"text": "Seen here: <image>, and nothing else.", "images": row["images"]}) + "\n" for row in made if row.get("images")))
        for family in ("llava", "qwen2_5_vl"):
            out, done = self.train(make_model(self.folder, family), plain, family)
            self.assertRegex(done.stdout, r"no chat template: .*\[\[ ?Seen here: ?\]\](<\|vision_start\|>)?<image ×\d+>(<\|vision_end\|>)?\[\[.*and nothing else\.")
            self.assertEqual(len(records(out)), 4)

    def test_a_model_without_a_template_goes_on_and_is_asked_as_it_was_taught(self):
        model = self.without_template(make_model(self.folder, "llama"))
        _, done = self.train(model, self.texts(), "sft", verb="sft", expect=4, freeze_vit=None, freeze_aligner=None)
        self.assertIn("expected a chat template", done.stderr)
        self.assertIn("lockstep pt", done.stderr)
        out, _ = self.train(model, self.texts(), "pt", save_strategy="steps", save_steps=4, freeze_vit=None, freeze_aligner=None)
        checkpoint = out / "checkpoint-4"
        self.assertEqual(json.loads((checkpoint / "args.json").read_text())["use_chat_template"], False)
        done = self.lockstep("infer", "--model", checkpoint, "--use_chat_template", "false", "--prompt", "The red", "--max_new_tokens", 4, expect=0)
        done = self.lockstep("eval", "--model", checkpoint, "--use_chat_template", "false", "--loss_scale", "all", "--dataset", self.texts(), "--json", expect=0)
        self.assertTrue(math.isfinite(json.loads(done.stdout)["loss"]))
        more, _ = self.train(checkpoint, self.texts(), "more", "--resume_from_checkpoint", checkpoint, steps=6, freeze_vit=None, freeze_aligner=None)
        self.assertEqual(max(records(more)), 6)

    def test_it_goes_before_fine_tuning_and_behind_it(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        frozen = {"freeze_vit": None, "freeze_aligner": None, "save_strategy": "steps", "save_steps": 4}
        pt, _ = self.train(model, self.texts(), "pt", **frozen)
        sft, _ = self.train(pt / "checkpoint-4", rows, "sft", verb="sft", **frozen)
        again, _ = self.train(sft / "checkpoint-4", self.texts(), "again", **frozen)
        self.assertEqual(len(records(again)), 4)
        _, done = self.train(model, rows, "turns", expect=None, strict="true", **frozen)
        self.assertEqual(done.returncode, 0, "a question and its answer are one text")

    def test_llama_factory_says_so_by_its_stage(self):
        model, file = make_model(self.folder, "qwen2"), self.texts("c4.json")
        file.write_text(json.dumps([json.loads(line) for line in file.read_text().splitlines()]))
        (self.folder / "dataset_info.json").write_text(json.dumps({"c4": {"file_name": "c4.json", "columns": {"prompt": "text"}}}))
        (self.folder / "pt.yaml").write_text(f"model_name_or_path: {model}\nstage: pt\ndo_train: true\nfinetuning_type: lora\nlora_target: all\ndataset: c4\n"
                                             f"dataset_dir: {self.folder}\ncutoff_len: 64\nmax_samples: 1000\nval_size: 3\neval_strategy: steps\neval_steps: 2\n"
                                             f"output_dir: {self.folder / 'out'}\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\n"
                                             "learning_rate: 1.0e-4\nmax_steps: 2\nlogging_steps: 1\n")
        done = self.lockstep("train", self.folder / "pt.yaml", as_they_are=True, expect=0)
        self.assertIn("no chat template: [[The ", done.stdout)
        self.assertIn("--packing true", done.stdout)
        logged = [json.loads(line) for line in (self.folder / "out" / "logging.jsonl").read_text().splitlines()]
        self.assertTrue(any("eval_loss" in record for record in logged))
        long = self.folder / "long.json"
        long.write_text(json.dumps([{"text": " ".join(f"The fox number {i * n} jumps." for n in range(40))} for i in range(4)]))
        (self.folder / "dataset_info.json").write_text(json.dumps({"long": {"file_name": "long.json", "columns": {"prompt": "text"}}}))
        asked = ["--model_name_or_path", model, "--stage", "pt", "--eval_dataset", "long", "--dataset_dir", self.folder, "--cutoff_len", 64, "--json"]
        done = self.lockstep("eval", *asked, as_they_are=True, expect=0)
        self.assertRegex(done.text, r"4 rows are \d\d of at most 64 tokens")
        self.assertEqual(json.loads(done.stdout)["skipped"], 0)
        streamed = [line for line in (self.folder / "pt.yaml").read_text().splitlines() if not line.startswith(("dataset: ", "val_size", "eval_", "output_dir"))]
        (self.folder / "streamed.yaml").write_text("\n".join([*streamed, "dataset: long", "streaming: true", f"output_dir: {self.folder / 'streamed'}"]) + "\n")
        done = self.lockstep("train", self.folder / "streamed.yaml", as_they_are=True, expect=0)
        self.assertIn("--truncation_strategy turns", done.stdout)


if __name__ == "__main__":
    main()

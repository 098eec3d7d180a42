"""A checkpoint whose tokenizer is a SentencePiece model alone evaluates, answers and trains as with the tokenizer.json of that model."""
import json
import shutil

from small_job import png
from story import FIXTURES, Story, main

MODEL = FIXTURES / "oracle" / "odd" / "llava" / "checkpoint"
BESIDE = ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


class TokenizerModel(Story):
    def setUp(self):
        super().setUp()
        (self.folder / "a.png").write_bytes(png(40, 30, (220, 20, 20)))
        rows = [{"query": "<image>\nWhat is  this?", "response": "red, né", "images": ["a.png"]}, {"query": " Say ☃ 12.", "response": "no  <s>"}]
        self.rows = self.folder / "rows.jsonl"
        self.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def copy(self, name, without):
        shutil.copytree(MODEL, self.folder / name)
        for file in without:
            (self.folder / name / file).unlink()
        config = json.loads((self.folder / name / "tokenizer_config.json").read_text())
        config["legacy"] = True  # as the tokenizer.json is: each text between special tokens gets a space in front
        (self.folder / name / "tokenizer_config.json").write_text(json.dumps(config))
        return self.folder / name

    def answers(self, model):
        out = self.folder / f"{model.name}.jsonl"
        self.lockstep("infer", "--model", model, "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 8, expect=0)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def evaluated(self, model):
        done = self.lockstep("eval", "--model", model, "--val_dataset", self.rows, "--json", expect=0)
        return json.loads(done.stdout)

    def test_the_same_with_either_file(self):
        whole, pieces = self.copy("whole", ["tokenizer.model"]), self.copy("pieces", ["tokenizer.json"])
        found, expected = self.evaluated(pieces), self.evaluated(whole)
        self.assertEqual(found["loss"], expected["loss"])
        self.assertEqual(found["target_tokens"], expected["target_tokens"])

        # Of byte tokens that are no text together, tokenizer.json makes U+FFFD of each; a model keeps the characters among them.
        def characters(text):
            return [c for c in text if c > "\x7f" and c != "\ufffd"]

        for ours, theirs in zip(found["samples"], expected["samples"], strict=True):
            self.assertEqual(characters(ours["predicted"]), characters(theirs["predicted"]))
        ours, theirs = self.answers(pieces), self.answers(whole)
        self.assertEqual(ours[1], theirs[1])
        self.assertEqual(characters(ours[0]["response"]), characters(theirs[0]["response"]))

    def test_a_saved_checkpoint_has_the_files_of_its_tokenizer(self):
        model, out = self.copy("pieces", ["tokenizer.json"]), self.folder / "out"
        self.lockstep("sft", "--model", model, "--dataset", self.rows, "--output_dir", out, "--max_steps", 1, "--save_steps", 1,
                      "--per_device_train_batch_size", 1, expect=0)
        saved = next(out.rglob("checkpoint-1"))
        for file in BESIDE:
            self.assertEqual((saved / file).read_bytes(), (model / file).read_bytes(), file)
        self.evaluated(saved)

    def test_a_broken_model_ends_in_a_message(self):
        model = self.copy("pieces", ["tokenizer.json"])
        whole = (model / "tokenizer.model").read_bytes()
        for broken in (whole[:-100], b"", b"\x0a\xff\xff\xff\xff\x0f" + whole, b"version https://git-lfs.github.com/spec/v1\n", b"IQ== 0\n"):
            (model / "tokenizer.model").write_bytes(broken)
            done = self.lockstep("eval", "--model", model, "--val_dataset", self.rows, expect=4)
            self.assertIn("tokenizer.model", done.stderr)
            self.assertEqual(done.stderr.count("error:"), 1, done.text)


if __name__ == "__main__":
    main()

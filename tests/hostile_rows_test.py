"""Rows, flags and names of strangers: whatever stands in them, a run ends in time and memory with one documented message."""
import json
import shutil
import struct

from hostile import DEEP, DEEP_LIST, DEEP_OBJECT, MAX_MESSAGE, Hostile
from small_job import png
from story import main


class HostileRows(Hostile):
    FAMILIES = ("llava", "qwen2_5_vl", "qwen2")

    def test_flags_and_files_of_flags(self):
        base = ["sft", "--model", self.models["qwen2"], "--dataset", self.rows, "--output_dir", self.folder / "out"]
        (self.folder / "deep.json").write_text(DEEP_OBJECT)
        (self.folder / "args.json").write_text('{"model": ' + DEEP_LIST + "}")
        self.refused(2, [*base, "--deepspeed", self.folder / "deep.json"], "nested")
        self.refused(2, [*base, "--device_map", self.folder / "deep.json"], "nested")
        self.refused(4, ["sft", self.folder / "args.json"], "nested")
        doubled = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
        for name, text in {"doubled": doubled, "ring": "a: &a [*a]\n", "deep": "a: " + "[" * 5000 + "]" * 5000,
                           "deep_block": "".join(" " * i + "a:\n" for i in range(700)),
                           "large": "a: " + "x" * (2 << 20)}.items():
            (self.folder / f"{name}.yaml").write_text(text)
            with self.subTest(name):
                done = self.limited("sft", self.folder / f"{name}.yaml")
                self.assertIn(done.returncode, (2, 3), done.text[:3000])
                self.assertLessEqual(len(done.stderr), MAX_MESSAGE)

    def test_rows(self):
        bad = ['{"messages": ' + DEEP_LIST + "}", '{"query": "x", "response": "y", "metadata": ' + DEEP_OBJECT + "}",
               '{"query": 1e400, "response": "y"}', "[" * DEEP, '{"query": {"a": 1}, "response": []}', "null", '"' + "x" * 100_000,
               '{"images": ["' + "y" * 100_000 + '"], "query": "<image>?", "response": "a"}']
        # The picture's size is a claim in its header, or a shape that padding to a square would make 12 GB.
        (self.folder / "claims.png").write_bytes(png(8, 8, (1, 2, 3))[:16] + struct.pack(">II", 2**31 - 1, 2**31 - 1) + png(8, 8, (1, 2, 3))[24:])
        (self.folder / "thin.png").write_bytes(png(60_000, 1, (1, 2, 3)))
        pictures = [json.dumps({"query": "<image>?", "response": "a", "images": [name]}) for name in ("claims.png", "thin.png")]
        good = '{"query": "Say 1.", "response": "number 1"}'
        rows = self.folder / "rows.jsonl"
        rows.write_text("\n".join([good, *bad, *pictures, good]) + "\n")
        out = self.folder / "answers.jsonl"
        for family in ("llava", "qwen2_5_vl"):
            done = self.refused(0, ["infer", "--model", self.models[family], "--val_dataset", rows, "--result_path", out,
                                    "--max_new_tokens", 1])
            answers = [json.loads(line) for line in out.read_text().splitlines()]
            out.unlink()
            self.assertGreaterEqual(sum("error" not in row for row in answers), 2, done.text[:3000])
            self.assertLess(max(len(row.get("error", "")) for row in answers), MAX_MESSAGE)
        self.refused(0, ["embed", "--model", self.models["llava"], "--dataset", rows, "--output", self.folder / "embedded"])
        self.refused(0, ["eval", "--model", self.models["qwen2"], "--val_dataset", rows, "--max_new_tokens", 1])
        # One rank, one step, over the same rows: skipped, and counted.
        self.refused(0, ["sft", "--model", self.models["qwen2"], "--dataset", rows, "--output_dir", self.folder / "out", "--max_steps", 1,
                         "--report_to", "none", "--per_device_train_batch_size", 1], "rows.jsonl:2", "nested")
        self.refused(3, ["eval", "--model", self.models["qwen2"], "--val_dataset", rows, "--strict", "true"], "rows.jsonl:2", "nested")

    def test_rows_without_end(self):
        good = {"query": "Say 1.", "response": "number 1"}
        talk = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(10_000)]
        for name, row, part in (("blanks", {"query": " " * 1_500_000 + "x", "response": "a"}, "tokenizer.json"),
                                ("turns", {"messages": talk}, "a conversation of 10000 turns")):
            rows = self.folder / f"{name}.jsonl"
            rows.write_text("".join(json.dumps(one) + "\n" for one in (good, row, good)))
            words = ["sft", "--model", self.models["qwen2"], "--dataset", rows, "--output_dir", self.folder / name, "--num_train_epochs", 1,
                     "--report_to", "none", "--per_device_train_batch_size", 1, "--logging_steps", 1]
            with self.subTest(name):
                self.refused(0, words, f"{rows}:2: ", part, "1 rows could not be used so far")
                self.refused(3, [*words, "--strict", "true"], f"{rows}:2: ", part)

    def test_names_that_are_no_text(self):
        """A folder may have any bytes as its name, JSON not."""
        model, rows = self.folder / "m\udcff", self.folder / "r\udcff.jsonl"
        shutil.copytree(self.models["qwen2"], model)
        rows.write_text('{"query": "Say 1.", "response": "number 1"}\n')
        for words in (["inspect", model], ["inspect", model, "--json"], ["plan", "--model", model, "--json"],
                      ["eval", "--model", model, "--val_dataset", rows, "--max_new_tokens", 1, "--json"],
                      ["sft", "--model", model, "--dataset", rows, "--output_dir", self.folder / "o\udcff", "--max_steps", 1, "--report_to", "none"]):
            with self.subTest(words[0]):
                self.refused(0, words)

    def test_words_that_a_terminal_would_obey(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text(json.dumps({"query": "a\x1b[2Jb\x9b1m", "response": "c\x1b]0;x\x07"}) + "\n")
        done = self.refused(0, ["eval", "--model", self.models["qwen2"], "--val_dataset", rows, "--max_new_tokens", 1, "--show", 1],
                            r"a\x1b[2Jb\x9b1m", r"expected c\x1b]0;x\x07")
        self.assertNotRegex(done.text, "[\x1b\x9b\x07]")


if __name__ == "__main__":
    main()

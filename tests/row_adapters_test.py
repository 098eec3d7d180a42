"""Several adapters over one base: each row of a file is answered with its own, beside rows of the others, as with that one alone."""
import json

from lora_job import lora_words
from small_job import make_model, make_rows
from story import Story, main

KINDS = {"plain": {}, "dora": {"use_dora": "true", "lora_rank": 3, "target_modules": "q_proj v_proj down_proj"},
         "table": {"target_modules": "embed_tokens lm_head gate_proj", "freeze_vit": "false", "freeze_aligner": "false"}}


def answers(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class RowAdapters(Story):
    def setUp(self):
        super().setUp()
        self.model, rows = make_model(self.folder), make_rows(self.folder)
        self.adapters = {}
        for name, flags in KINDS.items():
            words = lora_words(self.model, rows, self.folder / name, steps=3, nproc=2, **{**flags, "learning_rate": "5e-2", "lora_dropout": 0})
            self.lockstep(*(part for word in words for part in (str(word).split() if word == flags.get("target_modules") else [word])), expect=0)
            self.adapters[name] = self.folder / name / "checkpoint-3"
        self.rows = [{**json.loads(line)} for line in rows.read_text().splitlines()][:15]

    def file_of(self, name, rows):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def infer(self, name, rows, *words, expect=0):
        out = self.folder / f"{name}-answers.jsonl"
        done = self.lockstep("infer", "--val_dataset", self.file_of(name, rows), "--result_path", out, "--max_new_tokens", 6, "--torch_dtype", "float32",
                             "--max_batch_size", 4, "--transport", "shm", *words, expect=expect)
        return done, answers(out) if expect == 0 else None

    def several(self):
        return [f"{name}={folder}" for name, folder in self.adapters.items()]

    def test_a_row_is_answered_as_with_its_adapter_alone(self):
        alone = {"__base__": self.infer("base", self.rows, "--model", self.model)[1]}
        for name, folder in self.adapters.items():
            alone[name] = self.infer(name, self.rows, "--adapters", folder)[1]
        said = {name: [row["response"] for row in rows] for name, rows in alone.items()}
        self.assertEqual(len({tuple(rows) for rows in said.values()}), 4, "adapters that answer alike show nothing")
        names = [*self.adapters, "__base__", None]
        chosen = [names[(i * 7 + i // 5) % 5] for i in range(len(self.rows))]
        mixed = [{**row, "adapter": name} if name else row for row, name in zip(self.rows, chosen)]
        for ranks, stage in ((1, "zero0"), (2, "zero3"), (3, "zero0")):
            with self.subTest(f"{ranks} ranks, {stage}"):
                done, found = self.infer(f"mixed-{ranks}", mixed, "--adapters", *self.several(), "--nproc", ranks, "--deepspeed", stage)
                self.assertIn('rows without "adapter" are answered with plain', done.text)
                for i, name in enumerate(chosen):
                    self.assertEqual(found[i]["response"], said[name or "plain"][i], f"row {i}, {name}")
                    self.assertEqual(found[i].get("adapter"), name)

    def test_over_codes_and_over_several_devices(self):
        codes = ("--model", self.model, "--quant_bits", 4, "--llm_int8_skip_modules", "none")
        rows = self.rows[:6]
        said = {name: self.infer(f"codes-{name}", rows, *codes, "--adapters", folder)[1] for name, folder in self.adapters.items()}
        mixed = [{**row, "adapter": list(self.adapters)[i % 3]} for i, row in enumerate(rows)]
        for label, words in {"host": (), "devices": ("--virtual_devices", 2, "--device_map", "auto")}.items():
            found = self.infer(f"codes-mixed-{label}", mixed, *codes, "--adapters", *self.several(), *words)[1]
            for i, row in enumerate(mixed):
                self.assertEqual(found[i]["response"], said[row["adapter"]][i]["response"], f"row {i}, {label}")

    def test_an_adapter_that_is_not_there_is_said_with_its_row(self):
        rows = [{**self.rows[0], "adapter": "dora"}, {**self.rows[1], "adapter": "doar"}, self.rows[2]]
        _, found = self.infer("unknown", rows, "--adapters", *self.several())
        self.assertNotIn("error", found[0])
        self.assertNotIn("error", found[2])
        for word in ("unknown.jsonl:2", '"adapter"', "expected plain, dora, table", '"doar"'):
            self.assertIn(word, found[1]["error"])
        done, _ = self.infer("strict", rows, "--adapters", *self.several(), "--strict", "true", expect=3)
        self.assertIn('found "doar"', done.stderr)
        asks = [rows[0], {**rows[2], "adapter": "__base__"}]
        for words in ((), ("--merge_lora", "true")):
            done, found = self.infer(f"unnamed{len(words)}", asks, "--adapters", self.adapters["dora"], *words)
            for row in found:
                self.assertIn("--adapters names none", row["error"])
        one = self.infer("one", asks, "--adapters", f"dora={self.adapters['dora']}")[1]
        base = self.infer("base", [rows[2]], "--model", self.model)[1]
        alone = self.infer("alone", rows[2:], "--adapters", self.adapters["dora"])[1]
        self.assertEqual(one[1]["response"], base[0]["response"], "the model alone, beside one adapter that has a name")
        self.assertNotEqual(one[1]["response"], alone[0]["response"], "answers that are alike show nothing")

    def test_what_cannot_be_is_said(self):
        plain, dora = self.adapters["plain"], self.adapters["dora"]
        whole = self.folder / "whole"
        self.lockstep(*lora_words(self.model, self.folder / "rows.jsonl", whole, steps=1, modules_to_save="norm"), expect=0)
        for words, expected in (((plain, dora), "expected a name"), ((f"a={plain}", f"a={dora}"), "two of them are called a"),
                                ((f"a b={plain}", f"c={dora}"), "letters, digits"), ((f"a={plain}", f"b={whole / 'checkpoint-1'}"), "modules of the model itself"),
                                ((f"a={plain}", f"b={self.folder / 'nowhere'}"), "nowhere")):
            done = self.lockstep("infer", "--model", self.model, "--adapters", *words, "--val_dataset", self.file_of("rows", self.rows[:1]), "--result_path",
                                 self.folder / "none.jsonl")
            self.assertIn(done.returncode, (2, 4), done.text)
            self.assertIn(expected, done.stderr)
        for verb, words in {"eval": ("--dataset", self.folder / "rows.jsonl"), "embed": ("--dataset", self.folder / "rows.jsonl", "--output", self.folder / "e"),
                            "infer": ("--prompt", "What?"), "plan": ()}.items():
            done = self.lockstep(verb, "--model", self.model, "--adapters", *self.several(), *words, expect=2)
            self.assertIn("expected one, found 3", done.stderr)


if __name__ == "__main__":
    main()

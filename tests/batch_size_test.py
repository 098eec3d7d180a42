"""--batch_size auto: the largest batch that fits is found, told, the same on all ranks, and kept when a run goes on."""
import json
import re

from small_job import losses, make_model, make_rows, sft_words
from story import Story, main


class AutomaticBatchSize(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder, count=14)

    def chosen(self, done):
        found = re.search(r"batch size (\d+) on a rank", done.stderr)
        self.assertIsNotNone(found, done.text)
        tried = [int(n) for n in re.findall(r"batch size +(\d+): [\d.]+ GiB at the peak", done.stderr)]
        self.assertEqual(tried[0], 1, done.stderr)
        self.assertLessEqual(int(found[1]), 14)
        return int(found[1])

    def test_training_finds_one_and_trains_as_if_it_had_been_given(self):
        words = {"steps": 3, "nproc": 2, "save_strategy": "no", "gradient_accumulation_steps": 1}
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / "auto", per_device_train_batch_size="auto", **words),
                             expect=0)
        size = self.chosen(done)
        self.lockstep(*sft_words(self.model, self.rows, self.folder / "given", per_device_train_batch_size=size, **words),
                      expect=0)
        self.assertEqual(losses(self.folder / "auto"), losses(self.folder / "given"))

    def test_a_limit_of_the_process_is_kept(self):
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / "auto", steps=1, per_device_train_batch_size="auto",
                                        memory_limit="1GiB", save_strategy="no", gradient_accumulation_steps=1), expect=0)
        self.chosen(done)
        self.assertLess(float(re.search(r"\(([\d.]+) GiB may be used", done.stderr)[1]), 1.05, done.stderr)

    def test_the_peak_of_a_try_is_that_of_the_run(self):
        """Of a model whose optimizer holds more than all else: its state is there when a size is tried, and counts once."""
        model = make_model(self.folder, family="qwen2", size="small")
        rows = make_rows(self.folder, count=4, images=False)
        done = self.lockstep(*sft_words(model, rows, self.folder / "auto", steps=1, per_device_train_batch_size="auto",
                                        save_strategy="no", gradient_accumulation_steps=1), expect=0)
        size = self.chosen(done)
        tried = float(re.search(rf"batch size +{size}: ([\d.]+) GiB at the peak", done.stderr)[1])
        held = float(re.search(r"mem ([\d.]+) GiB", done.text)[1])
        self.assertLess(abs(tried - held), 0.06, done.text)

    def test_embedding_answering_and_measuring_find_one(self):
        out = self.folder / "out"
        done = self.lockstep("embed", "--model", self.model, "--dataset", self.rows, "--output", out, "--batch_size", "auto",
                             "--nproc", 2, expect=0)
        size = self.chosen(done)
        self.assertEqual(json.loads((out / "embed.json").read_text())["identity"]["batch_size"], size)
        again = self.lockstep("embed", "--model", self.model, "--dataset", self.rows, "--output", out, "--batch_size", "auto",
                              expect=0)
        self.assertIn("already", again.stdout)
        anew = ["embed", "--model", self.model, "--dataset", self.rows, "--output", out, "--overwrite", "true"]
        for words, left in ((["--format", "safetensors"], {"embed.json", "embeddings.safetensors", "rows.jsonl"}), ([], {"embed.json", "embeddings.jsonl"})):
            self.lockstep(*anew, *words, expect=0)
            self.assertEqual({path.name for path in out.iterdir()}, left)  # vectors of before would pass for these
        answers = self.folder / "answers.jsonl"
        self.chosen(self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", answers,
                                  "--max_new_tokens", 2, "--batch_size", "auto", "--nproc", 2, expect=0))
        self.assertEqual(len(answers.read_text().splitlines()), 14)
        self.chosen(self.lockstep("eval", "--model", self.model, "--val_dataset", self.rows, "--max_new_tokens", 2,
                                  "--per_device_eval_batch_size", "auto", "--nproc", 2, expect=0))

    def test_vectors_of_rows_that_were_spelled_otherwise_are_not_taken_for_finished(self):
        out = self.folder / "out"
        words = ["embed", "--model", self.model, "--dataset", self.rows, "--output", out]
        self.lockstep(*words, expect=0)
        self.assertIn("already", self.lockstep(*words, expect=0).stdout)
        for more in (["--use_chat_template", "false"], ["--quant_method", "bnb", "--quant_bits", 8]):
            self.assertIn("another run", self.lockstep(*words, *more, expect=2).stderr)
        for name, change in (("chat_template.jinja", lambda text: "Now: " + text), ("preprocessor_config.json", lambda text: text.replace("0.4", "0.3"))):
            file = self.model / name
            before = file.read_text()
            self.assertNotEqual(change(before), before)
            file.write_text(change(before))
            self.assertIn("another run", self.lockstep(*words, expect=2).stderr, name)
            file.write_text(before)
        self.assertIn("already", self.lockstep(*words, expect=0).stdout)

    def test_what_cannot_fit_is_refused_with_a_table_and_not_by_the_kernel(self):
        done = self.lockstep("embed", "--model", self.model, "--dataset", self.rows, "--output", self.folder / "out",
                             "--batch_size", "auto", "--memory_fraction", 0.0001, "--nproc", 4, expect=5)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)
        self.assertIn("one row needs", done.stderr)
        self.assertIn("--memory_fraction", done.stderr)


if __name__ == "__main__":
    main()

"""What transformers is asked for by name is the same here: labels that are smoothed, tokens that may not repeat, words that end an answer."""
import json

from lora_job import make_id_rows
from small_job import make_model, records, sft_words
from story import Story, main


class Choices(Story):
    def setUp(self):
        super().setUp()
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.model = make_model(self.folder, "qwen2")
        self.rows = make_id_rows(self.folder / "ids.jsonl")
        self.tokenizer = AutoTokenizer.from_pretrained(self.model)
        self.theirs = AutoModelForCausalLM.from_pretrained(self.model, dtype="float32").eval()

    def read(self):
        return [json.loads(line) for line in self.rows.read_text().splitlines()]

    def smoothed_loss(self, part):
        import torch
        from transformers.trainer_pt_utils import LabelSmoother
        total = count = 0
        for row in self.read():
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
            learnt = int((labels[:, 1:] != -100).sum())
            with torch.no_grad():
                total += LabelSmoother(epsilon=part)({"logits": self.theirs(input_ids=ids).logits}, labels, shift_labels=True).item() * learnt
            count += learnt
        return total / count

    def test_labels_are_smoothed(self):
        out = self.folder / "run"
        self.lockstep(*sft_words(self.model, self.rows, out, steps=1, nproc=2, learning_rate=0, per_device_train_batch_size=12, label_smoothing_factor=0.3,
                                 val_dataset=self.rows, eval_strategy="end", save_strategy="no"), expect=0)
        wanted = self.smoothed_loss(0.3)
        self.assertGreater(abs(wanted - self.smoothed_loss(0)), 1e-3)
        self.assertAlmostEqual(records(out)[1]["loss"], wanted, delta=2e-4)
        evaluated = [record["eval_loss"] for record in map(json.loads, (out / "logging.jsonl").read_text().splitlines()) if "eval_loss" in record]
        self.assertAlmostEqual(evaluated[-1], wanted, delta=2e-4)

    def answers(self, **flags):
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", "out.jsonl", "--max_new_tokens", 30, "--torch_dtype",
                      "float32", "--overwrite", "true", *words, cwd=self.folder, expect=0)
        return [json.loads(line)["response"] for line in (self.folder / "out.jsonl").read_text().splitlines()]

    def generated(self, **flags):
        import torch
        ends = self.theirs.generation_config.eos_token_id
        texts = []
        for row in self.read():
            prompt = row["input_ids"][:2]  # what stands before the first label
            made = self.theirs.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, 2, dtype=torch.long), max_new_tokens=30, do_sample=False,
                                        pad_token_id=0, tokenizer=self.tokenizer, **flags)[0, 2:].tolist()
            if made and made[-1] in (ends if isinstance(ends, list) else [ends]):
                made.pop()
            texts.append(self.tokenizer.decode(made))
        return texts

    def test_answers(self):
        plain = self.answers()
        self.assertEqual(plain, self.generated())
        apart = self.answers(no_repeat_ngram_size=2)
        self.assertNotEqual(apart, plain)
        self.assertEqual(apart, self.generated(no_repeat_ngram_size=2))
        word = next(text[at:at + 2] for text in plain for at in range(6, len(text) - 4) if text[at:at + 2].isascii() and text[at:at + 2].isprintable())
        stopped = self.answers(stop_words=word)
        self.assertNotEqual(stopped, plain)
        self.assertEqual(stopped, self.generated(stop_strings=[word]))


if __name__ == "__main__":
    main()

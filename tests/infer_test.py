"""Answers to files of prompts and in a conversation."""
import json

from small_job import make_model, make_rows
from story import Story, main


class Infer(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder, count=11)

    def answers(self, name, *words, expect=0):
        out = self.folder / name
        self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 5,
                      *words, expect=expect)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def test_each_row_is_answered_once_in_order_whatever_the_ranks(self):
        alone = self.answers("alone.jsonl", "--batch_size", 1)
        self.assertEqual([row["labels"] for row in alone][:3], ["red", "green", "number 2"])
        self.assertEqual(len(alone), 11)
        for name, words in {"batch": ["--batch_size", 4], "zero3": ["--nproc", 2, "--batch_size", 2],
                            "zero0": ["--nproc", 3, "--deepspeed", "zero0"]}.items():
            self.assertEqual(self.answers(name, *words), alone, name)

    def test_a_sampled_answer_depends_on_the_seed_alone(self):
        words = ["--temperature", 1.5, "--top_p", 0.9, "--seed", 7]
        alone = self.answers("alone.jsonl", *words)
        self.assertEqual(self.answers("ranks.jsonl", *words, "--nproc", 2, "--batch_size", 3), alone)
        self.assertNotEqual(self.answers("other.jsonl", *words[:-1], 8), alone)

    def test_a_row_that_cannot_be_used_is_left_out_and_said(self):
        with open(self.rows, "a") as out:
            out.write(json.dumps({"query": "<image>What?", "response": "x", "images": ["gone.png"]}) + "\n")
        out = self.folder / "answers.jsonl"
        words = ["infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 2]
        done = self.lockstep(*words, "--nproc", 2, expect=0)
        self.assertIn("1 rows could not be used", done.stdout)
        self.assertIn("gone.png", done.stdout)
        self.assertEqual(len(out.read_text().splitlines()), 11)
        out.unlink()
        done = self.lockstep(*words, "--nproc", 2, "--strict", "true", expect=3)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)
        self.assertFalse(out.exists())

    def test_a_conversation_ends_with_its_input(self):
        done = self.lockstep("infer", "--model", self.model, "--max_new_tokens", 3, "--nproc", 2,
                             input=f"Hello\n<image>{self.folder}/0.png What is it?\n<image>{self.folder}/gone.png And this?\nBye\n", expect=0)
        self.assertIn("gone.png", done.stdout)
        self.assertGreaterEqual(len(done.stdout.splitlines()), 4)


if __name__ == "__main__":
    main()

"""Answers to files of prompts and in a conversation."""
import json

from small_job import make_model, make_rows
from story import Story, kill_when_rows_are_kept, main, start


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

    def test_a_row_that_cannot_be_used_is_named_in_its_place(self):
        with open(self.rows, "a") as out:
            out.write(json.dumps({"query": "<image>What?", "response": "x", "images": ["gone.png"]}) + "\n")
        out = self.folder / "answers.jsonl"
        words = ["infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 2]
        done = self.lockstep(*words, "--nproc", 2, expect=0)
        self.assertIn("1 rows could not be used", done.stdout)
        self.assertIn("gone.png", done.stdout)
        answers = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([i for i, row in enumerate(answers) if "error" in row], [11])
        self.assertIn("gone.png", answers[11]["error"])
        out.unlink()
        done = self.lockstep(*words, "--nproc", 2, "--strict", "true", expect=3)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)
        self.assertFalse(out.exists())

    def test_a_run_that_is_killed_goes_on_where_it_stopped(self):
        whole = self.answers("whole.jsonl", "--batch_size", 2)
        words = ["infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", self.folder / "cut.jsonl",
                 "--max_new_tokens", 5, "--batch_size", 2]
        process = start(*words, "--nproc", 2)
        journal = self.folder / "cut.jsonl.unfinished"
        kill_when_rows_are_kept(process, journal)
        if journal.exists():  # else it was done before it was killed
            done = self.lockstep(*words[:-1], 4, expect=2)
            self.assertIn("batch_size: 2 there, 4 now", done.stderr)
        self.assertEqual(self.answers("cut.jsonl", "--batch_size", 2, "--nproc", 3), whole)
        self.assertFalse(journal.exists())

    def test_a_rank_with_more_to_do_than_the_others_may_take_longer_than_their_patience(self):
        """Ranks that hold the whole model meet only at the end, and every other row has nothing to answer."""
        with open(self.rows, "w") as out:
            for i in range(24):
                out.write(json.dumps({"query": "<image>What?", "images": ["gone.png"]} if i % 2 == 0 else {"query": "Say on."}) + "\n")
        out = self.folder / "answers.jsonl"
        done = self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--batch_size", 1,
                             "--max_new_tokens", 600, "--nproc", 2, "--deepspeed", "zero0", "--patience", 2,
                             "--soft_patience", 1, expect=0)
        self.assertIn("rank 0 waits", done.stderr)
        self.assertEqual(len([line for line in out.read_text().splitlines() if '"error"' in line]), 12)

    def test_no_prompts_give_no_answers(self):
        self.rows.write_text("")
        self.assertEqual(self.answers("none.jsonl", "--nproc", 2), [])

    def test_a_conversation_ends_with_its_input(self):
        done = self.lockstep("infer", "--model", self.model, "--max_new_tokens", 3, "--nproc", 2,
                             input=f"Hello\n<image>{self.folder}/0.png What is it?\n<image>{self.folder}/gone.png And this?\nBye\n", expect=0)
        self.assertIn("gone.png", done.stdout)
        self.assertGreaterEqual(len(done.stdout.splitlines()), 4)


if __name__ == "__main__":
    main()

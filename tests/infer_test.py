"""Answers to files of prompts and in a conversation."""
import json
import os
import re
from pathlib import Path

from small_job import make_model, make_rows, png, sft_words
from story import Story, kill_when_rows_are_kept, main, start


class Infer(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder, count=11)

    def answers(self, name, *words, expect=0, tokens=5):
        out = self.folder / name
        self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", tokens,
                      *words, expect=expect)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def test_each_row_is_answered_once_in_order_whatever_the_ranks(self):
        alone = self.answers("alone.jsonl", "--batch_size", 1)
        self.assertEqual([row["labels"] for row in alone][:3], ["red", "green", "number 2"])
        self.assertEqual(len(alone), 11)
        for name, words in {"batch": ["--batch_size", 4], "zero3": ["--nproc", 2, "--batch_size", 2],
                            "zero0": ["--nproc", 3, "--deepspeed", "zero0"]}.items():
            self.assertEqual(self.answers(name, *words), alone, name)

    def test_a_row_that_looks_back_a_window_is_answered_alike_beside_any_others(self):
        self.model = make_model(self.folder, "mistral")
        config = self.model / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "sliding_window": 6}))
        self.rows = make_rows(self.folder, count=7, images=False)
        alone = self.answers("alone.jsonl", "--batch_size", 1, tokens=20)
        self.assertGreater(len({row["response"] for row in alone}), 3)
        for name, words in {"batch": ["--batch_size", 4], "zero3": ["--nproc", 2, "--batch_size", 3, "--deepspeed", "zero3"]}.items():
            self.assertEqual(self.answers(name, *words, tokens=20), alone, name)

    def test_rows_that_training_kept_apart_are_asked_again(self):
        run = self.folder / "run"
        self.lockstep(*sft_words(self.model, self.rows, run, steps=3, nproc=2, tuner_type="full", split_dataset_ratio=4, eval_strategy="steps", eval_steps=3,
                                 save_steps=3), expect=0)
        kept = [json.loads(line) for line in (run / "val_dataset.jsonl").read_text().splitlines()]
        self.assertEqual(len(kept), 4)
        self.assertTrue(all(Path(image).is_absolute() for row in kept for image in row.get("images", [])))
        asked = [row["labels"] for row in self.answers("all.jsonl")]
        last = [record for record in map(json.loads, (run / "logging.jsonl").read_text().splitlines()) if "eval_loss" in record][-1]
        self.rows.write_text("")  # what training read may be gone
        words = ("--model", run / "checkpoint-3", "--load_data_args", "true")
        again = json.loads(self.lockstep("eval", *words, "--json", expect=0).stdout)
        self.assertAlmostEqual(again["loss"], last["eval_loss"], places=6)
        out = self.folder / "kept.jsonl"
        self.lockstep("infer", *words, "--result_path", out, "--max_new_tokens", 2, expect=0)
        answered = [json.loads(line)["labels"] for line in out.read_text().splitlines()]
        self.assertEqual(answered, [row["messages"][-1]["content"] for row in kept])
        self.assertTrue(set(answered) <= set(asked))

    def test_a_sampled_answer_depends_on_the_seed_alone(self):
        words = ["--temperature", 1.5, "--top_p", 0.9, "--seed", 7]
        alone = self.answers("alone.jsonl", *words)
        self.assertEqual(self.answers("ranks.jsonl", *words, "--nproc", 2, "--batch_size", 3), alone)
        self.assertNotEqual(self.answers("other.jsonl", *words[:-1], 8), alone)

    def test_an_answer_that_did_not_come_to_its_end_says_so(self):
        drawn = ["--temperature", 30, "--seed", 5, "--batch_size", 4]  # nearly evenly, so that some end by chance and others do not
        short, long = (self.answers(f"{tokens}.jsonl", *drawn, tokens=tokens) for tokens in (60, 300))
        cut = [row.pop("finish_reason", "") == "length" for row in short]
        self.assertIn(True, cut)
        self.assertIn(False, cut)
        for row, longer, was_cut in zip(short, long, cut):
            longer.pop("finish_reason", None)
            self.assertEqual(row != longer, was_cut, (row, longer))
            kept = row["response"][:-4] if was_cut else row["response"]  # what follows changes how the last bytes read
            self.assertTrue(longer["response"].startswith(kept.rstrip("\ufffd")), (row, longer))
        drawn[-1:] = [4, "--max_new_tokens", 60]
        said = f"{sum(cut)} of the 11 answers did not come to their end"
        done = self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", self.folder / "again.jsonl", *drawn, expect=0)
        self.assertIn(said, done.stdout)
        done = self.lockstep("eval", "--model", self.model, "--val_dataset", self.rows, "--predict_with_generate", "true", *drawn, expect=0)
        self.assertIn(said, done.stderr)
        for words, asked in ((["--prompt", "Say 1."], None), ([], "Say 1.\n")):
            done = self.lockstep("infer", "--model", self.model, "--max_new_tokens", 1, *words, input=asked, expect=0)
            self.assertIn("the answer did not come to its end: --max_new_tokens 1 cut it", done.stderr)

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
            for more, name in ((["--use_chat_template", "false"], "chat_template"), (["--skip_special_tokens", "true"], "skip_special_tokens"),
                               (["--quant_method", "bnb", "--quant_bits", 4], "quantised")):
                self.assertIn(f"{name}: ", self.lockstep(*words, *more, expect=2).stderr)
        self.assertEqual(self.answers("cut.jsonl", "--batch_size", 2, "--nproc", 3), whole)
        self.assertFalse(journal.exists())

    def test_without_a_name_for_its_result_a_run_goes_on_as_well(self):
        words = ["infer", "--model", self.model, "--val_dataset", self.rows, "--max_new_tokens", 5, "--batch_size", 2]
        place = self.folder / "result" / Path(self.model).name / "infer_result"
        self.lockstep(*words, "--result_path", place / "first.jsonl", expect=0)
        whole = (place / "first.jsonl").read_text()
        process = start(*words, "--result_path", place / "20260101-000000.jsonl", cwd=self.folder)
        journal = place / "20260101-000000.jsonl.unfinished"
        kill_when_rows_are_kept(process, journal)
        if journal.exists():
            self.lockstep(*words, cwd=self.folder, expect=0)
            self.assertEqual((place / "20260101-000000.jsonl").read_text(), whole)
            self.assertEqual(len(list(place.iterdir())), 2, list(place.iterdir()))

    def test_a_result_that_is_no_file_is_refused(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for verb, flag in (("infer", "--result_path"), ("eval", "--output")):
            done = self.lockstep(verb, "--model", self.model, "--val_dataset", self.rows, "--max_new_tokens", 2, flag, pipe, expect=2)
            self.assertIn(f"{flag} {pipe}: expected the name of a file, found a pipe", done.stderr)
        self.assertTrue(pipe.is_fifo())

    def test_vectors_that_are_gone_are_made_again(self):
        out = self.folder / "vectors"
        words = ["embed", "--model", self.model, "--dataset", self.rows, "--output", out]
        self.lockstep(*words, expect=0)
        first = (out / "embeddings.jsonl").read_text()
        (out / "embeddings.jsonl").unlink()
        self.lockstep(*words, expect=0)
        self.assertEqual((out / "embeddings.jsonl").read_text(), first)
        (out / "embed.json").unlink()
        self.assertIn("embeddings.jsonl: is there, and no embed.json says of which run", self.lockstep(*words, expect=2).stderr)
        self.assertEqual((out / "embeddings.jsonl").read_text(), first)
        self.lockstep(*words, "--overwrite", "true", expect=0)

    def test_an_answer_s_row_asks_the_same_again(self):
        call = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Rome"}}}
        row = {"messages": [{"role": "user", "content": "And in Rome?"}, {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Ask."},
                            {"role": "tool", "content": "sunny"}], "chat_template_kwargs": {"max_pixels": 3136}, "images": ["rows.png"],
               "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}]}
        self.model = make_model(self.folder, "qwen2_5_vl")
        (self.folder / "rows.png").write_bytes(png(90, 80, (200, 30, 30)))
        self.rows = self.folder / "asked.jsonl"
        self.rows.write_text(json.dumps(row) + "\n")
        first = self.answers("first.jsonl")
        turn = first[0]["messages"][1]
        self.assertEqual((turn["tool_calls"][0]["function"], turn["reasoning_content"]), (call["function"], "Ask."))
        self.assertEqual((first[0]["tools"], first[0]["chat_template_kwargs"]), (row["tools"], row["chat_template_kwargs"]))
        self.rows = self.folder / "first.jsonl"
        self.assertEqual(self.answers("second.jsonl")[0]["response"], first[0]["response"])

    def test_ranks_of_one_host_read_the_weights_in_one_place(self):
        """Or gather them for each use: the same answers, and of the model each rank answers for its part."""
        self.rows = make_rows(self.folder, count=7, images=False)
        alone = self.answers("alone.jsonl", "--batch_size", 2)
        model = sum(file.stat().st_size for file in self.model.glob("*.safetensors"))
        held = {}
        for name, words in {"shared": [], "gathered": ["--shared_weights", "false"], "whole": ["--deepspeed", "zero0"]}.items():
            out = self.folder / f"{name}.jsonl"
            done = self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 5,
                                 "--batch_size", 2, "--nproc", 3, *words, expect=0)
            self.assertEqual([json.loads(line) for line in out.read_text().splitlines()], alone, name)
            self.assertEqual("  gather  " in done.text, name == "gathered", done.text)
            held[name] = float(re.search(r"memory: cpu measured ([\d.]+) MiB", done.text)[1])
        self.assertLess(held["shared"], held["gathered"])
        self.assertLess(held["shared"], held["whole"] - model / 2**21, "half of the model is not there twice")

    def test_a_rank_with_more_to_do_than_the_others_may_take_longer_than_their_patience(self):
        """Ranks that hold the whole model meet only at the end, and every other row has nothing to answer."""
        with open(self.rows, "w") as out:
            for i in range(24):
                out.write(json.dumps({"query": "<image>What?", "images": ["gone.png"]} if i % 2 == 0 else {"query": "Say on."}) + "\n")
        out = self.folder / "answers.jsonl"
        done = self.lockstep("infer", "--model", self.model, "--val_dataset", self.rows, "--result_path", out, "--batch_size", 1,
                             "--max_new_tokens", 600, "--nproc", 2, "--deepspeed", "zero0", "--patience", 2,
                             "--soft_patience", 0.2, expect=0)
        self.assertIn("rank 0 waits", done.stderr)
        self.assertEqual(len([line for line in out.read_text().splitlines() if '"error"' in line]), 12)

    def test_a_text_that_nobody_asked_for_is_embedded_and_continued_as_it_stands(self):
        texts = self.folder / "texts.txt"
        texts.write_text("Cats purr.\nStocks fell sharply today.\n")
        found = []
        for name, words in {"rendered": [], "plain": ["--use_chat_template", "false"]}.items():
            out = self.folder / name
            self.lockstep("embed", "--model", self.model, "--dataset", texts, "--output", out, *words, expect=0)
            found.append([json.loads(line) for line in (out / "embeddings.jsonl").read_text().splitlines()])
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0][0]["embedding"], found[0][1]["embedding"])
        self.rows = texts
        for row, text in zip(self.answers("continued.jsonl"), ("Cats purr.", "Stocks fell sharply today.")):
            self.assertEqual((row["labels"], row["messages"]), (None, [{"role": "assistant", "content": text + row["response"]}]))

    def test_no_prompts_give_no_answers(self):
        self.rows.write_text("")
        self.assertEqual(self.answers("none.jsonl", "--nproc", 2), [])

    def test_a_question_is_the_same_whichever_way_it_is_asked(self):
        """For each family: by flags, with the mark or without, by a path, in a chat, and as rows of a file."""
        picture, question = self.folder / "0.png", "What colour is it?"
        rows = self.folder / "one.jsonl"
        for family in ("llava", "qwen2_5_vl", "internvl", "minicpm_v_2_6", "minicpm_o_2_6", "omnilmm", "qwen2_5_omni"):
            model = make_model(self.folder / "each", family)
            mark = "<image>\n" if family == "omnilmm" else "<image>"  # its authors' code breaks the line where no mark stands, and nowhere else
            rows.write_text("".join(json.dumps(row) + "\n" for row in (
                {"query": mark + question, "images": [str(picture)]}, {"query": question, "images": [str(picture)]})))
            base = ["infer", "--model", model, "--max_new_tokens", 8]
            out = self.folder / f"{family}.jsonl"
            self.lockstep(*base, "--val_dataset", rows, "--result_path", out, expect=0)
            whole, unmarked = (json.loads(line)["response"].strip() for line in out.read_text().splitlines())
            self.assertEqual(unmarked, whole)
            for words, said in ((["--prompt", question, "--image", picture], None), (["--prompt", mark + question, "--image", picture], None),
                                (["--prompt", f"<image>{picture} {question}"], None), ([], f"<image>{picture} {question}\n"),
                                ([], f'<image>"{picture}"{question}\n'), (["--image", picture], question + "\n")):
                with self.subTest(family=family, words=words, said=said):
                    self.assertEqual(self.lockstep(*base, *words, input=said, expect=0).stdout.strip(), whole)

    def test_what_is_wrong_with_a_question_is_said(self):
        base = ["infer", "--model", self.model, "--max_new_tokens", 3]
        done = self.lockstep(*base, "--prompt", "<image>What is it?", expect=3)
        self.assertIn("expected the path of a picture behind <image>", done.stderr)
        done = self.lockstep(*base, "--prompt", "What?", "--image", self.folder / "gone.png", expect=3)
        self.assertIn("gone.png: no such file", done.stderr)
        done = self.lockstep(*base, "--prompt", "<image> and <image>?", "--image", self.folder / "0.png", expect=3)
        self.assertIn("2 <image> marks and 1 picture", done.stderr)

    def test_commands_of_a_conversation(self):
        done = self.lockstep("infer", "--model", self.model, "--max_new_tokens", 3, input="/help\n/claer\n/quit\nHello\n", expect=0)
        self.assertEqual(done.stdout.count("shows a picture"), 2, done.text)
        self.assertIn("there is no command /claer; did you mean /clear?", done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 3, done.text)
        answers = [self.lockstep("infer", "--model", self.model, "--max_new_tokens", 3, input=f"Hello{end}/help{end}", expect=0).stdout for end in ("\n", "\r\n")]
        self.assertEqual(*answers)

    def test_a_conversation_ends_with_its_input(self):
        done = self.lockstep("infer", "--model", self.model, "--max_new_tokens", 3, "--nproc", 2,
                             input=f"Hello\n<image>{self.folder}/0.png What is it?\n<image>{self.folder}/gone.png And this?\nBye\n", expect=0)
        self.assertIn("gone.png", done.stdout)
        self.assertGreaterEqual(len(done.stdout.splitlines()), 4)


if __name__ == "__main__":
    main()

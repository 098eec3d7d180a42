"""Rows and files that people already have, through the command that they use: what is trained is shown in double brackets with the first row."""
import csv
import json
import random
import re
import unittest

from small_job import make_model, make_rows, png, records, sft_words
from story import FIXTURES, Story, main



def first_row(done):
    """The first row's text as the run prints it."""
    at = done.text.index("first row, ")
    text = done.text[at:]
    return text[text.index(": ") + 2:]


class Rows(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder, "qwen2_5_vl")
        (self.folder / "a.png").write_bytes(png(100, 60, (200, 30, 30)))

    def write(self, *rows, name="rows.jsonl"):
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def train(self, rows, env=None, expect=0, **flags):
        self.count = getattr(self, "count", 0) + 1
        return self.lockstep(*sft_words(self.model, rows, self.folder / f"run{self.count}", steps=1, save_strategy="no", **flags), env=env,
                             expect=expect)

    def shown(self, *rows, env=None, **flags):
        return first_row(self.train(self.write(*rows, *rows), env=env, **flags))

    def test_what_was_read_with_another_meaning_is_read_as_meant(self):
        for row in ({"query": "q", "response": "a", "system_prompt": "Be brief."},
                    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"},
                                  {"role": "assistant", "content": "a"}]}):
            self.assertIn("<|im_start|>system\nBe brief.<|im_end|>", self.shown(row))
        self.assertIn("<|vision_start|><image ×", self.shown({"query": "<img>a.png</img>q", "response": "a"}))
        picture = {"query": "<image>q", "response": "a", "images": ["a.png"]}
        patches = [int(re.search(r"<image ×(\d+)>", self.shown({**picture, "chat_template_kwargs": kwargs}))[1])
                   for kwargs in ({}, {"max_pixels": 3136}, {"min_pixels": 50000})]
        self.assertLess(patches[1], patches[0])
        self.assertGreater(patches[2], patches[0])
        shown = self.shown({"messages": [{"role": "user", "content": "draw"}, {"role": "assistant", "content": "here <image> it is"}],
                            "images": ["a.png"]})
        self.assertRegex(shown, r"\[\[here \]\]<\|vision_start\|><image ×\d+><\|vision_end\|>\[\[ it is<\|im_end\|>\]\]")

    def test_a_column_that_no_form_reads_is_named_once(self):
        row = {"query": "q", "response": "a", "imagez": ["a.png"]}
        done = self.train(self.write(row, row, row))
        self.assertEqual(done.text.count("not read: imagez"), 1)

    def test_a_variable_that_the_template_does_not_read_is_refused(self):
        done = self.train(self.write({"query": "q", "response": "a", "chat_template_kwargs": {"mood": 1}}), expect=None)
        self.assertIn('field "chat_template_kwargs.mood": expected fps', done.text)

    def test_boxes_follow_their_picture_through_resizing(self):
        # ms-swift#3659 #4898 #5008, Qwen3-VL#721: boxes of the file's picture, where the model sees another.
        row = {"query": "<image>find <ref-object>", "response": "<bbox> <bbox>", "images": ["a.png"],
               "objects": {"ref": ["the cat"], "bbox": [[10, 20, 50, 30], [100, 60]]}}
        small = {"MAX_PIXELS": 3136}
        legacy = self.shown(row)
        self.assertIn("<|object_ref_start|>the cat<|object_ref_end|>", legacy)
        # 100 x 60 is resized to 112 x 56: multiples of 28 (patch 14, merge 2).
        self.assertIn("<|box_start|>(11,19),(56,28)<|box_end|> <|box_start|>(112,56)<|box_end|>", legacy)
        self.assertIn("find the cat", self.shown(row, env={"QWENVL_BBOX_FORMAT": "new"}))
        self.assertIn("[11, 19, 56, 28] [112, 56]", self.shown(row, env={"QWENVL_BBOX_FORMAT": "new"}))
        self.assertIn("(100,333),(500,500)", self.shown(row, norm_bbox="norm1000"))
        # Whatever the picture is shrunk to, the box keeps its place in it.
        boxes = [int(one) for one in re.search(r"\((\d+),(\d+)\),\((\d+),(\d+)\)", self.shown(row, env=small)).groups()]
        self.assertEqual([round(boxes[0] / boxes[2], 1), boxes[2] * 2], [0.2, int(re.search(r"> <\|box_start\|>\((\d+)", self.shown(row, env=small))[1])])
        norm = {**row, "objects": {"ref": ["the cat"], "bbox": [[0.1, 0.5, 0.5, 1], [1, 1]], "bbox_type": "norm1"}}
        self.assertIn("(11,28),(56,56)<|box_end|> <|box_start|>(112,56)", self.shown(norm))
        done = self.train(self.write({**row, "objects": {"ref": ["the cat"], "bbox": [[1, 2, 3, 4]]}}), expect=3)
        self.assertIn('field "objects.bbox": expected one for each <bbox> in the texts, found 1 and 2 mark(s)', done.text)

    def test_internvl_writes_boxes_and_names_its_own_way(self):
        self.model = make_model(self.folder, "internvl")
        row = {"query": "<image>find <ref-object>", "response": "<bbox>", "images": ["a.png"],
               "objects": {"ref": ["the cat"], "bbox": [[10, 20, 50, 30]]}}
        shown = self.shown(row)
        self.assertIn("<ref>the cat</ref>", shown)
        self.assertIn("[[<box>[[100, 333, 500, 500]]</box>", shown)
        shown = self.shown({"messages": [{"role": "user", "content": "draw"}, {"role": "assistant", "content": "here <image> it is"}],
                            "images": ["a.png"]})
        self.assertIn("[[here ]]<img><image ×", shown)
        self.assertIn("></img>\n[[ it is<|im_end|>]]", shown)  # the line break is the template's

    def test_turns_count_as_their_loss_scale_says(self):
        def loss(first, second):
            turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "red red", **first},
                     {"role": "user", "content": "r"}, {"role": "assistant", "content": "blue", **second}]
            self.train(self.write({"messages": turns}, {"messages": turns}), per_device_train_batch_size=2)
            return records(self.folder / f"run{self.count}")[1]["loss"]

        whole, half, none = loss({}, {}), loss({"loss_scale": 0.5}, {"loss_scale": 2.0}), loss({"loss": False}, {})
        alone = loss({}, {"loss": False})
        # Sums over the tokens of each turn; the mean is over all that are trained.
        self.assertAlmostEqual(loss({"loss_scale": 1.0}, {"loss_scale": 1}), whole, places=6)
        self.assertAlmostEqual(loss({"loss_scale": 0.5}, {"loss_scale": 0.5}), whole / 2, places=5)
        first, second = self.parts(whole, alone, none)
        self.assertAlmostEqual(half, 0.5 * first + 2 * second, places=5)

    def parts(self, whole, alone, none):
        """Shares of both turns in the mean, from the means of each by itself: whole = w alone + (1 - w) none."""
        share = (whole - none) / (alone - none)
        return share * alone, (1 - share) * none

    def test_files_of_every_kind_give_the_same_rows(self):
        self.write({"query": "q", "response": "a"}, {"query": "r, \"s\"", "response": "b"})
        (self.folder / "rows.csv").write_text('query,response\nq,a\n"r, ""s""",b\n')
        (self.folder / "mine.jsonl").write_text('{"my_q": "q", "my_a": "a"}\n{"my_q": "r, \\"s\\"", "my_a": "b"}\n')
        (self.folder / "dataset_info.json").write_text(json.dumps(
            {"named": {"file_name": "mine.jsonl", "columns": {"prompt": "my_q", "response": "my_a"}}}))
        (self.folder / "info.json").write_text(json.dumps(
            [{"dataset_name": "swift_named", "dataset_path": "mine.jsonl", "columns": {"my_q": "query", "my_a": "response"}}]))
        (self.folder / "folder").mkdir()
        (self.folder / "folder" / "train.csv").write_bytes((self.folder / "rows.csv").read_bytes())
        (self.folder / "folder" / "test.csv").write_text("query,response\nno,no\n")
        columns = json.dumps({"my_q": "query", "my_a": "response"})
        ways = {"jsonl": (self.folder / "rows.jsonl", {}), "csv": (self.folder / "rows.csv", {}), "folder": (self.folder / "folder", {}),
                "name": ("named", {"dataset_dir": self.folder}), "swift": ("swift_named", {"custom_dataset_info": self.folder / "info.json"}),
                "columns": (self.folder / "mine.jsonl", {"columns": columns}),
                "columns as Python writes them": (self.folder / "mine.jsonl", {"columns": str(json.loads(columns))})}
        losses = {}
        for name, (rows, flags) in ways.items():
            with self.subTest(name):
                self.train(rows, per_device_train_batch_size=2, dataset_shuffle="false", **flags)
                losses[name] = records(self.folder / f"run{self.count}")[1]["loss"]
                self.assertEqual(losses[name], losses["jsonl"])

    def test_tables_give_the_rows_of_their_json_lines_in_the_same_order(self):
        losses = {}
        for kind in ("jsonl", "parquet", "arrow"):
            run = self.folder / kind
            done = self.lockstep(*sft_words(self.model, FIXTURES / "tables" / f"talk.{kind}", run, steps=6, save_strategy="no", nproc=2))
            if "is neither beside the program" in done.text:
                raise unittest.SkipTest("liblockstep_arrow.so is not built")
            self.assertEqual(done.returncode, 0, done.text)
            losses[kind] = {step: record["loss"] for step, record in records(run).items()}
        self.assertEqual(len(losses["jsonl"]), 6)
        self.assertEqual(losses["parquet"], losses["jsonl"])
        self.assertEqual(losses["arrow"], losses["jsonl"])

    def test_csv_is_read_as_the_csv_module_reads_it(self):
        draw = random.Random(5)
        words = ["a", "é", ",", '"', '""', "\n", "\r\n", " ", "'", ";", "\t", "x y", "日本"]
        rows = [["query", "response"]] + [["q" + "".join(draw.choices(words, k=draw.randrange(8))) + "q",
                                           "".join(draw.choices(words, k=draw.randrange(1, 8))) + "a"] for _ in range(60)]
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
            path, answers = self.folder / "rows.csv", self.folder / f"answers{quoting}.jsonl"
            with open(path, "w", newline="", encoding="utf-8") as out:
                csv.writer(out, quoting=quoting).writerows(rows)
            with open(path, newline="", encoding="utf-8") as again:
                self.assertEqual(list(csv.reader(again)), rows)
            self.lockstep("infer", "--model", self.model, "--val_dataset", path, "--result_path", answers, "--max_new_tokens", 1, expect=0)
            read = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
            self.assertEqual([[row["messages"][0]["content"], row["labels"]] for row in read], rows[1:])

    def test_rows_are_drawn_as_ms_swift_draws_and_it_is_said(self):
        rows = make_rows(self.folder, 12, images=False, name="many.jsonl")
        said = self.train(f"{rows}#4").text
        self.assertIn("4 of 12 rows, chosen at random by --data_seed 42", said)
        self.assertNotIn("chosen at random", self.train(f"{rows}#4", dataset_shuffle="false").text)
        self.assertIn("by --data_seed 7", self.train(f"{rows}#4", data_seed=7).text)

    def test_bad_files_are_told_with_line_and_cure(self):
        cases = {"broken.csv": ('query,response\nq,a\n"q,a\n', ["broken.csv:3: expected a closing quote", "written twice"]),
                 "cut.parquet": (b"PAR1" + b"\0" * 50, ["cut.parquet: expected a Parquet or Arrow file", "is the file complete?"])}
        for name, (text, parts) in cases.items():
            path = self.folder / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            done = self.train(path, expect=3)
            for part in parts:
                if "is neither beside the program" not in done.text:
                    self.assertIn(part, done.text)
        (self.folder / "dataset_info.json").write_text('{"gone": {"file_name": "no.json"}}')
        self.assertIn("expected the file or folder", self.train("gone", dataset_dir=self.folder, expect=3).text)
        done = self.train(self.write({"query": "q", "response": "a", "tools": "[{"}), expect=3)
        self.assertIn('field "tools": expected a list of functions as JSON', done.text)


if __name__ == "__main__":
    main()

"""Incident I1: an evaluation with metadata beside the labels and a metric of one's own sat in an all-gather for ever.

The rows' metadata is whatever people put there: nested, of uneven length, missing on some rows, so that ranks hold
different structures. The metric is a program that needs it.
"""
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from small_job import make_model, png, records, sft_words  # noqa: E402
from story import Story, main  # noqa: E402

# With two ranks and two rows at a time, rank 1 begins with two rows that have none.
METADATA = [{"page": [1, 2, 3], "source": {"name": "a", "licence": None}}, "a string", "missing", "missing", 7, None,
            [[1], [2, 3], []], {"page": []}, "missing", {"weight": 0.5}, ["x", "y"]]
METRIC = """#!/usr/bin/env python3
import json, sys
rows = [json.loads(line) for line in sys.stdin]
pages = sum(len(row["metadata"].get("page", [])) for row in rows if isinstance(row.get("metadata"), dict))
print(json.dumps({"asked": len(rows), "pages": pages, "wheres": [row["where"].split(":")[-1] for row in rows],
                  "seen": [row.get("metadata", "missing") for row in rows], "accuracy": sum(row["response"] == row["label"]
                  for row in rows) / len(rows)}))
"""


class MetadataBesideTheLabels(Story):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keep = tempfile.TemporaryDirectory(prefix="lockstep_i1_")
        cls.addClassCleanup(cls.keep.cleanup)
        cls.model = make_model(Path(cls.keep.name))

    def write_rows(self, count=len(METADATA), name="rows.jsonl"):
        """Two of three rows have a picture, the first two of them two."""
        path = self.folder / name
        with open(path, "w") as out:
            for i in range(count):
                row = {"query": f"What is this, {i}?" + " Look." * (i % 4), "response": ["A", "(B)", "a cat"][i % 3]}
                if i % 3 != 2:
                    row["images"] = [f"{i}.png"] * (2 if i < 2 else 1)
                    (self.folder / f"{i}.png").write_bytes(png(20 + i, 30, (20 * i, 90, 200)))
                if METADATA[i] != "missing":
                    row["metadata"] = METADATA[i]
                out.write(json.dumps(row) + "\n")
        return path

    def metric(self, text=METRIC, name="my_metric.py"):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def evaluate(self, rows, nproc, *more, expect=0, stage="zero3"):
        return self.lockstep("eval", "--model", self.model, "--val_dataset", rows, "--nproc", nproc, "--deepspeed", stage,
                             "--per_device_eval_batch_size", 2, "--max_new_tokens", 4, *more, expect=expect)

    def fail(self, metric, *more):
        """The evaluation's error on two ranks: told once, with the exit code of bad data."""
        done = self.evaluate(self.write_rows(), 2, "--metric", metric, *more, expect=3)
        self.assertEqual(done.stderr.count("error: "), 1, done.text)
        self.assertNotIn("loss", done.stdout)
        return done.stderr

    def test_it_ends_in_order_with_the_same_figures_on_any_ranks(self):
        rows, metric, expected = self.write_rows(), self.metric(), None
        for nproc, stage in ((1, "zero3"), (2, "zero3"), (3, "zero3"), (4, "zero3"), (2, "zero0"), (3, "zero0")):
            output = self.folder / f"{stage}_{nproc}.jsonl"
            done = self.evaluate(rows, nproc, "--metric", metric, "--output", output, "--json", stage=stage)
            figures = json.loads(done.stdout)
            for name in ("seconds", "communication"):
                figures.pop(name, None)
            lines = output.read_text()
            if expected is None:
                expected = figures, lines
            self.assertEqual((figures, lines), expected, f"{nproc} ranks, {stage}")
        self.assertEqual(figures["asked"], len(METADATA))
        self.assertEqual(figures["pages"], 3)
        self.assertEqual(figures["wheres"], [str(i + 1) for i in range(len(METADATA))])
        self.assertEqual(figures["seen"], METADATA)
        for name in ("loss", "perplexity", "token_acc", "exact_match", "anls", "rouge_l", "multiple_choice"):
            self.assertIsInstance(figures[name], float, name)
        written = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual([row["row"] for row in written], list(range(len(METADATA))))
        self.assertEqual([row.get("metadata", "missing") for row in written], METADATA)
        self.assertEqual([row["label"] for row in written][:3], ["A", "(B)", "a cat"])
        self.assertEqual(len(written[0]["images"]), 2)

    def test_a_table_has_the_metric_beside_the_others(self):
        done = self.evaluate(self.write_rows(), 2, "--metric", self.metric())
        for part in ("loss ", "perplexity ", "exact match ", "anls ", "multiple_choice  0.0000 (8 rows)", "pages            3"):
            self.assertIn(part, done.stdout)

    def test_training_logs_the_metric_at_each_evaluation(self):
        rows = self.write_rows()
        done = self.lockstep(*sft_words(self.model, rows, self.folder / "out", steps=2, nproc=2, val_dataset=rows, eval_steps=1,
                                        predict_with_generate="true", max_new_tokens=2, metric=self.metric(),
                                        save_strategy="no", eval_strategy="steps", logging_steps=1), expect=0)
        self.assertEqual(len(records(self.folder / "out")), 2)
        log = [json.loads(line) for line in (self.folder / "out" / "logging.jsonl").read_text().splitlines()]
        evaluations = [record for record in log if "eval_loss" in record and "global_step/max_steps" in record]
        self.assertEqual(len(evaluations), 2, log)
        for record in evaluations:
            self.assertEqual((record["eval_pages"], record["eval_asked"]), (3, len(METADATA)))
            self.assertIn("eval_anls", record)
        self.assertIn("the metric seen is no number and is not logged", done.stdout)

    def test_rows_that_cannot_be_used_are_listed_and_the_others_measured(self):
        rows = self.write_rows()
        lines = rows.read_text().splitlines()
        lines[4] = json.dumps({"query": "<image>gone?", "response": "x", "images": ["gone.png"], "metadata": {"kept": True}})
        lines[6] = "{ not JSON"
        rows.write_text("\n".join(lines) + "\n")
        output = self.folder / "out.jsonl"
        done = self.evaluate(rows, 3, "--metric", self.metric(), "--output", output, "--json")
        self.assertEqual(json.loads(done.stdout)["wheres"], ["1", "2", "3", "4", "6", "8", "9", "10", "11"])
        written = [json.loads(line) for line in output.read_text().splitlines()]
        self.assertEqual([row["where"].split(":")[-1] for row in written], [str(i + 1) for i in range(len(METADATA))])
        self.assertEqual([i for i, row in enumerate(written) if "error" in row], [4, 6])
        self.assertIn("gone.png", written[4]["error"])
        self.assertEqual(written[4]["metadata"], {"kept": True})
        self.assertIn("2 of the rows could not be used, the first: ", done.stderr)

    def test_fewer_rows_than_ranks(self):
        done = self.evaluate(self.write_rows(count=1), 4, "--metric", self.metric(), "--json")
        self.assertEqual(json.loads(done.stdout)["asked"], 1)

    def test_no_usable_row_is_an_error_on_all_ranks_at_once(self):
        rows = self.write_rows(count=2)
        for i in range(2):
            (self.folder / f"{i}.png").unlink()
        done = self.evaluate(rows, 3, "--metric", self.metric(), expect=3)
        self.assertEqual(done.stderr.count("error: "), 1, done.text)
        self.assertIn("none of the 2 rows could be used; the first: ", done.stderr)
        self.assertIn("0.png", done.stderr)

    def test_a_metric_that_crashes_is_quoted(self):
        error = self.fail(self.metric("#!/usr/bin/env python3\nimport json, sys\n"
                                      "print(sum(json.loads(line)['metadata']['page'] for line in sys.stdin))\n"))
        for part in ("my_metric.py: ended with exit code 1", "TypeError", "--output predictions.jsonl"):
            self.assertIn(part, error)

    def test_a_metric_that_prints_rubbish_is_quoted(self):
        error = self.fail(self.metric("#!/bin/sh\ncat > /dev/null\necho 'score: 5'\n"))
        self.assertIn(r'expected a JSON object on standard output, found "score: 5\n"', error)

    def test_a_metric_that_hangs_is_killed(self):
        error = self.fail(self.metric("#!/bin/sh\nsleep 1000 &\nwait\n"), "--metric_timeout", 2)
        self.assertIn("was still running after 2.0s and was killed", error)
        self.assertIn("--metric_timeout", error)

    def test_a_slow_metric_does_not_try_the_patience_of_the_ranks(self):
        metric = self.metric("#!/bin/sh\nsleep 4\necho '{\"slow\": 1}'\n")  # reads nothing
        done = self.evaluate(self.write_rows(), 2, "--metric", metric, "--patience", 2, "--soft_patience", "1.5", "--json")
        self.assertEqual(json.loads(done.stdout)["slow"], 1)
        self.assertIn("has been running for 2.0s", done.stderr)
        blamed = [line for line in done.stderr.splitlines() if "rank 1" in line and not line.startswith("memory: ")]
        self.assertEqual(blamed, [])

    def test_a_metric_that_cannot_be_started_is_met_before_the_model_is_loaded(self):
        metric = self.metric()
        metric.chmod(0o644)
        rows = self.write_rows()
        done = self.evaluate(rows, 2, "--metric", metric, expect=2)
        self.assertIn("is not executable", done.stderr)
        self.assertIn(f"chmod +x {metric}", done.stderr)
        done = self.evaluate(rows, 2, "--metric", str(metric).replace("my_", "me_"), expect=2)
        self.assertIn("did you mean", done.stderr)
        done = self.evaluate(rows, 2, "--metrics", "rouge", expect=2)
        self.assertIn("did you mean rouge_l?", done.stderr)


if __name__ == "__main__":
    main()

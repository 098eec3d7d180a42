"""Incident I0: a vision-language model embeds a data set in batches on several cards under ZeRO-3, and never finishes.

As it was lived: eight processes ran `get_vllm_embeddings()` over rows of pictures and text. Some processes had fewer batches
than others, or batches without a picture; they left the others alone in an all-gather, which had no deadline. Batches of
more than one row did not work at all, and nobody could tell which row was at fault. People helped themselves with rows cut
to a multiple of the number of processes, batch size 1 and NCCL_DEBUG=INFO.
"""
import array
import json
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from small_job import make_model, png, sft_words, wav  # noqa: E402
from story import Story, kill_when_rows_are_kept, main, start  # noqa: E402


class EmbeddingUnderZero3(Story):
    """Rows with 0, 1 and 9 pictures, short and long, as many as no number of ranks divides."""

    ROWS = 11

    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        (self.folder / "red.png").write_bytes(png(20, 30, (220, 20, 20)))
        (self.folder / "blue.png").write_bytes(png(31, 17, (20, 20, 220)))
        self.rows = self.folder / "rows.jsonl"
        with open(self.rows, "w") as out:
            for i in range(self.ROWS):
                pictures = [0, 1, 9, 0][i % 4]
                out.write(json.dumps({
                    "id": f"row-{i}", "images": ["red.png", "blue.png"][i % 2:i % 2 + 1] * pictures,
                    "messages": [{"role": "user", "content": "<image>" * pictures + f"Number {i}." + " And more?" * (i % 5)}],
                }) + "\n")

    def embed(self, name, *words, rows=None, expect=0, **options):
        out = self.folder / name
        done = self.lockstep("embed", "--model", self.model, "--dataset", rows or self.rows, "--output", out, *words,
                             expect=expect, **options)
        path = out / "embeddings.jsonl"
        return done, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def test_every_rank_finishes_and_every_row_comes_once_in_order_with_the_same_bits(self):
        for stage in ("hidden", "inputs"):
            _, alone = self.embed(f"{stage}-1", "--batch_size", 3, "--stage", stage)
            self.assertEqual([row["id"] for row in alone], [f"row-{i}" for i in range(self.ROWS)])
            self.assertEqual([row["row"] for row in alone], list(range(self.ROWS)))
            for ranks, zero in ((2, "zero3"), (4, "zero3"), (3, "zero0")):
                with self.subTest(stage=stage, ranks=ranks, zero=zero):
                    _, rows = self.embed(f"{stage}-{ranks}", "--batch_size", 3, "--stage", stage, "--nproc", ranks,
                                         "--deepspeed", zero)
                    self.assertEqual(rows, alone)

    def test_so_with_slices_of_which_each_picture_has_as_many_as_it_likes(self):
        """get_vllm_embedding is MiniCPM's."""
        self.model = make_model(self.folder, "minicpm_v_2_6")
        (self.folder / "red.png").write_bytes(png(150, 40, (220, 20, 20)))
        _, alone = self.embed("slices-1", "--batch_size", 3, "--stage", "inputs")
        self.assertEqual([row["id"] for row in alone], [f"row-{i}" for i in range(self.ROWS)])
        for ranks in (2, 4):
            _, rows = self.embed(f"slices-{ranks}", "--batch_size", 3, "--stage", "inputs", "--nproc", ranks, "--deepspeed", "zero3")
            self.assertEqual(rows, alone)

    def test_so_with_sound_that_only_some_rows_hold(self):
        self.model = make_model(self.folder, "minicpm_o_2_6")
        lines = self.rows.read_text().splitlines()
        for i, row in enumerate(map(json.loads, lines)):
            if i % 3 == 1:
                (self.folder / f"{i}.wav").write_bytes(wav(0.2 + 0.1 * i))
                lines[i] = json.dumps(row | {"audio": str(self.folder / f"{i}.wav")})
        self.rows.write_text("\n".join(lines) + "\n")
        _, alone = self.embed("sound-1", "--batch_size", 3, "--stage", "inputs")
        self.assertFalse([row for row in alone if "error" in row])
        for ranks in (2, 3):
            _, rows = self.embed(f"sound-{ranks}", "--batch_size", 3, "--stage", "inputs", "--nproc", ranks, "--deepspeed", "zero3")
            self.assertEqual(rows, alone)

    def test_so_with_a_picture_a_row_at_most_and_batches_of_text_alone(self):
        """OmniLMM, whose own code takes no batch without a picture."""
        self.model = make_model(self.folder, "omnilmm")
        lines = [json.loads(line) for line in self.rows.read_text().splitlines()]
        for i, row in enumerate(lines):
            row["images"] = row["images"][:1] if i % 4 == 1 else []
            row["messages"][0]["content"] = "<image>" * len(row["images"]) + f"Number {i}." + " And more?" * (i % 5)
        self.rows.write_text("".join(json.dumps(row) + "\n" for row in lines))
        for stage in ("inputs", "hidden"):
            _, alone = self.embed(f"{stage}-1", "--batch_size", 2, "--stage", stage)
            self.assertFalse([row for row in alone if "error" in row])
            for ranks in (2, 4):
                _, rows = self.embed(f"{stage}-{ranks}", "--batch_size", 2, "--stage", stage, "--nproc", ranks, "--deepspeed", "zero3")
                self.assertEqual(rows, alone)

    def test_the_merged_inputs_hold_one_vector_a_token(self):
        _, rows = self.embed("inputs", "--stage", "inputs", "--nproc", 2)
        width = json.loads((self.model / "config.json").read_text())["text_config"]["hidden_size"]
        for row in rows:
            self.assertEqual(len(row["embedding"]), row["tokens"])
            self.assertEqual({len(vector) for vector in row["embedding"]}, {width})
        self.assertGreater(rows[2]["tokens"], rows[1]["tokens"] * 3, "nine pictures take more tokens than one")

    def test_fewer_rows_than_ranks_and_no_rows_at_all(self):
        few = self.folder / "few.jsonl"
        few.write_text("".join(self.rows.read_text().splitlines(keepends=True)[:2]))
        _, rows = self.embed("few", "--nproc", 4, "--batch_size", 1, rows=few)
        self.assertEqual(len(rows), 2)
        (self.folder / "none.jsonl").write_text("")
        done, rows = self.embed("none", "--nproc", 3, rows=self.folder / "none.jsonl")
        self.assertEqual(rows, [])
        self.assertIn("0 rows", done.stdout)

    def test_a_bad_row_fails_alone_and_is_named(self):
        lines = self.rows.read_text().splitlines(keepends=True)
        lines[4] = json.dumps({"id": "gone", "query": "<image>What?", "images": ["gone.png"]}) + "\n"
        lines[7] = "{broken\n"
        self.rows.write_text("".join(lines))
        done, rows = self.embed("bad", "--nproc", 4, "--batch_size", 3)
        self.assertEqual(len(rows), self.ROWS)
        self.assertEqual([i for i, row in enumerate(rows) if "error" in row], [4, 7])
        self.assertIn("gone.png", rows[4]["error"])
        self.assertEqual(rows[4]["id"], "gone")
        self.assertTrue(rows[4]["where"].endswith("rows.jsonl:5"), rows[4]["where"])
        self.assertIn("rows.jsonl:8", rows[7]["error"])
        self.assertIn("2 rows could not be used", done.stdout)
        done, _ = self.embed("strict", "--nproc", 4, "--strict", "true", expect=3)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)

    def test_a_strict_run_does_not_take_over_rows_that_a_lenient_one_let_pass(self):
        self.rows.write_text(json.dumps({"query": "<image>What?", "images": ["gone.png"]}) + "\n")
        _, rows = self.embed("out")
        self.assertIn("gone.png", rows[0]["error"])
        done, _ = self.embed("out", "--strict", "true", expect=2)
        self.assertIn("--overwrite true", done.stderr)
        done, _ = self.embed("out", "--strict", "true", "--overwrite", "true", expect=3)
        self.assertIn("gone.png", done.stderr)

    def test_a_run_that_is_killed_goes_on_and_gives_the_same_bits(self):
        _, whole = self.embed("whole", "--batch_size", 2)
        words = ["embed", "--model", self.model, "--dataset", self.rows, "--output", self.folder / "cut", "--batch_size", 2]
        process = start(*words, "--nproc", 2)
        journal = self.folder / "cut" / "unfinished"
        kill_when_rows_are_kept(process, journal)
        done, rows = self.embed("cut", "--batch_size", 2, "--nproc", 3)
        self.assertEqual(rows, whole)
        self.assertFalse(journal.exists())
        done, _ = self.embed("cut", "--batch_size", 2)
        self.assertIn("already", done.stdout)
        done, _ = self.embed("cut", "--batch_size", 3, expect=2)
        self.assertIn("--overwrite true", done.stderr)
        _, rows = self.embed("cut", "--batch_size", 3, "--overwrite", "true")
        self.assertEqual(len(rows), self.ROWS)

    def test_safetensors_hold_what_jsonl_does(self):
        _, rows = self.embed("text", "--normalize", "true")
        self.embed("tensors", "--normalize", "true", "--format", "safetensors", "--nproc", 2)
        with open(self.folder / "tensors" / "embeddings.safetensors", "rb") as file:
            head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        begin, end = head["embeddings"]["data_offsets"]
        values = array.array("f", data[begin:end])
        self.assertEqual(head["embeddings"]["shape"], [self.ROWS, len(rows[0]["embedding"])])
        wanted = [value for row in rows for value in row["embedding"]]
        self.assertEqual(values, array.array("f", wanted), "the same bits, as the shortest digits read back")
        listed = [json.loads(line) for line in (self.folder / "tensors" / "rows.jsonl").read_text().splitlines()]
        self.assertEqual([row["id"] for row in listed], [row["id"] for row in rows])

    def test_fine_tuning_takes_batches_of_rows_with_any_number_of_pictures(self):
        lines = [json.loads(line) for line in self.rows.read_text().splitlines()]
        for row in lines:
            row["messages"].append({"role": "assistant", "content": "Yes."})
        self.rows.write_text("".join(json.dumps(row) + "\n" for row in lines))
        self.lockstep(*sft_words(self.model, self.rows, self.folder / "run", steps=2, nproc=3, per_device_train_batch_size=4),
                      expect=0)


if __name__ == "__main__":
    main()

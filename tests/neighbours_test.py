"""What a row says, and where it is embedded, is its own: with pictures, clips and films it generates the same tokens alone, beside
any others and on any number of ranks; its embedding has the same bits on any number of ranks, and hardly moves with its batch."""
import json
import os

from small_job import make_model, png, wav
from story import Story, main

FAMILIES = (os.environ.get("LOCKSTEP_FAMILIES") or "internvl,minicpm_o_2_6,qwen2_5_vl,llava").split(",")
FILMS = ("internvl", "minicpm_o_2_6", "qwen2_5_vl")
SOUNDS = ("minicpm_o_2_6",)
RANKS = (1, 2, 3, 4)


def make_rows(folder, family):
    """Of every length and mix that the family takes; uneven numbers, so that ranks and slots are never filled alike."""
    for i, colour in enumerate([(220, 20, 20), (20, 180, 20), (20, 20, 220)]):
        (folder / f"{i}.png").write_bytes(png(40 + 33 * i, 95 - 27 * i, colour))
        (folder / f"frame {i}.png").write_bytes(png(60, 44, colour))
    for i, seconds in enumerate((0.9, 0.3)):
        (folder / f"{i}.wav").write_bytes(wav(seconds, 300 + 200 * i))
    rows = [{"query": "Hello."},
            {"query": "<image>What is it?", "images": ["0.png"]},
            {"query": "<image>And beside <image> this one? Please say it in many words, if there are any.", "images": ["1.png", "2.png"]},
            {"query": "One of text that is longer than the others of text, so that it stands beside pictures."}]
    if family in FILMS:
        rows += [{"query": "<video>What moves?", "videos": [["frame 0.png", "frame 1.png", "frame 2.png"]]},
                 {"query": "<image>Is it in <video>?", "images": ["2.png"], "videos": [["frame 2.png", "frame 0.png"]]}]
    if family in SOUNDS:
        rows += [{"query": "<audio>What was it?", "audios": ["0.wav"]},
                 {"query": "<audio>And <audio> these, with <image>?", "images": ["1.png"], "audios": ["1.wav", "0.wav"]}]
    for i, row in enumerate(rows):
        row["id"] = f"{i}"
    return rows


class Neighbours(Story):
    def write(self, rows, name):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def answers(self, model, rows, batch, ranks=1):
        """By the row's id: the answer, and how many rows failed."""
        self.runs = getattr(self, "runs", 0) + 1
        out = self.folder / f"answers {self.runs}.jsonl"
        self.lockstep("infer", "--model", model, "--val_dataset", self.write(rows, f"prompts {self.runs}"), "--result_path", out, "--torch_dtype",
                      "float32", "--max_new_tokens", 8, "--batch_size", batch, "--nproc", ranks, "--comm_figures", "off", expect=0)
        found = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertFalse([row for row in found if "error" in row])
        return {row["id"]: answer["response"] for row, answer in zip(rows, found, strict=True)}

    def vectors(self, model, rows, batch, ranks=1):
        self.runs = getattr(self, "runs", 0) + 1
        out = self.folder / f"vectors {self.runs}"
        self.lockstep("embed", "--model", model, "--dataset", self.write(rows, f"rows {self.runs}"), "--output", out, "--torch_dtype", "float32",
                      "--batch_size", batch, "--nproc", ranks, "--comm_figures", "off", expect=0)
        found = [json.loads(line) for line in (out / "embeddings.jsonl").read_text().splitlines()]
        self.assertFalse([row for row in found if "error" in row])
        return {row["id"]: row["embedding"] for row in found}

    def test_a_row_says_the_same_whoever_stands_beside_it(self):
        for family in FAMILIES:
            model, rows = make_model(self.folder, family), make_rows(self.folder, family)
            alone = self.answers(model, rows, 1)
            self.assertGreater(len(set(alone.values())), 1, "the rows are told apart")
            shuffled = rows[::-2] + rows[-2::-2]
            for batch, ranks, order in [(len(rows), 1, shuffled), (2, 2, rows), (1, 3, shuffled), (3, 4, rows)]:
                with self.subTest(family=family, batch=batch, ranks=ranks):
                    self.assertEqual(self.answers(model, order, batch, ranks), alone)
            with self.subTest(family=family, row="in a file of its own"):
                self.assertEqual(self.answers(model, rows[-1:], 1), {rows[-1]["id"]: alone[rows[-1]["id"]]})

    def test_a_row_is_embedded_the_same_whoever_stands_beside_it(self):
        for family in FAMILIES:
            model, rows = make_model(self.folder, family), make_rows(self.folder, family)
            batched = self.vectors(model, rows, 3)
            for ranks in RANKS[1:]:
                with self.subTest(family=family, ranks=ranks):
                    self.assertEqual(self.vectors(model, rows, 3, ranks), batched, "the same bits")
            for batch, order in [(1, rows), (len(rows), rows[::-1])]:
                for key, vector in self.vectors(model, order, batch).items():
                    with self.subTest(family=family, batch=batch, row=key):
                        self.assertLessEqual(max(abs(a - b) for a, b in zip(vector, batched[key], strict=True)), 1e-5)


if __name__ == "__main__":
    main()

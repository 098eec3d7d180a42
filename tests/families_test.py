"""Every family with pictures trains the same whatever the stage and the number of ranks: films, several pictures in a row, rows of
text alone, so that ranks lack what others have."""
import json
import os

from small_job import losses, make_model, png, sft_words
from story import Story, main

FAMILIES = (os.environ.get("LOCKSTEP_FAMILIES") or "internvl").split(",")  # the others have stories of their own
VIDEOS = ("qwen2_5_vl", "internvl")


def make_rows(folder, family, count=18):
    colours = [(220, 20, 20), (20, 180, 20), (20, 20, 220)]
    for i, colour in enumerate(colours):
        (folder / f"{i}.png").write_bytes(png(40 + 30 * i, 90 - 25 * i, colour))
    rows = []
    for i in range(count):
        text = f"Say {i}." + " Please." * (i % 4)
        row = {"query": text, "response": f"number {i}"}
        if i % 6 == 1:
            row = {"query": "<image>and <image>" + text, "response": "two", "images": [f"{i % 3}.png", "1.png"]}
        elif i % 6 == 3 and family in VIDEOS:
            row = {"query": "<video>" + text, "response": "moves", "videos": [[f"{k % 3}.png" for k in range(i % 3 + 1, i % 3 + 4)]]}
        elif i % 6 == 4:
            row = {"query": "<image>" + text, "response": "one", "images": ["2.png"]}
        rows.append(row)
    path = folder / f"{family}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Families(Story):
    def train(self, family, stage, ranks):
        out = self.folder / f"{family} {stage} {ranks}"
        self.lockstep(*sft_words(make_model(self.folder, family) if not (self.folder / family).exists() else self.folder / family,
                                 make_rows(self.folder, family), out, steps=5, nproc=ranks, deepspeed=stage, save_strategy="no",
                                 per_device_train_batch_size=1, gradient_accumulation_steps=6 // ranks), expect=0)
        return losses(out)

    def test_stages_and_ranks_train_alike(self):
        for family in FAMILIES:
            alone = self.train(family, "zero0", 1)
            self.assertEqual(len(alone), 5)
            for ranks in (2, 3):
                first = None
                for stage in ("zero0", "zero1", "zero2", "zero3"):
                    with self.subTest(family=family, stage=stage, ranks=ranks):
                        found = self.train(family, stage, ranks)
                        for step, loss in alone.items():
                            self.assertAlmostEqual(found[step], loss, delta=1e-5)
                        self.assertEqual(found, first or found, "stages give the same bits")
                        first = found


if __name__ == "__main__":
    main()

"""Every family with pictures trains the same whatever the stage and the number of ranks: films, several pictures in a row, sound, rows
of text alone, so that ranks lack what others have. Decoders with windows do, over rows longer and shorter than they are."""
import json
import os

from small_job import losses, make_model, original_llava, png, sft_words, wav
from story import Story, main, sampled

FAMILIES = (os.environ.get("LOCKSTEP_FAMILIES") or "llava_original,internvl,minicpm_v_2_6,minicpm_o_2_6,omnilmm,qwen2_5_omni").split(",")  # the others have stories of their own
VIDEOS = ("qwen2_5_vl", "internvl", "minicpm_v_2_6", "qwen2_5_omni")
SINGLE = ("omnilmm",)  # one picture a row
TEXTS = {"mistral": {"sliding_window": 5}, "qwen3": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}}
SOUNDS = ("minicpm_o_2_6", "qwen2_5_omni")
ENV = {"qwen2_5_omni": {"VIDEO_MIN_PIXELS": 3136, "VIDEO_MAX_PIXELS": 3136}}  # films have sizes of their own, and small models should stay quick


def make_rows(folder, family, count=18):
    colours = [(220, 20, 20), (20, 180, 20), (20, 20, 220)]
    for i, colour in enumerate(colours):
        (folder / f"{i}.png").write_bytes(png(40 + 30 * i, 90 - 25 * i, colour))
    for i, seconds in enumerate((0.9, 0.35)):
        (folder / f"{i}.wav").write_bytes(wav(seconds, 300 + 200 * i))
    rows = []
    for i in range(count):
        text = f"Say {i}." + " Please." * (i % 4)
        row = {"query": text, "response": f"number {i}"}
        if i % 6 == 1 and family not in SINGLE:
            row = {"query": "<image>and <image>" + text, "response": "two", "images": [f"{i % 3}.png", "1.png"]}
        elif i % 6 == 3 and family in VIDEOS:
            row = {"query": "<video>" + text, "response": "moves", "videos": [[f"{k % 3}.png" for k in range(i % 3 + 1, i % 3 + 4)]]}
        elif i % 6 in (2, 3) and family in SOUNDS:  # where one rank hears and another sees, or neither
            row = {"query": "<audio>" * (1 + i % 2) + text, "response": "tone", "audios": ["0.wav", "1.wav"][:1 + i % 2]}
        elif i % 6 == 5 and family in SOUNDS:
            row = {"query": "<image>and <audio>" + text, "response": "both", "images": ["0.png"], "audios": ["1.wav"]}
        elif i % 6 == 4:
            row = {"query": "<image>" + text, "response": "one", "images": ["2.png"]}
        rows.append(row)
    path = folder / f"{family}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Families(Story):
    def train(self, family, stage, ranks, rows=None, **env):
        out = self.folder / f"{family} {rows.stem if rows else ''} {stage} {ranks}"
        model = self.folder / ("checkpoint_original" if family == "llava_original" else family)
        if not model.exists():
            original_llava(self.folder) if family == "llava_original" else make_model(self.folder, family)
        self.lockstep(*sft_words(model, rows or make_rows(self.folder, family), out, steps=5, nproc=ranks, deepspeed=stage, save_strategy="no",
                                 per_device_train_batch_size=1, gradient_accumulation_steps=6 // ranks),
                      env={**ENV.get(family, {}), **env}, expect=0)
        return losses(out)

    def check_alike(self, family, rows, **env):
        alone = self.train(family, "zero0", 1, rows, **env)
        for stage, ranks in (("zero2", 2), ("zero3", 2), ("zero3", 3)):
            with self.subTest(family=family, rows=rows.stem, stage=stage, ranks=ranks):
                for step, loss in self.train(family, stage, ranks, rows, **env).items():
                    self.assertAlmostEqual(loss, alone[step], delta=1e-5)

    def test_films_with_their_sound_and_rows_without_media_train_alike(self):
        make_rows(self.folder, "qwen2_5_omni")  # the pictures and clips
        film = {"frames": [f"{k % 3}.png" for k in range(6)], "fps": 1.5}
        woven, texts = self.folder / "woven.jsonl", self.folder / "texts.jsonl"
        woven.write_text("".join(json.dumps({"query": ("<video>" if i % 3 else "") + f"Say {i}.", "response": f"number {i}",
                                             **({"videos": [film], "audios": [f"{i % 2}.wav"]} if i % 3 else {})}) + "\n" for i in range(18)))
        texts.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"number {i}"}) + "\n" for i in range(18)))
        self.check_alike("qwen2_5_omni", woven, USE_AUDIO_IN_VIDEO="true")
        self.check_alike("qwen2_5_omni", texts)

    def test_decoders_train_alike(self):
        """Rows behind one another in a batch: each looks back in itself alone, whoever stands before it."""
        rows = self.folder / "texts.jsonl"
        rows.write_text("".join(json.dumps({"query": f"Say {i}." + " Please." * (i % 5), "response": f"number {i}"}) + "\n" for i in range(18)))
        for family, windows in TEXTS.items():
            config = make_model(self.folder, family) / "config.json"
            config.write_text(json.dumps({**json.loads(config.read_text()), **windows}))
            found = {}
            for stage, ranks in (("zero0", 1), ("zero0", 2), ("zero1", 2), ("zero2", 2), ("zero3", 2)):
                out = self.folder / f"{family} {stage} {ranks}"
                self.lockstep(*sft_words(config.parent, rows, out, steps=3, nproc=ranks, deepspeed=stage, save_strategy="no", freeze_vit=None,
                                         freeze_aligner=None, per_device_train_batch_size=6 // ranks), expect=0)
                found[stage, ranks] = losses(out)
            alone, first = found.pop(("zero0", 1)), found["zero0", 2]
            for key, other in found.items():
                with self.subTest(family=family, key=key):
                    self.assertEqual(other, first, "stages give the same bits")
                    for step, loss in alone.items():
                        self.assertAlmostEqual(other[step], loss, delta=1e-5)

    def test_a_variable_that_the_family_does_not_heed_is_told(self):
        for family, told in (("qwen2", "MAX_NUM is set in the environment, and qwen2 does not heed it"), ("internvl", None)):
            model = self.folder / family if (self.folder / family).exists() else make_model(self.folder, family)
            done = self.lockstep(*sft_words(model, make_rows(self.folder, "texts", 2), self.folder / f"told {family}", steps=1,
                                            save_strategy="no", **({} if told is None else {"freeze_vit": None, "freeze_aligner": None})),
                                 env={"MAX_NUM": 2}, expect=0)
            self.assertEqual("does not heed" in done.text, told is not None, done.text)
            self.assertIn(told or "", done.text)

    def test_stages_and_ranks_train_alike(self):
        for family in FAMILIES:
            alone = self.train(family, "zero0", 1)
            self.assertEqual(len(alone), 5)
            first = {}
            for ranks, stage in sampled((ranks, stage) for ranks in (2, 3) for stage in ("zero0", "zero1", "zero2", "zero3")):
                with self.subTest(family=family, stage=stage, ranks=ranks):
                    found = self.train(family, stage, ranks)
                    for step, loss in alone.items():
                        self.assertAlmostEqual(found[step], loss, delta=1e-5)
                    self.assertEqual(found, first.setdefault(ranks, found), "stages give the same bits")


if __name__ == "__main__":
    main()

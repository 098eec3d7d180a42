"""A film as a file is worth the frames that the family takes of it, given as pictures: the same embeddings, losses and training, to the bit.
What is no film, or cannot be read, costs its row alone."""
import json
import os
import shutil
import subprocess

from small_job import losses, make_model, png, sft_words
from story import Story, main

# Twenty frames, five a second: what each family's own code takes of them (src/lockstep/zoo/film_choice_test.cpp), how many stand for a second.
TAKEN = {"qwen2_5_vl": ([0, 3, 5, 8, 11, 14, 16, 19], 2.0), "internvl": ([1, 3, 6, 8, 11, 13, 15, 18], None), "minicpm_v_2_6": ([0, 5, 10, 15], None)}
# Pictures of a list have the checkpoint's limits, a film those of qwen_vl_utils: the same is asked of both.
LIMITS = {"VIDEO_MIN_PIXELS": 1024, "VIDEO_MAX_PIXELS": 4096, "VIDEO_TOTAL_PIXELS": 1000000}


class Films(Story):
    def setUp(self):
        super().setUp()
        if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
            self.fail("FFmpeg is not installed: tools/setup.sh tests")

    def ffmpeg(self, *words):
        subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-y", *map(str, words)], check=True, timeout=120)

    def film(self, name="film.mp4", *words):
        self.ffmpeg("-f", "lavfi", "-i", "testsrc=size=96x64:rate=5", "-t", 4, "-c:v", "mpeg4", *words, self.folder / name)
        return name

    def rows(self, name, videos):
        """Three rows with a video and one without; `videos`: what stands in each."""
        rows = [{"query": f"<video>What moves {i}?", "response": f"It is {i}.", "videos": [videos]} for i in range(3)]
        rows.append({"query": "Say four.", "response": "four"})
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self.folder / name

    def frames(self, family, taken=None):
        """The chosen frames as pictures, cut out by FFmpeg alone."""
        chosen, fps = taken or TAKEN[family]
        test = "+".join(f"eq(n,{i})" for i in chosen)
        self.ffmpeg("-i", self.folder / "film.mp4", "-vf", f"select='{test}',scale=flags=bilinear,format=rgb24", "-vsync", 0,
                    self.folder / f"{family}_%02d.png")
        names = [f"{family}_{i + 1:02d}.png" for i in range(len(chosen))]
        return {"frames": names, "fps": fps} if fps else names

    def vectors(self, model, rows, **env):
        out = self.folder / f"vectors {model.name} {rows.stem}"
        self.lockstep("embed", "--model", model, "--dataset", rows, "--output", out, "--torch_dtype", "float32", "--strict", "true",
                      env={**LIMITS, **env}, expect=0)
        return [json.loads(line)["embedding"] for line in (out / "embeddings.jsonl").read_text().splitlines()]

    def trained(self, model, rows):
        out = self.folder / f"run {model.name} {rows.stem}"
        self.lockstep(*sft_words(model, rows, out, steps=3, nproc=2, save_strategy="no", per_device_train_batch_size=1,
                                 gradient_accumulation_steps=2, strict="true"), env=LIMITS, expect=0)
        return losses(out)

    def test_qwen2_5_omni_is_told_the_rate_that_was_asked_for(self):
        # Of 21 frames, five a second, eight are 1.9 a second.
        self.ffmpeg("-f", "lavfi", "-i", "testsrc=size=96x64:rate=5", "-frames:v", 21, "-c:v", "mpeg4", self.folder / "film.mp4")
        model = make_model(self.folder, "qwen2_5_omni")
        frames = self.frames("qwen2_5_omni", ([0, 3, 6, 9, 11, 14, 17, 20], 2.0))
        film = self.vectors(model, self.rows("films.jsonl", "film.mp4"))
        self.assertEqual(film, self.vectors(model, self.rows("frames.jsonl", frames)))
        self.assertNotEqual(film, self.vectors(model, self.rows("slower.jsonl", {**frames, "fps": 1})))

    def test_a_film_is_its_frames(self):
        self.film()
        for family in TAKEN:
            with self.subTest(family=family):
                model = make_model(self.folder, family)
                film, frames = self.rows(f"{family}_film.jsonl", "film.mp4"), self.rows(f"{family}_frames.jsonl", self.frames(family))
                vectors = self.vectors(model, film)
                self.assertEqual(vectors, self.vectors(model, frames))
                self.assertNotEqual(vectors[0], vectors[3])
                self.assertEqual(self.trained(model, film), self.trained(model, frames))

    def test_a_row_and_the_environment_say_how_many_frames(self):
        self.film()
        model = make_model(self.folder, "qwen2_5_vl")
        two = {"video": "film.mp4", "nframes": 2}
        by_row = self.vectors(model, self.rows("by_row.jsonl", two))
        self.assertEqual(by_row, self.vectors(model, self.rows("by_variable.jsonl", "film.mp4"), NFRAMES=2))
        self.assertNotEqual(by_row, self.vectors(model, self.rows("usual.jsonl", "film.mp4")))
        done = self.lockstep("embed", "--model", model, "--dataset", self.folder / "by_row.jsonl", "--output", self.folder / "both",
                             env={"NFRAMES": 2, "FPS": 1}, expect=2)
        self.assertIn("NFRAMES and FPS: expected one of them", done.text)

    def test_what_is_no_film_costs_its_row(self):
        self.film()
        self.film("one.mp4", "-frames:v", 1)
        whole = (self.folder / "film.mp4").read_bytes()
        (self.folder / "cut.mp4").write_bytes(whole[:len(whole) // 2])
        (self.folder / "picture.mp4").write_bytes(png(8, 8, (1, 2, 3)))
        (self.folder / "words.mp4").write_text("These are words.\n")
        (self.folder / "folder.mp4").mkdir()
        bad = {"one.mp4": "two of which make a patch", "cut.mp4": "expected a film that FFmpeg reads", "picture.mp4": "found a PNG picture",
               "words.mp4": "expected a film that FFmpeg reads", "folder.mp4": "expected a file, found a folder", "gone.mp4": "no such file"}
        model = make_model(self.folder, "qwen2_5_vl")
        rows = [{"query": "<video>?", "response": "a", "videos": [name]} for name in ("film.mp4", *bad)]
        data = self.folder / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = self.folder / "answers.jsonl"
        self.lockstep("infer", "--model", model, "--val_dataset", data, "--result_path", result, "--max_new_tokens", 2, env=LIMITS)
        answers = [json.loads(line) for line in result.read_text().splitlines()]
        self.assertEqual(len(answers), len(rows))
        self.assertIsNotNone(answers[0]["response"])
        self.assertEqual(answers[0]["videos"], [str(self.folder / "film.mp4")])
        for line, (answer, (name, words)) in enumerate(zip(answers[1:], bad.items()), 2):
            with self.subTest(name=name):
                self.assertIsNone(answer["response"])
                self.assertIn(f"rows.jsonl:{line}: video {self.folder / name}", answer["error"])
                self.assertIn(words, answer["error"])
        strict = self.lockstep("embed", "--model", model, "--dataset", data, "--output", self.folder / "strict", "--strict", "true", env=LIMITS,
                               expect=3)
        self.assertIn("two of which make a patch", strict.text)

    def test_without_ffmpeg_the_row_says_what_to_do(self):
        self.film()
        data = self.rows("rows.jsonl", "film.mp4")
        done = self.lockstep("doctor", "--dataset", data, "--output_dir", self.folder / "out", env={"PATH": str(self.folder)})
        self.assertIn("no ffmpeg on PATH", done.text)
        self.assertIn(f"expected ffprobe, which reads films, in one of the folders of PATH ({self.folder}), found none", done.text)
        self.assertIn("1 can be used", done.text)
        self.assertIn("ffprobe read them", self.lockstep("doctor", "--dataset", data, "--output_dir", self.folder / "out",
                                                         env={"PATH": os.environ["PATH"]}).text)


if __name__ == "__main__":
    main()

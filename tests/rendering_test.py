"""A checkpoint is asked in the words that it was taught (InternVL#1090: a fine-tuned model answers rubbish once it is served with another
template). sft, eval and infer print the first row as the model gets it; a fixed conversation's rendering stands in args.json."""
import json
import re
import shutil

from small_job import make_model, make_rows, sft_words
from story import Story, main

FIRST_ROW = re.compile(r"first row, (\d+) tokens(?:, \d+ trained in \[\[ \]\])?, rendering ([0-9a-f]{16}): (.*)")


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


class Rendering(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder, "qwen2_5_vl")
        self.rows = make_rows(self.folder, 6)

    def train(self, model=None, name="run", steps=2, **flags):
        out = self.folder / name
        done = self.lockstep(*sft_words(model or self.model, self.rows, out, steps=steps, save_steps=steps, **flags), expect=0)
        return done, out / f"checkpoint-{steps}"

    def runs(self, model, name):
        """The four ways into a checkpoint."""
        return {"eval": ["eval", "--model", model, "--val_dataset", self.rows],
                "infer a file": ["infer", "--model", model, "--val_dataset", self.rows, "--result_path", self.folder / f"{name}.jsonl",
                                 "--max_new_tokens", 2],
                "infer": ["infer", "--model", model, "--prompt", "Who?", "--max_new_tokens", 2],
                "embed": ["embed", "--model", model, "--dataset", self.rows, "--output", self.folder / f"{name} vectors"],
                "sft": sft_words(model, self.rows, self.folder / f"{name} again", steps=1, save_strategy="no")}

    def shown(self, done):
        found = FIRST_ROW.search(done.text.replace("\n", "\\n"))
        self.assertIsNotNone(found, done.text)
        return found[1], found[2], found[3]

    def test_training_evaluation_and_generation_print_the_same_row(self):
        trained, checkpoint = self.train()
        tokens, rendering, text = self.shown(trained)
        self.assertEqual(json.loads((checkpoint / "args.json").read_text())["rendering"]["hash"], rendering)
        ways = self.runs(checkpoint, "first")
        evaluated = self.shown(self.lockstep(*ways["eval"], expect=0))
        self.assertEqual((evaluated[0], evaluated[1]), (tokens, rendering))
        answer = text.index("[[")
        self.assertTrue(evaluated[2].startswith(text[:text.index("]]")]), evaluated)
        asked = self.shown(self.lockstep(*ways["infer a file"], expect=0))
        self.assertEqual(asked[1], rendering)
        self.assertTrue(asked[2].startswith(text[:answer].rstrip("\\n")), f"{asked}\n{text}")

    def test_it_survives_another_place_other_lengths_and_ranks(self):
        _, checkpoint = self.train(name="far", max_length=300)
        moved = self.folder / "elsewhere" / "model"
        shutil.copytree(checkpoint, moved)
        shutil.rmtree(self.folder / "far")
        for name, words in self.runs(moved, "moved").items():
            with self.subTest(name):
                extra = [] if name == "infer" else ["--max_length", 200]
                self.lockstep(*words, *extra, "--nproc", 2, env={"MAX_PIXELS": 3136}, expect=0)
        again, _ = self.train(moved, "flags", steps=1)
        self.assertNotIn("rendering in args.json", again.text)
        self.lockstep("sft", moved / "args.json", "--model", moved, "--output_dir", self.folder / "from args", "--max_steps", 1, "--add_version",
                      "false", expect=0)

    def test_another_template_tokenizer_or_picture_is_refused_with_both(self):
        _, checkpoint = self.train()
        changes = {
            "template": ("chat_template.jinja", lambda path: path.write_text(path.read_text().replace("assistant", "helper"))),
            "tokenizer": ("tokenizer.json", lambda path: edit(path, lambda value: value["model"]["merges"].clear())),
            "pictures": ("preprocessor_config.json", lambda path: edit(path, lambda value: value.update(image_mean=[0.1, 0.1, 0.1]))),
        }
        for name, (file, change) in changes.items():
            path = checkpoint / file
            kept = path.read_text()
            change(path)
            for way, words in self.runs(checkpoint, name).items() if name == "template" else [("eval", self.runs(checkpoint, name)["eval"])]:
                with self.subTest(change=name, way=way):
                    done = self.lockstep(*words, expect=4)
                    for part in ("rendered in another way", "then  ", "now   ", "put the files back", str(checkpoint / "args.json")):
                        self.assertIn(part, done.stderr)
            path.write_text(kept)
        template = (checkpoint / "chat_template.jinja").read_text()
        (checkpoint / "chat_template.jinja").unlink()  # where older files have it
        edit(checkpoint / "tokenizer_config.json", lambda value: value.update(chat_template=template))
        self.lockstep(*self.runs(checkpoint, "in another file")["eval"], expect=0)
        edit(checkpoint / "tokenizer_config.json", lambda value: value.update(chat_template=template.replace("assistant", "helper")))
        self.lockstep(*self.runs(checkpoint, "in another file")["eval"], expect=4)

    def test_a_change_that_is_meant_goes_on_and_older_checkpoints_say_nothing(self):
        _, checkpoint = self.train(steps=2)
        edit(checkpoint / "preprocessor_config.json", lambda value: value.update(image_mean=[0.1, 0.1, 0.1]))
        edit(checkpoint / "args.json", lambda value: value.pop("rendering"))
        for way, words in self.runs(checkpoint, "meant").items():
            with self.subTest(way):
                self.lockstep(*words, expect=0)

    def test_a_run_whose_checkpoint_kept_no_rendering_is_resumed(self):
        _, checkpoint = self.train(steps=2)
        edit(checkpoint / "args.json", lambda value: value.pop("rendering"))
        edit(checkpoint / "lockstep_manifest.json", lambda value: value["files"].pop("args.json"))
        self.lockstep(*sft_words(self.model, self.rows, self.folder / "run", steps=4, resume_from_checkpoint=checkpoint), expect=0)
        self.assertIn("rendering", json.loads((self.folder / "run" / "checkpoint-4" / "args.json").read_text()))


if __name__ == "__main__":
    main()

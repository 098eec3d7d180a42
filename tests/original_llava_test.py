"""LLaVA as its authors publish it, its tower in another folder: every verb finds the tower, what is saved opens again, and training does
not see whose names the tensors have."""
import json
import shutil

from dialects_test import tensors
from small_job import original_llava, png, sft_words
from story import FIXTURES, Story, main

TRANSFORMERS = FIXTURES / "oracle" / "odd" / "llava" / "checkpoint"     # the same weights under transformers' names
TOWER = "model.vision_tower.vision_tower."


def authors_name(name):
    for ours, theirs in (("vision_tower.", TOWER), ("language_model.", ""), ("multi_modal_projector.linear_1", "model.mm_projector.0"),
                         ("multi_modal_projector.linear_2", "model.mm_projector.2")):
        if name.startswith(ours):
            return theirs + name[len(ours):]
    raise KeyError(name)


class OriginalLlava(Story):
    def setUp(self):
        super().setUp()
        self.model = original_llava(self.folder)
        self.tower = self.folder / "vision_tower"
        (self.folder / "a.png").write_bytes(png(50, 30, (200, 10, 10)))
        (self.folder / "b.png").write_bytes(png(20, 44, (10, 10, 200)))
        rows = []
        for i in range(12):
            user = ["<image>\nWhat?", "Say it.", "<image>\nand <image>\n?"][i % 3]
            rows.append({"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": f"answer {i}"}],
                         "images": [["a.png"], [], ["b.png", "a.png"]][i % 3]})
        self.rows = self.folder / "rows.jsonl"
        self.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def names_its_tower(self, name):
        config = json.loads((self.model / "config.json").read_text())
        (self.model / "config.json").write_text(json.dumps({**config, "mm_vision_tower": name}, indent=2))

    def train(self, model, out, *more, **flags):
        self.lockstep(*sft_words(model, self.rows, self.folder / out, **{"torch_dtype": "float16", **flags}), *more, expect=0)
        return next(path.parent for path in sorted((self.folder / out).rglob("model.safetensors")))

    def expected(self, with_tower):
        return {authors_name(name): value for name, value in tensors(TRANSFORMERS).items() if with_tower or not name.startswith("vision_")}

    def opens(self, model, *words):
        self.assertIn("every part was read and fits", self.lockstep("inspect", model, *words, expect=0).stdout)
        self.lockstep("infer", "--model", model, "--prompt", "One?", "--max_new_tokens", 2, *words, expect=0)

    def test_a_step_that_changes_nothing_keeps_every_bit(self):
        nothing = {"steps": 1, "learning_rate": "0", "weight_decay": "0", "save_steps": 1}
        (self.model / "modeling_own.py").write_text("raise SystemExit('never run')\n")
        for name, flag in (("../vision_tower", ()), ("openai/clip-vit-large-patch14-336", ("--vision_tower", self.tower))):
            self.names_its_tower(name)
            before = json.loads((self.model / "config.json").read_text())
            for stage, ranks in (("zero0", 1), ("zero3", 2)):
                with self.subTest(name=name, stage=stage):
                    saved = self.train(self.model, f"frozen {len(flag)} {stage}", *flag, freeze_vit="true", deepspeed=stage, nproc=ranks, **nothing)
                    self.assertEqual(tensors(saved), self.expected(False))
                    for file in self.model.iterdir():
                        if file.suffix != ".bin" and file.name not in ("config.json", "pytorch_model.bin.index.json"):
                            self.assertEqual((saved / file.name).read_bytes(), file.read_bytes(), file.name)
                    after = json.loads((saved / "config.json").read_text())
                    self.assertEqual(after, {**before, "mm_vision_tower": name if flag else str(self.tower)})
                    self.opens(saved, *flag)
        self.names_its_tower("../vision_tower")
        saved = self.train(self.model, "trained", deepspeed="zero3", nproc=2, **nothing)
        self.shape_of_a_trained_tower(saved)

    def shape_of_a_trained_tower(self, saved):
        """It is in the saved folder, which needs no other."""
        found = tensors(saved)
        self.assertEqual(found.pop(TOWER + "vision_model.embeddings.position_ids")[0], "I64")
        self.assertEqual(found, self.expected(True))
        config = json.loads((saved / "config.json").read_text())
        self.assertEqual(config["vision_config"]["patch_size"], 8)
        self.assertEqual((saved / "preprocessor_config.json").read_bytes(), (self.tower / "preprocessor_config.json").read_bytes())
        evaluated = ["eval", "--val_dataset", self.rows, "--json", "--model"]
        before = self.lockstep(*evaluated, self.model, expect=0).stdout
        shutil.rmtree(self.tower)
        self.opens(saved)
        after = self.lockstep(*evaluated, saved, expect=0).stdout
        self.assertEqual(json.loads(after)["loss"], json.loads(before)["loss"])

    def test_training_in_one_dialect_is_training_in_the_other(self):
        ours = self.folder / "transformers"
        shutil.copytree(TRANSFORMERS, ours, ignore=shutil.ignore_patterns("tokenizer.json", "chat_template.json", "added_tokens.json"))
        for file in ours.iterdir():
            file.chmod(0o644)
        config = json.loads((ours / "preprocessor_config.json").read_text())
        (ours / "preprocessor_config.json").write_text(json.dumps({**config, "image_processor_type": "LlavaImageProcessor", "use_fast": False, "do_pad": True}))
        (ours / "added_tokens.json").write_bytes((TRANSFORMERS / "added_tokens.json").read_bytes())
        template = ("{% for m in messages %}{{ 'USER: ' + m['content'] + ' ' if m['role'] == 'user' else 'ASSISTANT: ' + m['content'] + eos_token }}"
                    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")
        for folder in (ours, self.model):
            (folder / "chat_template.jinja").write_text(template)
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "legacy": True}))
        run = {"steps": 3, "save_steps": 3, "nproc": 2, "torch_dtype": "float32"}
        theirs, ours = self.train(self.model, "theirs", **run), self.train(ours, "ours", **run)
        found = {name: value for name, value in tensors(theirs).items() if not name.endswith("position_ids")}
        moved = {authors_name(name): value for name, value in tensors(ours).items()}
        self.assertEqual(sorted(found), sorted(moved))
        self.assertEqual([name for name in found if found[name] != moved[name]], [])
        untrained = self.train(self.model, "untrained", **{**run, "steps": 1, "save_steps": 1, "learning_rate": "0"})
        for part in (TOWER, "model.mm_projector", "model.layers"):
            start = {name: value for name, value in tensors(untrained).items() if name.startswith(part)}
            self.assertTrue(any(found[name] != value for name, value in start.items() if name in found), f"{part} was not trained")

    def test_what_looks_at_a_folder_takes_the_tower(self):
        self.names_its_tower("openai/clip-vit-large-patch14-336")
        told = ('mm_vision_tower: expected the folder', 'found "openai/clip-vit-large-patch14-336", which is not there', "--vision_tower DIR")
        for words in (["inspect", self.model], ["plan", "--model", self.model], ["doctor", "--model", self.model],
                      ["infer", "--model", self.model, "--prompt", "One?"]):
            with self.subTest(words=words[0]):
                done = self.lockstep(*words, expect=4)
                for part in told:
                    self.assertIn(part, done.text)
                self.lockstep(*words, "--vision_tower", self.tower, expect=0)
        done = self.lockstep("infer", "--model", TRANSFORMERS, "--prompt", "One?", "--vision_tower", self.tower, expect=2)
        self.assertIn("leave it out: all of this model stands in its folder", done.text)
        report = json.loads(self.lockstep("inspect", self.model, "--vision_tower", self.tower, "--json", expect=0).stdout)
        self.assertEqual((report["dialect"], report["borrowed_from"]), ("LLaVA's authors", [str(self.tower)]))

    def test_a_trained_tower_goes_on_from_its_checkpoint(self):
        flag = ("--vision_tower", self.tower)
        self.names_its_tower("openai/clip-vit-large-patch14-336")
        run = {"torch_dtype": "float32", "save_steps": 2, "nproc": 2}
        whole = self.train(self.model, "whole", *flag, **{**run, "steps": 4, "save_steps": 4})
        self.train(self.model, "halves", *flag, **{**run, "steps": 4, "save_total_limit": 5})
        shutil.rmtree(self.folder / "halves" / "checkpoint-4")
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / "halves", **{**run, "steps": 4}), *flag, "--resume_from_checkpoint",
                             self.folder / "halves" / "checkpoint-2", expect=0)
        self.assertIn("its weights are not read", done.text)
        self.assertEqual(tensors(self.folder / "halves" / "checkpoint-4"), tensors(whole))


if __name__ == "__main__":
    main()

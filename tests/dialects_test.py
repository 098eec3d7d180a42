"""One model under two writers' names: what is read is saved as it came, and training does not see the difference."""
import json
import shutil
import struct

from small_job import make_model, png, sft_words  # noqa: F401
from story import FIXTURES, Story, main

BOTH = FIXTURES / "oracle" / "odd" / "internvl"       # checkpoint: as transformers names it; checkpoint_opengvlab: as its authors do
OMNI = FIXTURES / "oracle" / "odd" / "qwen2_5_omni"
SYSTEM = {"role": "system", "content": "Look."}       # the two folders have other words of their own


def tensors(folder):
    """{name: (dtype, shape, bytes)} of a folder with one file of weights."""
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return {name: (about["dtype"], about["shape"], raw[8 + size + about["data_offsets"][0]:8 + size + about["data_offsets"][1]])
            for name, about in header.items() if name != "__metadata__"}


def write_tensors(folder, named):
    """The same, written."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in named.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def as_opengvlab(named):
    """Bytes under transformers' names -> under the authors': q, k and v of the tower lie behind one another."""
    names = {"cls_token": "class_embedding", "position_embeddings": "position_embedding", "patch_embeddings.projection": "patch_embedding",
             "attention.projection_layer": "attn.proj", "attention.q_norm": "attn.q_norm", "attention.k_norm": "attn.k_norm",
             "layernorm_before": "norm1", "layernorm_after": "norm2", "lambda_1": "ls1", "lambda_2": "ls2",
             "multi_modal_projector.layer_norm": "mlp1.0", "multi_modal_projector.linear_1": "mlp1.1",
             "multi_modal_projector.linear_2": "mlp1.3"}
    out = {}
    for name, (_, _, data) in named.items():
        if ".attention.k_proj" in name or ".attention.v_proj" in name:
            continue
        if ".attention.q_proj" in name:
            data = b"".join(named[name.replace("q_proj", p)][2] for p in ("q_proj", "k_proj", "v_proj"))
            name = name.replace("attention.q_proj", "attn.qkv")
        for old, new in names.items():
            name = name.replace(old, new)
        out[name.replace("vision_tower.encoder.layer.", "vision_model.encoder.layers.").replace("vision_tower.", "vision_model.")] = data
    return out


class Dialects(Story):
    def rows(self):
        (self.folder / "a.png").write_bytes(png(50, 30, (200, 10, 10)))
        (self.folder / "b.png").write_bytes(png(20, 44, (10, 10, 200)))
        rows = []
        for i in range(12):
            user = ["<image>\nWhat?", "Say it.", "<image>\nand <image>\n?"][i % 3]
            rows.append({"messages": [SYSTEM, {"role": "user", "content": user}, {"role": "assistant", "content": f"answer {i}"}],
                         "images": [["a.png"], [], ["b.png", "a.png"]][i % 3]})
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def folder_of(self, name):
        """A copy of a checkpoint whose pictures are made as the other's are."""
        folder = self.folder / name
        shutil.copytree(BOTH / name, folder)
        for file in folder.rglob("*"):
            file.chmod(0o644)
        config = json.loads((folder / "preprocessor_config.json").read_text())
        config["use_fast"] = False
        (folder / "preprocessor_config.json").write_text(json.dumps(config))
        (folder / "modeling_own.py").write_text("raise SystemExit('never run')\n")
        return folder

    def train(self, model, out, rows, **flags):
        self.lockstep(*sft_words(model, rows, self.folder / out, **flags), expect=0)
        return next(path.parent for path in sorted((self.folder / out).rglob("model.safetensors")))

    def test_a_step_that_changes_nothing_keeps_every_bit(self):
        rows = self.rows()
        for name in ("checkpoint", "checkpoint_opengvlab"):
            model = self.folder_of(name)
            for stage, ranks in (("zero0", 1), ("zero3", 2)):
                with self.subTest(name=name, stage=stage):
                    saved = self.train(model, f"{name} {stage}", rows, steps=1, learning_rate="0", weight_decay="0", save_steps=1,
                                       torch_dtype="bfloat16", deepspeed=stage, nproc=ranks)
                    self.assertEqual(tensors(saved), tensors(model))
                    for file in model.iterdir():
                        if file.suffix != ".safetensors" and file.name != "config.json":
                            self.assertEqual((saved / file.name).read_bytes(), file.read_bytes(), file.name)
                    self.assertEqual(json.loads((saved / "config.json").read_text()), json.loads((model / "config.json").read_text()))

    def test_training_in_one_dialect_is_training_in_the_other(self):
        rows = self.rows()
        ours, theirs = (self.train(self.folder_of(name), f"trained {name}", rows, steps=3, save_steps=3, nproc=2, torch_dtype="bfloat16")
                        for name in ("checkpoint", "checkpoint_opengvlab"))
        moved = as_opengvlab(tensors(ours))
        found = {name: data for name, (_, _, data) in tensors(theirs).items()}
        self.assertEqual(sorted(moved), sorted(found))
        self.assertEqual([name for name in found if found[name] != moved[name]], [])
        start = tensors(BOTH / "checkpoint_opengvlab")
        self.assertTrue(any(found[name] != start[name][2] for name in found if "qkv" in name), "nothing was trained")

    def test_a_head_of_its_own_is_saved_with_a_config_that_says_so(self):
        """config.json ties the head, and the files hold another: transformers 5 reads it, transformers 4 asks the text's config."""
        rows = self.rows()
        for name in ("checkpoint", "checkpoint_opengvlab"):
            with self.subTest(name=name):
                model = self.folder_of(name)
                before = tensors(model)
                dtype, shape, data = before["language_model.model.embed_tokens.weight"]
                width = len(data) // shape[0]
                flipped = b"".join(data[i:i + width] for i in reversed(range(0, len(data), width)))
                write_tensors(model, {**before, "language_model.lm_head.weight": (dtype, shape, flipped)})
                self.assertIn("the head that is stored counts", self.lockstep("inspect", model, expect=0).text)
                saved = self.train(model, f"own head {name}", rows, steps=1, learning_rate="0", weight_decay="0", save_steps=1,
                                   torch_dtype="bfloat16", deepspeed="zero3", nproc=2)
                self.assertEqual(tensors(saved), tensors(model))
                config = json.loads((saved / "config.json").read_text())
                text = config["text_config" if name == "checkpoint" else "llm_config"]
                self.assertEqual((config["tie_word_embeddings"], text["tie_word_embeddings"]), (False, False))
                self.assertNotIn("is stored", self.lockstep("inspect", saved, expect=0).text)
                asked = ["--prompt", "Say it.", "--max_new_tokens", 6, "--torch_dtype", "float32"]
                answers = [self.lockstep("infer", "--model", one, *asked, expect=0).stdout for one in (model, saved)]
                self.assertEqual(answers[0], answers[1])

    def test_what_speaks_is_saved_as_it_came(self):
        """Omni's talker, vocoder and speakers: the folder opens elsewhere (EchoInk#1, LlamaFactory#7821, #7537)."""
        model = self.folder / "omni"
        shutil.copytree(OMNI / "checkpoint", model)
        for file in model.rglob("*"):
            file.chmod(0o644)
        (self.folder / "a.wav").write_bytes((OMNI / "media" / "a.wav").read_bytes())
        rows = self.folder / "heard.jsonl"
        rows.write_text("".join(json.dumps({"query": "<audio>What?", "response": f"tone {i}", "audios": ["a.wav"]}) + "\n" for i in range(8)))
        before = tensors(model)
        for name, flags in (("kept", {"steps": 1, "learning_rate": "0", "weight_decay": "0", "save_steps": 1}),
                            ("staged", {"steps": 2, "save_steps": 2, "train": "audio_projector", "freeze_vit": None, "freeze_aligner": None})):
            saved = self.train(model, name, rows, torch_dtype="bfloat16", nproc=2, **flags)
            after = tensors(saved)
            self.assertEqual(sorted(after), sorted(before))
            changed = {key for key in before if after[key] != before[key]}
            self.assertEqual(changed, set() if name == "kept" else {f"thinker.audio_tower.proj.{part}" for part in ("weight", "bias")})
            for file in model.iterdir():
                if file.suffix != ".safetensors" and file.name != "config.json":
                    self.assertEqual((saved / file.name).read_bytes(), file.read_bytes(), file.name)

    def test_a_folder_without_what_its_config_promises(self):
        model = self.folder / "mute"
        shutil.copytree(OMNI / "checkpoint", model)
        for file in model.rglob("*"):
            file.chmod(0o644)
        write_tensors(model, {name: about for name, about in tensors(model).items() if name.startswith("thinker.")})
        rows = self.folder / "texts.jsonl"
        rows.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"number {i}"}) + "\n" for i in range(8)))
        words = sft_words(model, rows, self.folder / "out", steps=1, torch_dtype="bfloat16", save_strategy="no")
        done = self.lockstep(*words, expect=4)
        for said in ("enable_audio_output", "talker.*", "config.json", "released model", "ENABLE_AUDIO_OUTPUT=0"):
            self.assertIn(said, done.stderr)
        self.lockstep(*words, env={"ENABLE_AUDIO_OUTPUT": "0"}, expect=0)
        for look in (("inspect", model), ("doctor", "--model", model, "--inference")):
            self.assertIn("enable_audio_output", self.lockstep(*look, expect=4).stdout)
            self.lockstep(*look, env={"ENABLE_AUDIO_OUTPUT": "0"}, expect=0)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "enable_audio_output": False}))
        self.lockstep(*sft_words(model, rows, self.folder / "silent", steps=1, torch_dtype="bfloat16", save_strategy="no"), expect=0)


if __name__ == "__main__":
    main()

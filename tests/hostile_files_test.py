"""Checkpoints of strangers: whatever stands in them, a run ends in time and memory with one documented message."""
import json
import os
import pickle
import shutil
import struct
import zipfile

from hostile import DEEP, DEEP_LIST, DEEP_OBJECT, MAX_MESSAGE, Hostile
from small_job import png
from story import main, sampled


def rewrite(path, change):
    """Applies `change` to the JSON of a file, which may return another value."""
    value = json.loads(path.read_text())
    changed = change(value)
    path.unlink()  # a link to the model that all cases share
    path.write_text(json.dumps(value if changed is None else changed))


def replace(path, text):
    path.unlink(missing_ok=True)
    path.write_text(text)


def with_key(path, text):
    """Puts `"hostile": text` first into the object of a JSON file, as raw text."""
    whole = path.read_text()
    replace(path, '{"hostile": ' + text + "," + whole[whole.index("{") + 1:])


def edit_weights(path, edit):
    """Calls edit(header, data) with the parsed header and the bytes of a safetensors file, and writes both."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + length]), bytearray(raw[8 + length:])
    edit(header, data)
    text = json.dumps(header).encode()
    path.unlink()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def poke(name, values):
    def edit(header, data):
        begin = header[name]["data_offsets"][0]
        data[begin:begin + 4 * len(values)] = struct.pack(f"<{len(values)}f", *values)
    return edit


class HostileFiles(Hostile):
    FAMILIES = ("llava", "qwen2_5_vl", "internvl", "minicpm_v_2_6", "minicpm_o_2_6", "omnilmm", "qwen2_5_omni", "qwen2", "llama", "mistral", "qwen3")

    def model(self, family="llava"):
        """A copy whose files are links: what a case changes, it replaces."""
        folder = self.folder / f"{family}_{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.models[family], folder, copy_function=os.link)
        return folder

    def infer(self, model, *words):
        return ["infer", "--model", model, "--prompt", "Say " + "a" * 40 + " 1!", "--max_new_tokens", 1, *words]

    def test_json_that_is_nested_or_endless(self):
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json",
                     "processor_config.json", "generation_config.json"):
            for text in (DEEP_LIST, DEEP_OBJECT):
                model = self.model()
                if not (model / file).exists():
                    continue
                with_key(model / file, text)
                with self.subTest(file=file, text=text[:2]):
                    self.refused(4, ["inspect", model], "nested more than 256 deep", file)
        model = self.model("qwen2")
        with_key(model / "config.json", "1e400")
        self.refused(4, self.infer(model), "config.json", "1e400")

    def test_an_index_that_is_nested(self):
        model = self.model("qwen2")
        os.rename(model / "model.safetensors", model / "model-00001-of-00001.safetensors")
        (model / "model.safetensors.index.json").write_text('{"weight_map": ' + DEEP_OBJECT + "}")
        self.refused(4, ["inspect", model], "nested more than 256 deep", "index.json")

    def test_headers_of_weights(self):
        for name, header in {"deep": '{"a": ' + DEEP_LIST + "}", "many": "{" + '"a":[],' * 300_000 + '"b":[]}',
                             "shape": '{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}',
                             "negative": '{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}'}.items():
            model = self.model("qwen2")
            (model / "model.safetensors").unlink()
            (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
            with self.subTest(name):
                self.refused(4, ["inspect", model], "model.safetensors")

    def test_pickles_of_weights(self):
        ran = self.folder / "ran"

        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {ran}",)

        view = {"size": 2**62, "stride": 0}
        for name, pickled, part in (("runs", pickle.dumps({"w": Evil()}, 4), "posix.system"), ("runs early", pickle.dumps(Evil(), 2), "nothing of it was run"),
                                    ("many", b"\x80\x02" + b"]0" * 20_000_000 + b"N.", "more than 512.00 MiB"),
                                    ("memo", b"\x80\x02N" + b"".join(b"r" + struct.pack("<I", i) for i in range(10_000_000)) + b".", "more than 512.00 MiB"),
                                    ("copies", b"\x80\x02N" + b"2" * 3_000_000 + b".", "values on the stack"),
                                    ("deep", b"\x80\x02N" + b"\x85" * 2_000_000 + b".", "found a tuple"),
                                    ("long", b"\x80\x02\x8d" + b"\xff" * 8 + b"x.", "truncated"),
                                    ("values", pickle.dumps(view, 2), "tensor size")):
            model = self.model("qwen2")
            (model / "model.safetensors").unlink()
            with zipfile.ZipFile(model / "pytorch_model.bin", "w") as file:
                file.writestr("archive/data.pkl", pickled)
            with self.subTest(name):
                self.refused(4, ["inspect", model], "pytorch_model.bin", part)
            shutil.rmtree(model)
        self.assertFalse(ran.exists())

    def test_templates(self):
        for name, text in {"macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
                           "parentheses": "{{ " + "(" * DEEP + ")" * DEEP + " }}",
                           "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                           "width": "{{ '%999999999d' % 1 }}", "product": "{{ 'a' * 10**12 }}",
                           "large": "x" * (2 << 20), "name": "{{ " + "x" * 200_000 + " + 1 }}",
                           "not_utf8": "{{ '\udcff' }}"}.items():
            model = self.model("qwen2")
            (model / "chat_template.jinja").unlink(missing_ok=True)
            (model / "chat_template.jinja").write_bytes(text.encode(errors="surrogateescape"))
            with self.subTest(name):
                done = self.limited(*self.infer(model))
                self.assertIn(done.returncode, (0,) if name == "not_utf8" else (3, 4), done.text[:3000])
                self.assertLessEqual(len(done.stderr.encode()), MAX_MESSAGE)
                self.assertNotIn("bug in lockstep", done.text)

    def test_tokenizers(self):
        replacing = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
        for name, change in {
                "catastrophe": lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+1"}, "behavior": "Isolated"}),
                "grows": lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [replacing] * 40}),
                "prepends": lambda t: t.update(normalizer={"type": "Prepend", "prepend": "a" * 10**6}),
                "huge id": lambda t: t["model"]["vocab"].update(hostile=2 * 10**9),
                "negative id": lambda t: t["model"]["vocab"].update(hostile=-5),
                "strange merge": lambda t: t["model"]["merges"].append("zz qq xx"),
                "merges unknown": lambda t: t["model"].update(merges=["\u0000 \u0001"]),
                "no model": lambda t: t.pop("model"),
                "unk": lambda t: t["model"].update(unk_token="y" * 10**6),
                "added": lambda t: t.update(added_tokens=[{"id": 2 * 10**9, "content": 5}]),
                "outside": lambda t: t.update(post_processor={"type": "BertProcessing", "sep": ["a", 10**9], "cls": ["b", 0]})}.items():
            model = self.model("qwen2")
            rewrite(model / "tokenizer.json", change)
            with self.subTest(name):
                self.refused(4, self.infer(model), "tokenizer.json")

    def test_sizes(self):
        text, vision, thinker = ("text_config",), ("vision_config",), ("thinker_config",)
        for family, part, key, values in sampled((
                ("qwen2", (), "num_hidden_layers", (0, -1, 10**9, 2, 2**63, "x")),
                ("qwen2", (), "hidden_size", (0, -128, 10**15)), ("qwen2", (), "vocab_size", (0, 10**18)),
                ("qwen2", (), "num_attention_heads", (0, 3)), ("qwen2", (), "num_key_value_heads", (0, -2)),
                ("llama", (), "head_dim", (0, 10**9)), ("llama", (), "intermediate_size", (0,)), ("llama", (), "rope_theta", (0,)),
                ("mistral", (), "sliding_window", (0, -1, 10**12, "x")), ("mistral", (), "layer_types", (["full_attention"], ["full_attention"] * 4)),
                ("qwen3", (), "layer_types", (["sliding_attention"] * 4, ["x"] * 4, ["full_attention"] * 10**5)), ("qwen3", (), "head_dim", (0, 7)),
                ("qwen3", (), "rope_scaling", ({"type": "yarn", "factor": -1}, {"type": "yarn", "beta_fast": 0}, {"type": "dynamic", "factor": 0},
                                               {"type": "yarn", "original_max_position_embeddings": 0},
                                               {"type": "yarn", "factor": 2, "mscale": 1, "mscale_all_dim": -1e9})),
                ("llava", vision, "patch_size", (0, -1, 10**6)), ("llava", vision, "image_size", (0, 10**12)),
                ("llava", vision, "num_hidden_layers", (-1, 10**9)), ("llava", vision, "num_attention_heads", (0,)),
                ("llava", text, "max_position_embeddings", (0,)), ("llava", (), "image_token_index", (10**9, -1)),
                ("llava", (), "vision_feature_layer", (99, [])),
                ("qwen2_5_vl", vision, "patch_size", (0,)), ("qwen2_5_vl", vision, "spatial_merge_size", (0,)),
                ("qwen2_5_vl", vision, "window_size", (0, 2**62)), ("qwen2_5_vl", vision, "depth", (10**9,)),
                ("qwen2_5_vl", (), "image_token_id", (10**9,)),
                ("internvl", vision, "patch_size", (0, [8, 4], [], [8, 8, 8])), ("internvl", vision, "image_size", (0, 10**12, [32, 64])),
                ("internvl", vision, "norm_type", ("batch",)), ("internvl", vision, "num_hidden_layers", (10**9,)),
                ("internvl", (), "downsample_ratio", (0, 0.3, 1e-9)), ("internvl", (), "vision_feature_layer", (99, -99)),
                ("internvl", (), "image_token_id", (10**9, -1)),
                ("minicpm_v_2_6", vision, "patch_size", (0, 10**12)), ("minicpm_v_2_6", vision, "image_size", (0, 10**12)),
                ("minicpm_v_2_6", vision, "num_hidden_layers", (10**9,)), ("minicpm_v_2_6", (), "query_num", (0, 10**12)),
                ("minicpm_v_2_6", (), "hidden_size", (64, 0)), ("minicpm_v_2_6", (), "version", (4.5, "x", [])),
                ("minicpm_v_2_6", (), "architectures", (["MiniCPMO"], ["LlavaLlamaForCausalLM"])),
                ("omnilmm", vision, "patch_size", (0, 10**12)), ("omnilmm", vision, "image_size", (0, 10**12)),
                ("omnilmm", vision, "num_hidden_layers", (10**9, 1)), ("omnilmm", (), "num_query", (0, 5, 10**12)),
                ("omnilmm", (), "image_size", (0, 33, 10**12)), ("omnilmm", (), "mm_use_im_start_end", (False,)),
                ("minicpm_o_2_6", (), "version", (4.5, "x", [])), ("minicpm_o_2_6", (), "audio_pool_step", (0, 10**9)),
                ("minicpm_o_2_6", (), "audio_chunk_length", (0.001, 1e300)), ("minicpm_o_2_6", ("audio_config",), "d_model", (0, 65)),
                ("minicpm_o_2_6", ("audio_config",), "encoder_layers", (10**9,)), ("minicpm_o_2_6", ("audio_config",), "num_mel_bins", (0, 128)),
                ("minicpm_o_2_6", ("audio_config",), "max_source_positions", (0, 10**12)),
                ("minicpm_o_2_6", ("audio_config",), "activation_function", ("sin",)),
                ("qwen2_5_omni", thinker, "audio_token_index", (-1, 10**12, "x")), ("qwen2_5_omni", thinker, "seconds_per_chunk", (0, 10**12)),
                ("qwen2_5_omni", thinker, "position_id_per_seconds", (0, 10**12)), ("qwen2_5_omni", thinker, "text_config", ([], {})),
                ("qwen2_5_omni", (*thinker, "audio_config"), "n_window", (0, 10**12)),
                ("qwen2_5_omni", (*thinker, "audio_config"), "output_dim", (0, 7, 10**12)),
                ("qwen2_5_omni", (*thinker, "audio_config"), "d_model", (0, 65)),
                ("qwen2_5_omni", (*thinker, "vision_config"), "depth", (10**9, 1)),
                ("qwen2_5_omni", (*thinker, "vision_config"), "out_hidden_size", (0, 7)),
                ("qwen2_5_omni", (), "enable_audio_output", (True, "x")))):
            for value in values:
                model = self.model(family)

                def change(config):
                    for name in part:
                        config = config[name]
                    config[key] = value

                rewrite(model / "config.json", change)
                with self.subTest(family=family, key=key, value=value):
                    self.refused(4, ["inspect", model])
        # The same through the verbs that would run, train or plan with it.
        model = self.model("llava")
        rewrite(model / "config.json", lambda config: config["vision_config"].update(patch_size=0))
        for words in (self.infer(model), ["plan", "--model", model], ["embed", "--model", model, "--dataset", self.rows, "--output", self.folder / "e"],
                      ["sft", "--model", model, "--dataset", self.rows, "--output_dir", self.folder / "out", "--max_steps", 1],
                      ["eval", "--model", model, "--val_dataset", self.rows]):
            with self.subTest(words[0]):
                self.refused(4, words, "patch_size")

    def test_processors(self):
        for family, keys in (("llava", {"image_std": [0, 1, 1]}), ("llava", {"image_mean": [1]}), ("llava", {"size": 0}),
                             ("llava", {"size": {"height": 65536, "width": 65536}}), ("llava", {"crop_size": {"height": 1, "width": 1}}),
                             ("llava", {"crop_size": 10**18}), ("llava", {"rescale_factor": 1e300}),
                             ("qwen2_5_vl", {"min_pixels": 10**6, "max_pixels": 10}), ("qwen2_5_vl", {"min_pixels": 10**18}),
                             ("qwen2_5_vl", {"max_pixels": 0}), ("qwen2_5_vl", {"patch_size": 0}),
                             ("internvl", {"max_patches": 0}), ("internvl", {"max_patches": 10**9}), ("internvl", {"size": 64}),
                             ("minicpm_v_2_6", {"scale_resolution": 0}), ("minicpm_v_2_6", {"scale_resolution": 65536}),
                             ("minicpm_v_2_6", {"max_slice_nums": 10**9}), ("minicpm_v_2_6", {"image_feature_size": 10**12}),
                             ("minicpm_v_2_6", {"norm_std": [0, 1, 1]}), ("minicpm_v_2_6", {"unk": "no such token"}),
                             ("minicpm_v_2_6", {"slice_mode": False}), ("minicpm_v_2_6", {"patch_size": 7}),
                             ("minicpm_o_2_6", {"feature_size": 128}), ("minicpm_o_2_6", {"hop_length": 0}), ("minicpm_o_2_6", {"n_fft": 10**12}),
                             ("minicpm_o_2_6", {"chunk_length": 10**12}), ("minicpm_o_2_6", {"unk": "no such token"}),
                             ("qwen2_5_omni", {"feature_size": 80}), ("qwen2_5_omni", {"chunk_length": 0}), ("qwen2_5_omni", {"patch_size": 7}),
                             ("qwen2_5_omni", {"sampling_rate": 10**12}), ("qwen2_5_omni", {"dither": 0.1})):
            model = self.model(family)
            rewrite(model / "preprocessor_config.json", lambda config: config.update(keys))
            (self.folder / "p.png").write_bytes(png(30, 20, (9, 9, 9)))
            with self.subTest(family=family, keys=keys):
                done = self.limited(*self.infer(model, "--image", self.folder / "p.png"))
                self.assertIn(done.returncode, (3, 4), done.text[:3000])
                self.assertLessEqual(len(done.stderr), MAX_MESSAGE)
                self.assertNotIn("bug in lockstep", done.text)

    def test_weights_that_are_no_numbers(self):
        name = "model.layers.1.mlp.down_proj.weight"
        for value in (float("nan"), float("inf"), float("-inf")):
            model = self.model("qwen2")
            edit_weights(model / "model.safetensors", poke(name, [1.0, value]))
            with self.subTest(value):
                self.refused(7, self.infer(model), name, "model.safetensors")
        self.refused(7, ["sft", "--model", model, "--dataset", self.rows, "--output_dir", self.folder / "out", "--max_steps", 1], name)

    def test_layers_that_nobody_reads(self):
        model = self.model("qwen2")
        rewrite(model / "config.json", lambda config: config.update(num_hidden_layers=config["num_hidden_layers"] - 1))
        for words in (["inspect", model], self.infer(model)):
            self.refused(4, words, "model.layers.3.", "no block reads it")

    def test_one_flipped_bit_of_a_checkpoint_with_hashes(self):
        out = self.folder / "out"
        self.refused(0, ["sft", "--model", self.models["qwen2"], "--dataset", self.rows, "--output_dir", out, "--max_steps", 1, "--report_to", "none",
                         "--add_version", "false"])
        saved = next(out.glob("checkpoint-1"))
        self.refused(0, ["inspect", saved])
        lora = self.folder / "lora"
        self.refused(0, ["sft", "--model", saved, "--dataset", self.rows, "--output_dir", lora, "--max_steps", 1, "--report_to", "none", "--tuner_type", "lora",
                         "--add_version", "false"])

        def flip(path):
            data = bytearray(path.read_bytes())
            data[-100] ^= 1
            path.write_bytes(data)

        weights, adapter = saved / "model.safetensors", lora / "checkpoint-1"
        broken = shutil.copytree(adapter, self.folder / "broken")
        flip(broken / "adapter_model.safetensors")
        for words in (["inspect", broken], [*self.infer(saved), "--adapters", broken], ["export", "--adapters", broken, "--output_dir", self.folder / "made"],
                      ["eval", "--model", saved, "--adapters", broken, "--val_dataset", self.rows, "--predict_with_generate", "false"]):
            self.refused(4, words, "adapter_model.safetensors", "xxh64")
            self.refused(0, [*words, "--verify", "false"])
        flip(weights)
        for words in (["inspect", saved], self.infer(saved)):
            self.refused(4, words, "model.safetensors", "xxh64")
            self.refused(0, [*words, "--verify", "false"])
        for words in (["export", "--model", saved], ["export", "--model", saved, "--adapters", adapter],
                      ["export", "--model", saved, "--quant_method", "bnb", "--quant_bits", 8]):
            copy = self.folder / f"export{len(words)}"
            self.refused(4, [*words, "--output_dir", copy], "model.safetensors", "xxh64")
            self.assertFalse(copy.exists())
            self.refused(0, [*words, "--output_dir", copy, "--verify", "false"])
        for text in (DEEP_LIST, "[]", '{"format": 1}', '{"format": "lockstep checkpoint 1", "files": {"../x": {}}}'):
            (saved / "lockstep_manifest.json").write_text(text)
            self.refused(4, ["inspect", saved], "lockstep_manifest.json")
        (saved / "trainer_state.json").write_text(DEEP_LIST)
        (saved / "lockstep_manifest.json").write_text('{"format": "lockstep checkpoint 1", "files": {}}')
        self.refused(4, ["sft", "--model", self.models["qwen2"], "--dataset", self.rows, "--output_dir", out, "--max_steps", 2,
                         "--report_to", "none", "--add_version", "false", "--resume_from_checkpoint", saved], "trainer_state.json", "nested")


if __name__ == "__main__":
    main()

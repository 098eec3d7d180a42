"""peft opens every adapter that lockstep writes: no warning, no key too few or too many, and the same losses."""
import importlib.util
import json
import sys
import warnings

from lora_job import ADAPTER, lora_words, loss_of, make_id_rows, read_tensors
from small_job import make_model, make_rows
from story import Story, main


def setUpModule():
    missing = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")


def tensors_of(model):
    """What peft would save of it, by the names of files."""
    from peft import get_peft_model_state_dict
    return {name: value for name, value in get_peft_model_state_dict(model, save_embedding_layers=False).items()}


class Opened(Story):
    def open(self, adapter, auto):
        """Through peft, with warnings as errors; and what there is to say against the folder."""
        import torch
        import transformers
        from peft import LoraConfig, PeftModel
        from peft.utils import CONFIG_NAME
        config = json.loads((adapter / CONFIG_NAME).read_text())
        LoraConfig().save_pretrained(self.folder / "of_peft")
        self.assertEqual(sorted(config), sorted(json.loads((self.folder / "of_peft" / CONFIG_NAME).read_text())))
        base = getattr(transformers, auto).from_pretrained(config["base_model_name_or_path"], dtype=torch.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", FutureWarning)  # between peft and transformers
            model = PeftModel.from_pretrained(base, adapter)
        stored, held = read_tensors(adapter / ADAPTER), tensors_of(model)
        self.assertEqual({name for name in held if ".post_layernorm." not in name}, set(stored), "names of tensors")  # nothing is computed with it
        for name in stored:
            value = held[name]
            self.assertEqual(list(value.shape), stored[name][1], name)
            self.assertEqual(value.to(torch.float32).numpy().tobytes(), stored[name][2], name)
        return model.eval()

    def losses_agree(self, model, adapter, rows):
        done = self.lockstep("eval", "--adapters", adapter, "--dataset", rows, "--predict_with_generate", "false", "--torch_dtype", "float32", "--json",
                             expect=0)
        self.assertAlmostEqual(json.loads(done.stdout)["loss"], loss_of(model, rows), delta=2e-4)

    def check(self, family, auto, kinds):
        model = make_model(self.folder, family=family)
        ids = make_id_rows(self.folder / "ids.jsonl")
        rows = make_rows(self.folder) if family == "llava" else ids
        for name, flags in kinds.items():
            with self.subTest(f"{family} {name}"):
                out = self.folder / f"{family}_{name}"
                self.lockstep(*lora_words(model, rows, out, steps=3, nproc=2, **flags), expect=0)
                adapter = out / "checkpoint-3"
                opened = self.open(adapter, auto)
                if (adapter / "vit.safetensors").exists():
                    self.load_beside(opened, adapter)
                self.losses_agree(opened, adapter, ids)

    def load_beside(self, model, adapter):
        """As ms-swift does."""
        from safetensors.torch import load_file
        beside = load_file(adapter / "vit.safetensors")
        changed = sum(int(not model.state_dict()[name].equal(value)) for name, value in beside.items())
        self.assertGreater(changed, 10, "the tower has learnt")
        self.assertEqual(model.load_state_dict(beside, strict=False).unexpected_keys, [])

    def test_of_text(self):
        self.check("qwen2", "AutoModelForCausalLM", {
            "lora": {}, "dora": {"use_dora": "true"}, "rslora": {"use_rslora": "true"},
            "patterns": {"rank_pattern": '{"q_proj": 2, "layers.1.mlp.up_proj": 6}', "alpha_pattern": '{"q_proj": 3}'},
            "saved": {"modules_to_save": "norm"}, "biases": {"lora_bias": "all"}, "own_biases": {"lora_bias": "lora_only", "target_modules": "q_proj"},
            "table": {"target_modules": "embed_tokens"}, "dora_table": {"target_modules": "embed_tokens", "use_dora": "true"},
            "head": {"target_modules": "lm_head"}, "layers": {"layers_to_transform": 1, "target_modules": "q_proj"}})

    def test_of_pictures(self):
        everything = {"freeze_vit": "false", "freeze_aligner": "false"}
        self.check("llava", "AutoModelForImageTextToText", {
            "lora": {}, "all": everything, "dora": {"use_dora": "true", **everything}, "lora_llm": {"tuner_type": "lora_llm", **everything},
            "projector": {"modules_to_save": "multi_modal_projector"}, "biases": {"lora_bias": "all"},
            "patches": {"target_modules": "patch_embedding", **everything}, "dora_patches": {"target_modules": "patch_embedding", "use_dora": "true", **everything}})


if __name__ == "__main__":
    main()

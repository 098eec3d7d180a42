"""Oracles of a fresh seed, made by transformers, hold: `lockstep verify` computes them again.

LOCKSTEP_ORACLE_SEED picks the seed (default 7), LOCKSTEP_ORACLE_IMAGES how many images have random sizes (default 60); both are
printed.
"""
import importlib.util
import json
import os
import subprocess
import sys
import unittest

from story import FIXTURES, ROOT, Story, main, sampled

SEED = os.environ.get("LOCKSTEP_ORACLE_SEED", "7")
FAMILIES = ["qwen2", "llama", "mistral", "qwen3", "llava", "qwen2_5_vl", "internvl", "internvl_internlm2", "minicpm_v_2_6", "minicpm_o_2_6", "omnilmm", "qwen2_5_omni",
            "train_qwen2", "train_llava"]
GENERATOR = ROOT / "tests" / "oracles" / "make_oracles.py"


def setUpModule():
    missing = [name for name in ("torch", "transformers", "torchvision", "peft", "soundfile", "soxr") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")


def generate(*words):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-B", "-W", "ignore", GENERATOR, *map(str, words)], capture_output=True, text=True,
                          check=False, env=env)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class FreshOracles(Story):
    def verify(self, families, *flags):
        print(f"seed {SEED} {' '.join(flags)}", flush=True)
        generate("--out", self.folder, "--seed", SEED, "--family", ",".join(families), *flags)
        for family in families:
            with self.subTest(family):
                self.lockstep("verify", self.folder / family, expect=0)

    def test_ordinary_sizes(self):
        self.verify(FAMILIES)

    def test_odd_sizes(self):
        self.verify(sampled(FAMILIES), "--sizes", "odd")

    def test_random_sizes(self):
        self.verify(sampled(FAMILIES), "--sizes", "random")

    def test_text_images_and_sound(self):
        self.verify(["tokenizers", "sentencepiece", "chat_templates", "image_preprocess", "audio_preprocess"])

    def test_images_of_random_sizes(self):
        self.verify(["image_sizes"], "--images", os.environ.get("LOCKSTEP_ORACLE_IMAGES", "60"))

    def test_recorded_templates_are_what_jinja_makes(self):
        done = subprocess.run([sys.executable, "-B", GENERATOR.parent / "make_jinja.py", "--check"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_transformers_opens_what_is_saved_of_omni(self):
        """Trained with a rate of 0: the same weights, what speaks and its speakers among them."""
        import shutil
        import torch
        from transformers import Qwen2_5OmniForConditionalGeneration as Omni
        from small_job import sft_words
        model, rows = self.folder / "omni", self.folder / "rows.jsonl"
        shutil.copytree(FIXTURES / "oracle" / "odd" / "qwen2_5_omni" / "checkpoint", model)
        for file in model.rglob("*"):
            file.chmod(0o644)
        rows.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"number {i}"}) + "\n" for i in range(4)))
        self.lockstep(*sft_words(model, rows, self.folder / "out", steps=1, learning_rate="0", weight_decay="0", save_steps=1, torch_dtype="bfloat16"),
                      expect=0)
        ours, theirs = (Omni.from_pretrained(folder, dtype=torch.float32) for folder in (self.folder / "out" / "checkpoint-1", model))
        self.assertTrue(ours.has_talker)
        self.assertEqual(list(ours.speaker_map), list(theirs.speaker_map))
        expected = theirs.state_dict()
        self.assertEqual([name for name, value in ours.state_dict().items() if not value.equal(expected[name])], [])

    def test_transformers_folder_of_omnis_thinker_is_trained_and_opens_there_again(self):
        """Its names have no "thinker." in front (LLaMA-Factory saves such folders); what is learnt is what the whole model learns."""
        import shutil
        import torch
        from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Thinker
        from small_job import losses, sft_words
        whole, alone, rows = (self.folder / name for name in ("whole", "alone", "rows.jsonl"))
        shutil.copytree(FIXTURES / "oracle" / "odd" / "qwen2_5_omni" / "checkpoint", whole)
        Thinker.from_pretrained(whole, dtype=torch.bfloat16).save_pretrained(alone)
        self.without_prefix(alone)
        for file in whole.iterdir():
            file.chmod(0o644)
            if not (alone / file.name).exists() and file.suffix in (".json", ".jinja", ".txt"):
                shutil.copy(file, alone)
        rows.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"number {i}"}) + "\n" for i in range(4)))
        learnt = []
        for model in (whole, alone):
            out = self.folder / f"out {model.name}"
            self.lockstep(*sft_words(model, rows, out, steps=2, save_steps=2, torch_dtype="bfloat16"),
                          env={"ENABLE_AUDIO_OUTPUT": "0"} if model == whole else {}, expect=0)
            learnt.append(losses(out))
        self.assertEqual(learnt[0], learnt[1])
        saved, told = Thinker.from_pretrained(self.folder / "out alone" / "checkpoint-2", dtype=torch.float32, output_loading_info=True)
        self.assertEqual([name for name, found in told.items() if found], [])
        before = Thinker.from_pretrained(alone, dtype=torch.float32).state_dict()
        self.assertTrue(any(not value.equal(before[name]) for name, value in saved.state_dict().items()), "nothing was trained")
        config = json.loads((alone / "config.json").read_text())
        (alone / "config.json").write_text(json.dumps({**config, "enable_audio_output": True}))
        done = self.lockstep("inspect", alone, expect=4)
        for cure in ("set enable_audio_output to false", "released model", "ENABLE_AUDIO_OUTPUT=0"):
            self.assertIn(cure, done.stdout)
        self.lockstep("inspect", alone, env={"ENABLE_AUDIO_OUTPUT": "0"}, expect=0)

    @staticmethod
    def without_prefix(folder):
        """Without the prefix, which transformers keeps of a folder that had it."""
        from safetensors.torch import load_file, save_file
        weights = folder / "model.safetensors"
        save_file({name.removeprefix("thinker."): value for name, value in load_file(weights).items()}, weights, metadata={"format": "pt"})

    def test_a_wrong_weight_is_found(self):
        """verify is only worth something if it fails: the final norm of the checkpoint is changed by one per cent."""
        from safetensors.torch import load_file, save_file
        generate("--out", self.folder, "--seed", SEED, "--family", "qwen2")
        weights = self.folder / "qwen2" / "checkpoint" / "model.safetensors"
        tensors = load_file(weights)
        tensors["model.norm.weight"] *= 1.01
        save_file(tensors, weights, metadata={"format": "pt"})
        done = self.lockstep("verify", self.folder / "qwen2", "--json")
        self.assertNotEqual(done.returncode, 0, done.text)
        json.loads(done.stdout)


class RecordedOracles(unittest.TestCase):
    def test_transformers_still_gives_what_was_recorded(self):
        for name, families in (("seed1", "qwen2,llava,train_qwen2,train_llava"), ("odd", "qwen2,llama,llava,qwen2_5_vl,internvl,mistral,qwen3,minicpm_v_2_6,minicpm_o_2_6,omnilmm,qwen2_5_omni")):
            print(generate("--out", FIXTURES / "oracle" / name, "--verify", "--family", families))


if __name__ == "__main__":
    main()

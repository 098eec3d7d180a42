"""Adapters of a fresh seed, made by peft: what is computed, trained and merged with them.

LOCKSTEP_ORACLE_SEED picks the seed (default 7), which is printed.
"""
import json
import re
import shutil

from hf_oracles_test import SEED, generate, setUpModule  # noqa: F401: unittest calls it
from story import Story, main, sampled

# peft adds to the tensor that embedding and head share, so that its merged model answers otherwise.
SHARED_BY_PEFT = {"embedding", "dora_embedding", "head", "tied_targets"}
NOT_BUILT = {"tied_save", "tied_targets"}


def tensors_of(folder):
    from safetensors.torch import load_file
    return {key: value for file in sorted(folder.glob("*.safetensors")) for key, value in load_file(file).items()}


def in_bfloat16(source, target):
    import torch
    from safetensors.torch import load_file, save_file
    shutil.copytree(source, target)
    for file in target.glob("*.safetensors"):
        save_file({k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    return target


class LoraOracles(Story):
    def check_family(self, family, *flags):
        print(f"seed {SEED} {family} {' '.join(flags)}", flush=True)
        generate("--out", self.folder, "--seed", SEED, "--vocab", 288, "--family", f"lora_{family}", *flags)
        folder = self.folder / f"lora_{family}"
        self.lockstep("verify", folder, expect=0)
        meta = json.loads((folder / "reference.json").read_text())
        base = folder / "checkpoint"
        for kind in sampled(sorted(set(meta["adapters"]) - NOT_BUILT)):
            with self.subTest(f"{family} {kind}, merged"):
                self.check_merged(folder, kind, base, folder / "merged" / f"{kind}.safetensors", 2e-6)
        half = in_bfloat16(base, folder / "checkpoint-in-bf16")
        for file in sampled(sorted((folder / "merged_bf16").glob("*.safetensors"))):
            with self.subTest(f"{family} {file.stem}, merged in bf16"):
                self.check_merged(folder, file.stem, half, file, None)

    def check_merged(self, folder, kind, base, recorded, most):
        """`most`: how far a number may be from peft's; None: as many units of bfloat16 as one of 10,000 may be."""
        from safetensors.torch import load_file
        adapter = folder / "adapters" / kind
        target = folder / "merged-here" / f"{base.name}-{kind}"
        if not recorded.exists():  # peft cannot: a bias for a module that has none
            self.lockstep("export", "--adapters", adapter, "--model", base, "--output_dir", target, expect=2)
            self.assertFalse(target.exists())
            return
        self.lockstep("export", "--adapters", adapter, "--model", base, "--output_dir", target, expect=0)
        found, before = tensors_of(target), tensors_of(base)
        untied = set(found) - set(before)
        if kind not in SHARED_BY_PEFT or not untied:
            apart = elements = 0
            for name, expected in {**before, **load_file(recorded)}.items():
                difference = (found[name].float() - expected.float()).abs()
                if most is not None:
                    self.assertLessEqual(difference.max().item(), most * max(1.0, expected.abs().max().item()), name)
                apart += int((difference > 0).sum())
                elements += difference.numel()
            if most is None:
                self.assertLessEqual(apart, elements / 10000)
        for file in base.iterdir():
            if file.suffix == ".safetensors" or file.name.endswith(".index.json") or (untied and file.name == "config.json"):
                continue
            self.assertEqual((target / file.name).read_bytes(), file.read_bytes(), file.name)
        self.check_same_words(folder, kind, base, adapter, target, most)

    def check_same_words(self, folder, kind, base, adapter, target, most):
        """The merged folder and the adapter have one loss."""
        if most is None or kind not in ("r4", "dora", "all", "head", "embedding", "save_embed_head", "lora_llm", "pissa"):
            return
        rows = folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"query": f"Say {i}.", "response": f"it is number {i}"}) + "\n" for i in range(4)))
        losses = []
        for words in (["--model", base, "--adapters", adapter], ["--model", target]):
            told = self.lockstep("eval", *words, "--val_dataset", rows, "--predict_with_generate", "false", expect=0).text
            losses.append(float(re.search(r"^loss +(\S+)", told, re.M).group(1)))
        self.assertAlmostEqual(*losses, delta=2e-5)

    def test_llava_of_odd_sizes(self):
        self.check_family("llava", "--sizes", "odd")

    def test_a_tied_model_of_random_sizes(self):
        self.check_family("qwen2", "--sizes", "random")


if __name__ == "__main__":
    main()

"""bitsandbytes and Lockstep quantise alike, each opens what the other has written, and peft opens an adapter that was trained over a quantised base."""
import importlib.util
import json
import re
import shutil
import sys

from hf_oracles_test import SEED, generate
from lora_job import lora_words, loss_of, make_id_rows, read_tensors
from small_job import make_model
from story import ROOT, Story, main

SIZES = {"llava": "tiny", "qwen2": "demo"}  # whose rows are multiples of 64: others of 16 bitsandbytes unpacks wrongly on a CPU with AVX-512
FLAGS = ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype")
ROUNDING = 2.0 ** -23


def setUpModule():
    missing = [name for name in ("torch", "transformers", "peft", "bitsandbytes") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")
    sys.path.insert(0, str(ROOT / "tests" / "oracles"))
    from transformers.utils import logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def family_of(name):
    from oraclelib.lora_models import MODELS
    return MODELS[name]()


def opened(name, folder, **arguments):
    """In float32 throughout, also of a folder of codes; int8 as in training, when bitsandbytes leaves activations as they are."""
    from oraclelib.lora_models import load
    model = load(family_of(name), folder, **arguments)
    for module in model.modules():
        if type(module).__name__ == "Linear8bitLt":
            module.train()
    return model


def asked(bits=4, quant_type="nf4", double=False, skip=None, **more):
    from transformers import BitsAndBytesConfig
    if bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=skip)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=quant_type, bnb_4bit_use_double_quant=double, llm_int8_skip_modules=skip, **more)


def language_alone(name):
    family = family_of(name)
    return [family.tower, family.projector, "lm_head"] if family.tower else None


def by_transformers(name, model, folder, config):
    """As a user does, in bf16; with the tokenizer, since a model without one is none."""
    import torch
    from oraclelib.lora_models import load
    load(family_of(name), model, torch.bfloat16, quantization_config=config).save_pretrained(folder)
    for file in model.iterdir():
        if not (folder / file.name).exists():
            shutil.copy(file, folder)
    return folder


def floats(entry):
    import numpy
    return numpy.frombuffer(entry[2], {"F32": numpy.float32, "U8": numpy.uint8}[entry[0]])


class Quantised(Story):
    def model(self, name):
        return make_model(self.folder, family=name, dtype="bfloat16", size=SIZES[name])

    # ----------------------------------------------------------------------- what is written
    def same_quantisation(self, ours, theirs, weights):
        """Bytes, but for what a sum in another order or a table of another kernel changes; whether any code of a scale is another."""
        ours, theirs = (read_tensors(folder / "model.safetensors") for folder in (ours, theirs))
        self.assertEqual(sorted(ours), sorted(theirs))
        apart = 0
        for name, entry in ours.items():
            self.assertEqual(entry[:2], theirs[name][:2], name)
            if name.endswith((".absmax", ".SCB")) and entry[0] == "F32":
                self.within(floats(entry), floats(theirs[name]), ROUNDING * abs(floats(theirs[name])), name)
            elif name.endswith(".absmax"):
                apart += self.nearest(name.removesuffix(".absmax"), ours, theirs, weights)
            elif name.endswith(".nested_absmax"):
                self.within(floats(entry), floats(theirs[name]), 4 * ROUNDING * self.state(theirs, name.removesuffix(".nested_absmax"))["nested_offset"], name)
            elif ".quant_state." in name:
                self.same_state(json.loads(entry[2]), json.loads(theirs[name][2]), name)
            else:
                self.assertTrue(entry[2] == theirs[name][2], f"{name}: other bytes")
        return apart

    def within(self, found, expected, allowed, name):
        self.assertTrue((abs(found.astype("f8") - expected) <= allowed).all(), f"{name}: {found} instead of {expected}")

    def same_state(self, found, expected, name):
        offset = "nested_offset"
        self.assertEqual({k: v for k, v in found.items() if k != offset}, {k: v for k, v in expected.items() if k != offset}, name)
        if offset in expected:
            self.assertAlmostEqual(found[offset], expected[offset], delta=4 * ROUNDING * expected[offset], msg=name)

    @staticmethod
    def state(tensors, name):
        return json.loads(next(entry[2] for key, entry in tensors.items() if key.startswith(f"{name}.quant_state.")))

    def nearest(self, name, ours, theirs, weights):
        """Codes of scales are bitsandbytes' own, or nearer: its CPU kernel looks in a table where the one for GPUs searches."""
        import numpy
        found, expected = floats(ours[f"{name}.absmax"]), floats(theirs[f"{name}.absmax"])
        largest = abs(weights[name].float().numpy().reshape(-1, 64)).max(1)
        outer = numpy.repeat(floats(ours[f"{name}.nested_absmax"]), 256)[:largest.size]
        scaled = (largest - self.state(ours, name)["nested_offset"]) / outer
        levels = floats(ours[f"{name}.nested_quant_map"])
        others = found != expected
        away = abs(levels[found] - scaled)[others]
        self.assertTrue((away <= abs(levels - scaled[others, None]).min(1) + 1e-6).all(), f"{name}: not the nearest level")
        return int(others.sum())

    def same_config(self, ours, theirs):
        ours, theirs = (json.loads((folder / "config.json").read_text())["quantization_config"] for folder in (ours, theirs))
        self.assertEqual(sorted(ours), sorted(theirs))
        self.assertEqual(ours["quant_method"], "bitsandbytes")
        self.assertEqual({k: ours[k] for k in FLAGS if ours["load_in_4bit"] or "4bit_" not in k},
                         {k: theirs[k] for k in FLAGS if ours["load_in_4bit"] or "4bit_" not in k})

    def exported(self, name, model, label, words, config):
        import torch
        from oraclelib.common import read_weights
        ours = self.folder / f"{name} {label}"
        self.lockstep("export", "--model", model, "--quant_method", "bnb", *words, "--bnb_4bit_compute_dtype", "float32", "--output_dir", ours, expect=0)
        theirs = by_transformers(name, model, self.folder / f"{name} {label} of transformers", config)
        apart = self.same_quantisation(ours, theirs, read_weights(model))
        self.same_config(ours, theirs)
        one, other = opened(name, ours), opened(name, theirs)
        self.assertEqual(*({n: type(m).__name__ for n, m in model.named_modules() if "bit" in type(m).__name__} for model in (one, other)))
        ids = torch.arange(5, 45).reshape(2, 20)
        with torch.no_grad():
            difference = (one(input_ids=ids).logits - other(input_ids=ids).logits).abs().max().item()
        self.assertLess(difference, 0.1 if apart else 2e-4)  # a level more or less in the scale of a block shows

    def test_of_pictures(self):
        """Without being asked the tower and the projector stay as they are; with `none` only the head does."""
        model, plain = self.model("llava"), ("--bnb_4bit_use_double_quant", "false")
        language = language_alone("llava")
        nf4 = ("--quant_bits", 4, "--bnb_4bit_quant_type", "nf4")
        for label, words, config in (
                ("nf4", (*nf4, *plain), asked(skip=language)),
                ("fp4", ("--quant_bits", 4, "--bnb_4bit_quant_type", "fp4", *plain), asked(quant_type="fp4", skip=language)),
                ("double", (*nf4, "--bnb_4bit_use_double_quant", "true"), asked(double=True, skip=language)),
                ("int8", ("--quant_bits", 8), asked(8, skip=language)),
                ("all", (*nf4, *plain, "--llm_int8_skip_modules", "none"), asked()),
                ("all int8", ("--quant_bits", 8, "--llm_int8_skip_modules", "none"), asked(8))):
            with self.subTest(label):
                self.exported("llava", model, label, words, config)

    def test_of_text(self):
        model = self.model("qwen2")
        self.exported("qwen2", model, "double", ("--quant_bits", 4, "--bnb_4bit_quant_type", "nf4", "--bnb_4bit_use_double_quant", "true"), asked(double=True))

    # ----------------------------------------------------------------------- what is read
    def evaluated(self, rows, *words):
        done = self.lockstep("eval", "--dataset", rows, "--predict_with_generate", "false", "--torch_dtype", "float32", "--json", *words, expect=0)
        return json.loads(done.stdout)["loss"]

    def adapter_of_peft(self, name, base, folder):
        """With a B that is not zero."""
        import torch
        from peft import LoraConfig, get_peft_model
        torch.manual_seed(3)
        inside = rf"{re.escape(family_of(name).language)}\..*\.(q_proj|v_proj|down_proj)"
        model = get_peft_model(opened(name, base), LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=inside, init_lora_weights=False))
        model.save_pretrained(folder)
        return model.eval()

    def test_a_folder_of_transformers_is_opened(self):
        rows = make_id_rows(self.folder / "ids.jsonl")
        for name, label, config in (("llava", "nf4", asked()), ("llava", "double", asked(quant_type="fp4", double=True)), ("llava", "int8", asked(8)),
                                    ("llava", "language", asked(skip=language_alone("llava"))), ("qwen2", "double", asked(double=True))):
            with self.subTest(f"{name} {label}"):
                made = self.folder / name
                base = by_transformers(name, made if made.exists() else self.model(name), self.folder / f"{name} {label}", config)
                self.assertAlmostEqual(self.evaluated(rows, "--model", base), loss_of(opened(name, base), rows), delta=1e-4)
                if label == "int8":
                    continue
                adapter = self.folder / f"{name} {label} adapter"
                expected = loss_of(self.adapter_of_peft(name, base, adapter), rows)
                self.assertAlmostEqual(self.evaluated(rows, "--model", base, "--adapters", adapter), expected, delta=1e-4)

    # ----------------------------------------------------------------------- what is trained over it
    def trained(self, name, model, label, base_of, *words, **flags):
        """A run that learns something; its adapter over the base that peft is given computes what Lockstep computes."""
        from peft import PeftModel
        rows, out = make_id_rows(self.folder / "ids.jsonl"), self.folder / f"{name} {label} run"
        self.lockstep(*lora_words(model, rows, out, steps=6, nproc=2, **flags), expect=0)
        adapter, base = out / "checkpoint-6", base_of()
        before = loss_of(base, rows)
        after = loss_of(PeftModel.from_pretrained(base, adapter).eval(), rows)
        self.assertLess(after, before - 0.05)
        self.assertAlmostEqual(self.evaluated(rows, "--adapters", adapter, *words), after, delta=2e-4)

    def test_an_adapter_is_trained_over_codes(self):
        """Over a model that is quantised on the way, and over one that is quantised already."""
        import torch
        model = self.model("llava")
        config = asked(skip=language_alone("llava"), bnb_4bit_compute_dtype=torch.float32)
        flags = {"quant_method": "bnb", "quant_bits": 4, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": "false"}
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        self.trained("llava", model, "on the way", lambda: opened("llava", model, quantization_config=config), "--model", model, *words, **flags)
        base = by_transformers("llava", model, self.folder / "base", config)
        self.trained("llava", base, "already", lambda: opened("llava", base), "--model", base)

    # ----------------------------------------------------------------------- what is computed
    def test_fresh_oracles_hold(self):
        """Codes, values, logits, gradients and 20 steps as transformers, peft and bitsandbytes have them."""
        for family, flags in (("qwen2", ("--sizes", "odd")), ("qwen2_5_vl", ("--sizes", "random"))):
            with self.subTest(family):
                print(f"seed {SEED} {family}", flush=True)
                generate("--out", self.folder, "--seed", SEED, "--family", f"qlora_{family}", *flags)
                self.lockstep("verify", self.folder / f"qlora_{family}", expect=0)


if __name__ == "__main__":
    main()

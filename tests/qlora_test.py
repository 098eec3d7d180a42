"""Adapters over a base whose matrices are codes of few bits: every stage and number of ranks, memory, wires, and what is said."""
import json
import os

from lora_job import ADAPTER, check_ranks_and_stages, lora_words, make_id_rows
from small_job import losses, make_model, make_rows
from story import Story, main

NF4 = {"quant_method": "bnb", "quant_bits": 4}


def figures(done):
    """{what: (calls, bytes)} of the table of communication."""
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20}
    found = {}
    for line in done.text.splitlines():
        words = line.split()
        for at, word in enumerate(words):
            if word == "all_gather" and words[at + 3] in units:
                found[" ".join(words[:at])] = int(words[at + 1]), float(words[at + 2]) * units[words[at + 3]]
    return found


class Qlora(Story):
    def test_one_world_gives_the_same_bytes_and_all_worlds_the_same_numbers(self):
        check_ranks_and_stages(self, make_model(self.folder), make_rows(self.folder), llm_int8_skip_modules="none", **NF4)

    def test_a_folder_of_codes_trains_as_codes_made_while_loading_and_offloaded_ones_too(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        codes = self.folder / "codes"
        self.lockstep("export", "--model", model, "--quant_method", "bnb", "--quant_bits", 4, "--output_dir", codes, expect=0)
        made = {}
        for name, words in {"made": (model, NF4), "stored": (codes, {}), "offloaded": (codes, {"offload": "params", "virtual_devices": 1})}.items():
            out = self.folder / name
            self.lockstep(*lora_words(words[0], rows, out, nproc=2, **words[1]), expect=0)
            made[name] = (out / "checkpoint-4" / ADAPTER).read_bytes()
        self.assertEqual(made["made"], made["stored"])
        self.assertEqual(made["made"], made["offloaded"])

    def test_what_a_run_was_over_is_found_again(self):
        model, rows = make_model(self.folder, family="llama"), make_id_rows(self.folder / "ids.jsonl")
        out = self.folder / "out"
        words = lora_words(model, rows, out, nproc=2, save_steps=2, bnb_4bit_use_double_quant="false", bnb_4bit_quant_type="fp4",
                           create_checkpoint_symlink="true", val_dataset=rows, eval_steps=2, **NF4)
        self.lockstep(*words, expect=0)
        last = out / "checkpoint-4"
        self.assertEqual(os.readlink(out / "last"), last.name)
        self.assertIn(os.readlink(out / "best"), ("checkpoint-2", "checkpoint-4"))
        whole = (last / ADAPTER).read_bytes()
        measure = ("--dataset", rows, "--predict_with_generate", "false", "--json")
        by_itself = json.loads(self.lockstep("eval", "--adapters", last, *measure, expect=0).stdout)
        asked = json.loads(self.lockstep("eval", "--adapters", last, "--model", model, "--quant_bits", 4, "--bnb_4bit_quant_type", "fp4",
                                         "--bnb_4bit_use_double_quant", "false", *measure, expect=0).stdout)
        self.assertEqual(by_itself["loss"], asked["loss"])
        for path in sorted(last.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        last.rmdir()
        other = self.lockstep(*lora_words(model, rows, out, nproc=2, save_steps=2, val_dataset=rows, eval_steps=2), "--resume_from_checkpoint", "true", expect=2)
        self.assertIn("4 bits, fp4, without towers and projectors there, as the folder has them here", other.stderr)
        self.lockstep(*words, "--resume_from_checkpoint", "true", expect=0)
        self.assertEqual((last / ADAPTER).read_bytes(), whole)

    def test_bytes_that_travel(self):
        """Beside LoRA over bf16: of the matrices' bytes at most 0.30 are gathered in a step."""
        rows = make_id_rows(self.folder / "ids.jsonl")
        model = make_model(self.folder, family="llama")
        sent = {}
        for name, flags in {"plain": {}, "codes": NF4}.items():
            done = self.lockstep(*lora_words(model, rows, self.folder / name, nproc=2, deepspeed="zero3", torch_dtype="bfloat16",
                                             comm_figures="kind", shared_weights="false", **flags), expect=0)
            sent[name] = figures(done)
        calls, codes = sent["codes"]["quantised gather"]
        others = sent["codes"]["gather"][1]
        matrices = sent["plain"]["gather"][1] - others
        self.assertGreater(calls, 0)
        self.assertLessEqual(codes / matrices, 0.30)

    def test_what_is_wrong_is_said(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        codes = self.folder / "codes"
        self.lockstep("export", "--model", model, "--quant_bits", 8, "--output_dir", codes, expect=0)
        base = ("sft", "--model", model, "--dataset", rows, "--output_dir", self.folder / "out", "--tuner_type", "lora")

        def says(code, expected, *words):
            self.assertIn(expected, self.lockstep(*words, expect=code).stderr)

        says(2, "--quant_method gptq: is not built", *base, "--quant_method", "gptq", "--quant_bits", 4)
        says(2, "--quant_bits 3: expected 4 or 8", *base, "--quant_bits", 3)
        says(2, "contradict each other", *base, "--quant_method", "bnb")
        says(2, "expected nf4 or fp4", *base, "--quant_bits", 4, "--bnb_4bit_quant_type", "nf5")
        says(2, "computed in one dtype", *base, "--quant_bits", 4, "--bnb_4bit_compute_dtype", "float16", "--torch_dtype", "float32")
        # Of what is trained it changes no number; a folder is written in one way.
        told = self.lockstep("plan", *base[1:], "--quant_bits", 4, "--bnb_4bit_quant_storage", "bfloat16", expect=0)
        self.assertIn("--bnb_4bit_quant_storage bfloat16 makes no difference", told.text)
        says(2, "written as bytes, uint8", "export", "--model", model, "--output_dir", self.folder / "half", "--quant_bits", 4, "--bnb_4bit_quant_storage",
             "bfloat16")
        says(2, "did you mean vision_tower?", *base, "--quant_bits", 4, "--llm_int8_skip_modules", "vision_towr")
        says(2, "cannot be trained or saved", "sft", "--model", codes, "--dataset", rows, "--output_dir", self.folder / "out")
        says(2, "holds codes of few bits already", "sft", "--model", codes, "--dataset", rows, "--tuner_type", "lora", "--quant_bits", 4)
        says(2, "expected a folder that is not there yet", "export", "--model", model, "--quant_bits", 4, "--output_dir", codes)
        config = json.loads((codes / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
        (codes / "config.json").write_text(json.dumps(config))
        says(4, "found \"gptq\"", "eval", "--model", codes, "--dataset", rows)


if __name__ == "__main__":
    main()

"""LLaVA's two stages from a language model, a CLIP tower and a projector that stand apart, as its scripts have them: equal to the model
of one folder, bit for bit, and the first stage to transformers' loss of the same rows."""
import importlib.util
import json
import math
import shutil
import sys

from small_job import FIXTURES, make_rows, original_llava, png, records
from story import Story, main

JOINT = {"mm_projector_type": "mlp2x_gelu", "mm_vision_select_layer": -1, "mm_vision_select_feature": "cls_patch", "image_aspect_ratio": "pad"}


def setUpModule():
    missing = [name for name in ("torch", "safetensors", "transformers", "sentencepiece", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")


class LlavaStages(Story):
    def setUp(self):
        super().setUp()
        import torch
        from safetensors.torch import save_file
        self.whole = original_llava(self.folder)
        self.tower = self.folder / "vision_tower"
        self.language = self.folder / "vicuna"
        shutil.copytree(self.whole, self.language, ignore=shutil.ignore_patterns("pytorch_model*"))
        tensors = {}
        for file in self.whole.glob("pytorch_model-*.bin"):
            tensors.update(torch.load(file))
        self.projector = {name: value for name, value in tensors.items() if "mm_projector" in name}
        save_file({name: value.contiguous() for name, value in tensors.items() if name not in self.projector}, self.language / "model.safetensors")
        torch.save(self.projector, self.folder / "mm_projector.bin")
        config = json.loads((self.whole / "config.json").read_text())
        config = {key: value for key, value in config.items() if not key.startswith(("mm_", "image_", "tune_", "freeze_"))}
        (self.language / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}))

    def stage(self, out, rows, model=None, nproc=2, expect=0, **flags):
        """Some steps by the flags of LLaVA's scripts; returns what the run said."""
        words = {"model_name_or_path": model or self.language, **({} if model else {"vision_tower": self.tower, **JOINT}), "data_path": rows,
                 "image_folder": self.folder, "mm_use_im_start_end": False, "bf16": False, "torch_dtype": "float32", "output_dir": self.folder / out,
                 "max_steps": 3, "logging_steps": 1, "per_device_train_batch_size": 6 // nproc, "gradient_accumulation_steps": 1,
                 "learning_rate": 1e-3, "lr_scheduler_type": "constant", "nproc": nproc, "deepspeed": "zero3", **flags}
        return self.lockstep("sft", *(word for key, value in words.items() for word in (f"--{key}", value)), as_they_are=True, expect=expect)

    def saved(self, out):
        from safetensors.torch import load_file
        return load_file(self.folder / out / "checkpoint-3" / "model.safetensors")

    def captions(self):
        """One square picture a row, and what stands in it."""
        path = self.folder / "captions.json"
        for i in range(18):
            (self.folder / f"square{i}.png").write_bytes(png(30, 30, (200 - 9 * i, 11 * i, 90)))
        path.write_text(json.dumps([{"id": str(i), "image": f"square{i}.png", "conversations": [
            {"from": "human", "value": "Say what is there.\n<image>"}, {"from": "gpt", "value": f"A field of colour {i + 10}."}]} for i in range(18)]))
        return path

    def test_a_model_of_parts_trains_as_the_one_of_a_folder(self):
        import torch
        rows = make_rows(self.folder)
        self.stage("whole", rows, model=self.whole)
        done = self.stage("parts", rows, pretrain_mm_mlp_adapter=self.folder / "mm_projector.bin")
        self.assertIn("sft llava", done.stdout)
        whole, parts = self.saved("whole"), self.saved("parts")
        self.assertEqual(set(whole), set(parts))
        self.assertTrue(all(torch.equal(whole[name], parts[name]) for name in whole))
        # What was saved is one model, wherever it is opened.
        answer = self.lockstep("infer", "--model", self.folder / "parts" / "checkpoint-3", "--prompt", "<image>What?", "--image",
                               self.folder / "0.png", "--max_new_tokens", 4, cwd="/", expect=0).stdout
        self.assertEqual(answer, self.lockstep("infer", "--model", self.folder / "whole" / "checkpoint-3", "--prompt", "<image>What?", "--image",
                                               self.folder / "0.png", "--max_new_tokens", 4, expect=0).stdout)

    def test_the_first_stage_is_what_transformers_computes_of_its_rows(self):
        import torch
        rows = self.captions()
        done = self.stage("first", rows, version="plain", tune_mm_mlp_adapter=True, learning_rate=0, dataloader_num_workers=0, data_seed=1)
        self.assertIn("--conversation plain: <s><image ×26>[[", done.stdout)
        projector = torch.load(self.folder / "first" / "mm_projector.bin", weights_only=True)
        self.assertEqual({name: value.shape for name, value in projector.items()}, {name: value.shape for name, value in self.projector.items()})
        for name, value in projector.items():  # as torch.nn.Linear begins
            self.assertLessEqual(value.abs().max().item(), 1 / 6)
        spread = projector["model.mm_projector.0.weight"].std().item()
        self.assertAlmostEqual(spread, 1 / 6 / math.sqrt(3), delta=0.01)
        losses = [step["loss"] for step in records(self.folder / "first").values()]
        self.assertAlmostEqual(sum(losses) / 3, self.loss_by_transformers(rows, projector), delta=2e-4)  # of all rows, each once

        # On any number of ranks it is made alike, and the second stage goes on with it.
        for nproc in (1, 3):
            self.stage(f"on{nproc}", rows, version="plain", tune_mm_mlp_adapter=True, learning_rate=0, dataloader_num_workers=0, nproc=nproc, data_seed=1)
            for ours, theirs in zip(records(self.folder / f"on{nproc}").values(), losses):
                self.assertAlmostEqual(ours["loss"], theirs, delta=1e-5)
        self.stage("other", rows, version="plain", tune_mm_mlp_adapter=True, learning_rate=0, seed=7)
        other = torch.load(self.folder / "other" / "mm_projector.bin", weights_only=True)
        self.assertFalse(torch.equal(other["model.mm_projector.0.weight"], projector["model.mm_projector.0.weight"]))
        self.stage("second", make_rows(self.folder), pretrain_mm_mlp_adapter=self.folder / "first" / "mm_projector.bin", learning_rate=0)
        second = self.saved("second")
        self.assertTrue(all(torch.equal(second[name], value) for name, value in projector.items()))
        self.assertFalse((self.folder / "second" / "mm_projector.bin").exists(), "more than the projector was trained")

    def loss_by_transformers(self, rows, projector):
        """The mean over captions' tokens; all rows have as many."""
        import torch
        from PIL import Image
        from sentencepiece import SentencePieceProcessor
        from transformers import CLIPImageProcessor, LlavaForConditionalGeneration
        model = LlavaForConditionalGeneration.from_pretrained(FIXTURES / "oracle" / "odd" / "llava" / "checkpoint", dtype=torch.float32)
        linear = model.model.multi_modal_projector
        linear.load_state_dict({f"linear_{1 if '.0.' in name else 2}.{name.split('.')[-1]}": value for name, value in projector.items()})
        tokenizer = SentencePieceProcessor(model_file=str(self.language / "tokenizer.model"))
        pictures = CLIPImageProcessor.from_pretrained(self.tower)
        total = count = 0
        for row in json.loads(rows.read_text()):
            answer = tokenizer.encode(row["conversations"][1]["value"] + "\n")
            head = [tokenizer.bos_id()] + [model.config.image_token_id] * 26
            labels = torch.tensor([[-100] * len(head) + answer])
            pixels = pictures(Image.open(self.folder / row["image"]).convert("RGB"), return_tensors="pt").pixel_values
            with torch.no_grad():
                total += model(input_ids=torch.tensor([head + answer]), pixel_values=pixels, labels=labels).loss.item() * len(answer)
            count += len(answer)
        return total / count

    def test_adapters_over_a_model_of_parts_remember_it(self):
        rows = make_rows(self.folder)
        self.stage("lora", rows, pretrain_mm_mlp_adapter=self.folder / "mm_projector.bin", lora_enable=True, lora_r=4)
        question = ["--prompt", "<image>What?", "--image", self.folder / "0.png", "--max_new_tokens", 4]
        over = self.lockstep("infer", "--adapters", self.folder / "lora" / "checkpoint-3", *question, cwd=self.folder, expect=0).stdout
        self.lockstep("export", "--adapters", self.folder / "lora" / "checkpoint-3", "--output_dir", self.folder / "merged", expect=0)
        self.assertEqual(over, self.lockstep("infer", "--model", self.folder / "merged", *question, expect=0).stdout)
        self.assertIn("base", self.lockstep("inspect", self.folder / "lora" / "checkpoint-3", expect=0).stdout)

        # A projector that was made anew and not trained stands in no file: it is that of the run's seed.
        import torch
        from safetensors.torch import load_file
        self.stage("made", rows, lora_enable=True, lora_r=4, seed=7, freeze_aligner=True)
        self.lockstep("export", "--adapters", self.folder / "made" / "checkpoint-3", "--output_dir", self.folder / "merged7", expect=0)
        self.stage("alone", self.captions(), version="plain", tune_mm_mlp_adapter=True, learning_rate=0, seed=7)
        alone, merged = torch.load(self.folder / "alone" / "mm_projector.bin", weights_only=True), load_file(self.folder / "merged7" / "model.safetensors")
        self.assertTrue(all(torch.equal(merged[name].float(), value) for name, value in alone.items()))

    def test_a_run_goes_on(self):
        rows = make_rows(self.folder)
        flags = {"pretrain_mm_mlp_adapter": self.folder / "mm_projector.bin", "save_steps": 1}
        self.stage("all", rows, **flags)
        self.stage("some", rows, **{**flags, "max_steps": 2})
        self.stage("some", rows, **flags, resume_from_checkpoint=self.folder / "some" / "checkpoint-2")
        import torch
        whole, again = self.saved("all"), self.saved("some")
        self.assertTrue(all(torch.equal(whole[name], again[name]) for name in whole))

    def test_what_cannot_be_joined_is_named(self):
        rows = make_rows(self.folder)
        for words, says in (({"pretrain_mm_mlp_adapter": self.folder / "none.bin"}, "none.bin: expected a file with a projector's tensors, found none"),
                            ({"pretrain_mm_mlp_adapter": self.tower / "pytorch_model.bin"}, "expected tensors whose names begin with model.mm_projector."),
                            ({"model": self.whole, "pretrain_mm_mlp_adapter": self.folder / "mm_projector.bin"},
                             "expected a model without model.mm_projector.…, found model.mm_projector."),
                            ({"mm_projector_type": "linear", "pretrain_mm_mlp_adapter": self.folder / "mm_projector.bin"}, "mm_projector"),
                            ({"version": "plain", "system": "Be brief."}, "--system beside --conversation plain: only a chat template writes"),
                            ({"version": "plain", "use_chat_template": False}, "--use_chat_template false beside --conversation plain"),
                            ({"version": "llama_2"}, "--version llama_2: this conversation is not built"),
                            ({"mm_use_im_start_end": True}, "--mm_use_im_start_end True: marks around a picture are not built")):
            done = self.stage("out", rows, expect=None, **words)
            self.assertIn(done.returncode, (2, 4), words)
            self.assertIn(says, done.stderr)
            self.assertFalse((self.folder / "out").exists(), "nothing is begun")
        done = self.stage("plain", rows, version="plain", strict=True, expect=3)
        self.assertIn("expected a question with one <image> and its answer (--conversation plain)", done.stderr)


if __name__ == "__main__":
    main()

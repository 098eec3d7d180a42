"""bfloat16 on a CPU without instructions for it, and float16 on any: the numbers of float32 within their rounding.

LibTorch's instructions are taken away by its own variables, so that every machine tests what a laptop does.
"""
import json
import shutil
import struct

from small_job import losses, make_model, make_rows, records, sft_words
from story import FIXTURES, Story, main, sampled

OWN = {}
NONE = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
OLD = {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"}
# How far a mean loss of about 6 may lie from float32's after some steps: bfloat16 has 8 bits, float16 11.
BARS = {"bfloat16": 5e-2, "float16": 5e-2 / 8}


def places(whole):
    """Where each tensor's bytes stand in a safetensors file."""
    begin = 8 + struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:begin])
    return {name: slice(begin + spec["data_offsets"][0], begin + spec["data_offsets"][1])
            for name, spec in header.items() if name != "__metadata__"}


def tensors(path):
    whole = path.read_bytes()
    return {name: whole[place] for name, place in places(whole).items()}


class LowPrecision(Story):
    def train(self, name, model, rows, expect=0, env=None, **flags):
        out = self.folder / name
        done = self.lockstep(*sft_words(model, rows, out, **flags), env=env, expect=expect)
        return out, done

    def test_windows_hold_without_our_kernels(self):
        """Where LibTorch's attention gets some queries at a time: outputs, gradients and tokens of transformers."""
        for env in (NONE, OLD):
            for dtype in ("fp32", "bf16"):
                with self.subTest(env=env, dtype=dtype):
                    self.lockstep("verify", FIXTURES / "oracle" / "odd" / "mistral", "--dtype", dtype, env=env, expect=0)

    def test_training_follows_float32_in_every_stage(self):
        rows = make_rows(self.folder)
        for family in ("llava", "qwen2_5_vl"):
            model = make_model(self.folder, family)
            whole, _ = self.train(f"{family}_float32", model, rows, steps=6, nproc=2, save_strategy="no")
            for dtype, env in sampled((("bfloat16", NONE), ("bfloat16", OLD), ("float16", OWN), ("float16", NONE))):
                first = None
                for stage in ("zero0", "zero1", "zero2", "zero3"):
                    if stage in ("zero1", "zero2") and env is not NONE:
                        continue
                    with self.subTest(f"{family} {dtype} {env} {stage}"):
                        name = f"{family}_{dtype}_{len(list(self.folder.iterdir()))}"
                        out, _ = self.train(name, model, rows, env=env, steps=6, nproc=2, torch_dtype=dtype, deepspeed=stage,
                                            save_strategy="no")
                        for step, loss in losses(out).items():
                            self.assertAlmostEqual(loss, losses(whole)[step], delta=BARS[dtype], msg=f"step {step}")
                        self.assertEqual(losses(out), first or losses(out), "stages give the same bits")
                        first = losses(out)

    def test_what_training_needs_is_what_was_predicted(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        for dtype in ("bfloat16", "float16"):
            out, _ = self.train(dtype, model, rows, env=NONE, steps=3, nproc=2, torch_dtype=dtype)
            for peak in json.loads((out / "memory.json").read_text())["peaks"]:
                self.assertLessEqual(peak["measured"], 1.02 * peak["predicted"], (dtype, peak))
                self.assertGreaterEqual(peak["measured"], 0.95 * peak["predicted"], (dtype, peak))

    def test_recorded_oracles_hold(self):
        for dtype, env in (("bfloat16", NONE), ("bfloat16", OLD), ("float16", OWN)):
            for family in ("seed1/qwen2", "seed1/llava", "odd/llama", "odd/qwen2_5_vl"):
                with self.subTest(f"{dtype} {family}"):
                    self.lockstep("verify", FIXTURES / "oracle" / family, "--dtype", dtype, env=env, expect=0)

    def test_float16_checkpoints_are_measured_embedded_and_answered(self):
        rows = make_rows(self.folder, count=8)
        half, whole = make_model(self.folder, dtype="float16"), self.folder / "whole"
        found = {}
        for dtype in ("float16", "float32"):  # the first is what config.json says
            words = ["--model", half, *(["--torch_dtype", dtype] if dtype == "float32" else [])]
            done = self.lockstep("eval", *words, "--val_dataset", rows, "--nproc", 2, "--max_new_tokens", 2, "--json", expect=0)
            out = self.folder / f"embed_{dtype}"
            self.lockstep("embed", *words, "--dataset", rows, "--output", out, "--normalize", "true", expect=0)
            vectors = [json.loads(line)["embedding"] for line in (out / "embeddings.jsonl").read_text().splitlines()]
            answers = self.folder / f"{dtype}.jsonl"
            self.lockstep("infer", *words, "--dataset", rows, "--output", answers, "--max_new_tokens", 8, expect=0)
            found[dtype] = (json.loads(done.stdout), vectors, len(answers.read_text().splitlines()))
        for mine, theirs in zip(found["float16"][1], found["float32"][1]):
            self.assertGreater(sum(a * b for a, b in zip(mine, theirs)), 0.9999)
        self.assertEqual(found["float16"][2], 8)
        self.assertAlmostEqual(found["float16"][0]["loss"], found["float32"][0]["loss"], delta=BARS["float16"])
        self.lockstep("plan", "--model", half, expect=0)

    def test_what_float16_does_not_hold_is_no_answer(self):
        """A last norm of 60000 is a number of float16, and what it makes of a token is none."""
        model, rows = make_model(self.folder, "qwen2", dtype="float16"), make_rows(self.folder, count=4, images=False)
        whole = bytearray((model / "model.safetensors").read_bytes())
        place = places(whole)["model.norm.weight"]
        whole[place] = struct.pack("<e", 60000) * (len(whole[place]) // 2)
        (model / "model.safetensors").write_bytes(whole)
        out = self.folder / "out"
        for words in (["infer", "--val_dataset", rows, "--result_path", out / "a.jsonl"], ["infer", "--prompt", "Hello"],
                      ["infer", "--prompt", "Hello", "--temperature", 1], ["eval", "--val_dataset", rows, "--predict_with_generate", "false"],
                      ["embed", "--dataset", rows, "--output", out / "vectors"]):
            with self.subTest(words=words[:2]):
                done = self.lockstep(words[0], "--model", model, *words[1:], expect=7)
                self.assertIn("--torch_dtype bfloat16, or float32", done.stderr)
        self.lockstep("infer", "--model", model, "--torch_dtype", "float32", "--prompt", "Hello", "--max_new_tokens", 4, expect=0)
        done = self.lockstep(*sft_words(model, rows, self.folder / "run", steps=1, val_dataset=rows, eval_on_start="true", save_strategy="no",
                                       torch_dtype="float16"))
        self.assertRegex(done.text, "the loss of the evaluation is .*nan, and the run goes on; --torch_dtype")

    def test_a_step_that_overflows_is_skipped_by_all_ranks_and_the_scale_is_kept(self):
        """A last norm of 512 times its weight makes gradients of logits so large that 2^16 times that is no float16."""
        model, rows = make_model(self.folder, "qwen2", dtype="float16"), make_rows(self.folder, images=False)
        before = tensors(model / "model.safetensors")
        whole = bytearray((model / "model.safetensors").read_bytes())
        place = places(whole)["model.norm.weight"]
        values = struct.unpack(f"<{len(whole[place]) // 2}e", whole[place])
        whole[place] = struct.pack(f"<{len(values)}e", *(512 * value for value in values))
        (model / "model.safetensors").write_bytes(whole)
        before["model.norm.weight"] = whole[place]
        words = dict(steps=12, nproc=2, torch_dtype="float16", save_steps=2, save_total_limit=None)
        out, done = self.train("run", model, rows, **words)
        # DeepSpeed's hysteresis of 2: the first overflow is forgiven.
        for step, now in ((1, 65536), (2, 32768)):
            self.assertIn(f"step {step}: float16 gradients overflow at loss scale 65536; the step is skipped, the scale is now {now}",
                          done.text)
        skipped = tensors(out / "checkpoint-2" / "model.safetensors")
        self.assertEqual(skipped, before, "a skipped step changes no weight")
        scales = {step: record["loss_scale"] for step, record in records(out).items()}
        state = json.loads((out / "checkpoint-12" / "trainer_state.json").read_text())["lockstep"]
        self.assertEqual(state["loss_scale"]["scale"], scales[12])
        self.assertGreater(state["updates"], 0, "a scale that fits was found")
        self.assertLess(scales[12], 32768)
        for step in (4, 6, 8, 10, 12):
            shutil.rmtree(out / f"checkpoint-{step}")
        self.lockstep(*sft_words(model, rows, out, **words), "--resume_from_checkpoint", out / "checkpoint-2", expect=0)
        self.assertEqual({step: record["loss_scale"] for step, record in records(out).items()}, scales)

    def test_a_float16_run_that_is_resumed_goes_on_to_the_bit(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        words = dict(steps=6, nproc=2, torch_dtype="float16", save_steps=3)
        out, _ = self.train("run", model, rows, **words)
        before = losses(out)
        shutil.rmtree(out / "checkpoint-6")
        self.lockstep(*sft_words(model, rows, out, **words), "--resume_from_checkpoint", out / "checkpoint-3", expect=0)
        self.assertEqual(losses(out), before)

    def test_the_doctor_says_which_dtype_is_fast(self):
        done = self.lockstep("doctor", env=NONE)
        self.assertIn("kernels for AVX2", done.stdout)
        self.assertIn("fastest dtype: float32", done.stdout)


if __name__ == "__main__":
    main()

"""The program on GPUs that are none (testing/fake_gpu): what people run, beside the same on the CPU."""
import json
import struct

import families_test
import story
from small_job import losses, make_model, make_rows, png, sft_words, wav
from story import Story, main, sampled

story.BINARY = story.BINARY.parent / "lockstep_on_fake_gpus"
ON_CPU = ("--device", "cpu")


class OnGpus(Story):
    def setUp(self):
        super().setUp()
        self.model, self.rows = make_model(self.folder), make_rows(self.folder)

    def on_gpus(self, *words, gpus=2, gpu_bytes=1 << 30, env=None, **options):
        env = {"LOCKSTEP_FAKE_GPUS": gpus, "LOCKSTEP_FAKE_GPU_BYTES": gpu_bytes, **(env or {})}
        return self.lockstep(*words, env=env, **options)

    def tiny(self, family):
        return self.folder / family if (self.folder / family).exists() else make_model(self.folder, family)

    def train(self, name, *more, gpus=2, **flags):
        out = self.folder / name
        self.on_gpus(*sft_words(self.model, self.rows, out, steps=4, **flags), *more, gpus=gpus, expect=0)
        return out

    def test_training_is_that_of_the_cpu(self):
        for name, gpus, flags in [("zero3", 2, {"nproc": 2}), ("zero2", 2, {"nproc": 2, "deepspeed": "zero2"}),
                                  ("map", 4, {"nproc": 1, "device_map": "auto"}),
                                  ("map of two", 4, {"nproc": 2, "device_map": "auto"}),
                                  ("offload", 2, {"nproc": 2, "deepspeed": "zero3_offload"}),
                                  ("bfloat16", 1, {"nproc": 1, "torch_dtype": "bfloat16"}),
                                  ("float16", 1, {"nproc": 1, "torch_dtype": "float16"})]:
            with self.subTest(name):
                own = {key: value for key, value in flags.items() if key != "device_map"}
                if name == "offload":
                    own["deepspeed"] = "zero3"
                found = losses(self.train(name + " on GPUs", gpus=gpus, **flags))
                expected = losses(self.train(name, *ON_CPU, **own))
                self.assertEqual(list(found), list(expected))
                for step, loss in expected.items():
                    self.assertAlmostEqual(found[step], loss, delta=2e-4 if "float" not in name else 2e-2, msg=f"step {step}")

    def test_adapters_over_codes_of_few_bits(self):
        codes = {"tuner_type": "lora", "quant_method": "bnb", "lora_dropout": 0}
        for name, flags in [("4 bits", {"quant_bits": 4, "llm_int8_skip_modules": "none"}),
                            ("fp4", {"quant_bits": 4, "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": "false", "deepspeed": "zero2"}),
                            ("8 bits, offloaded", {"quant_bits": 8, "deepspeed": "zero3_offload", "offload": "params"})]:
            with self.subTest(name):
                own = {key: value for key, value in flags.items() if key not in ("offload", "deepspeed")}
                found = losses(self.train(name + " on GPUs", nproc=2, **codes, **flags))
                expected = losses(self.train(name, *ON_CPU, nproc=2, **codes, **own))
                self.assertEqual(list(found), list(expected))
                for step, loss in expected.items():
                    self.assertAlmostEqual(found[step], loss, delta=2e-4, msg=f"step {step}")

    def test_memory_is_counted_by_use_and_phase_as_it_was_planned(self):
        memory = json.loads((self.train("run", nproc=2) / "memory.json").read_text())
        planned, found = memory["predicted"]["devices"][0], memory["ranks"][0]["since_start"]["devices"][0]
        for phase in ("load", "forward", "backward", "step"):
            there, here = planned["phases"][phase], found["phases"][phase]
            found_of, planned_of = (lambda use: here["by_use"].get(use, 0)), (lambda use: there["by_use"].get(use, 0))
            for use in ("parameters", "optimizer"):
                self.assertEqual(found_of(use), planned_of(use), f"{phase}, {use}")
            # What streams free later decides between two moments that need nearly the same: one has the next block's weights already, the
            # other the gradients of the last block still under way.
            if found_of("gathered") == 2 * planned_of("gathered") > 0:
                self.assertLess(found_of("communication"), planned_of("communication"), phase)
            else:
                for use in ("gathered", "communication"):
                    self.assertEqual(found_of(use), planned_of(use), f"{phase}, {use}")
            self.assertLess(abs(here["bytes"] / there["bytes"] - 1), 0.03, phase)

    def test_answers_losses_and_vectors_are_those_of_the_cpu(self):
        def everything(name, *more, gpus=2):
            out = self.folder / f"{name}.jsonl"
            common = ("--model", self.model, "--torch_dtype", "float32", *more)
            self.on_gpus("infer", "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 6, *common,
                         gpus=gpus, expect=0)
            evaluated = self.on_gpus("eval", "--val_dataset", self.rows, *common, gpus=gpus, expect=0).stdout
            vectors = self.folder / f"{name} vectors"
            self.on_gpus("embed", "--dataset", self.rows, "--output", vectors, *common, gpus=gpus, expect=0)
            lines = [json.loads(line) for line in (vectors / "embeddings.jsonl").read_text().splitlines()]
            loss = next(line.split()[1] for line in evaluated.splitlines() if line.startswith("loss "))
            return out.read_text(), loss, lines

        texts, loss, vectors = everything("cpu", "--nproc", 1, *ON_CPU)
        for name, gpus, more in [("two", 2, ["--nproc", 2]), ("map", 4, ["--nproc", 1, "--device_map", "auto"])]:
            found_texts, found_loss, found = everything(name, *more, gpus=gpus)
            self.assertEqual(found_texts, texts, name)
            self.assertAlmostEqual(float(found_loss), float(loss), delta=1e-5)
            self.assertEqual(len(found), len(vectors))
            for one, other in zip(found, vectors):
                for x, y in zip(one["embedding"], other["embedding"]):
                    self.assertAlmostEqual(x, y, delta=1e-5)

    def test_a_batch_of_auto_is_what_fits(self):
        out = self.folder / "auto"
        words = sft_words(self.model, self.rows, out, steps=2, nproc=1, per_device_train_batch_size="auto")
        done = self.on_gpus(*words, gpus=1, gpu_bytes=28 << 20, expect=0)
        self.assertIn("batch size", done.stderr)
        sizes = [int(line.split()[2].rstrip(":")) for line in done.stderr.splitlines() if line.startswith("batch size ") and ":" in line]
        self.assertGreater(sizes[-1], 1, done.text)
        self.assertLess(sizes[-1], 24, done.text)
        larger = self.on_gpus(*sft_words(self.model, self.rows, self.folder / "too large", steps=2, nproc=1,
                                         per_device_train_batch_size=24, force="true"), gpus=1, gpu_bytes=28 << 20)
        self.assertNotEqual(larger.returncode, 0)
        self.assertIn("out of memory", larger.stderr)

    def test_several_ranks_take_the_batch_that_is_foreseen(self):
        """A try that finds no memory would part them."""
        words = sft_words(self.model, self.rows, self.folder / "auto", steps=2, nproc=2, per_device_train_batch_size="auto")
        done = self.on_gpus(*words, gpus=2, gpu_bytes=28 << 20, expect=0)
        sizes = [int(line.split()[2].rstrip(":")) for line in done.stderr.splitlines() if line.startswith("batch size ") and ":" in line]
        self.assertGreater(sizes[-1], 1, done.text)
        self.assertNotIn("out of memory", done.stderr)

    def test_deterministic_runs_give_the_same_bits(self):
        def weights(name):
            out = self.train(name, nproc=2, deterministic="true", torch_dtype="bfloat16")
            return (out / "checkpoint-4" / "model.safetensors").read_bytes()

        self.assertEqual(weights("one"), weights("two"))

    def test_more_ranks_than_gpus_are_refused_before_they_start(self):
        done = self.on_gpus(*sft_words(self.model, self.rows, self.folder / "out", nproc=3), gpus=2, expect=2)
        self.assertIn("3 ranks on this machine need a GPU each, found 2", done.stderr)

    def test_too_few_gpus_keep_doctor_from_nothing(self):
        done = self.on_gpus("doctor", "--model", self.model, "--nproc", 3, gpus=2)
        self.assertIn("drive the same GPU (GPU-fake-0)", done.stdout, done.text)
        self.assertIn("chat template", done.stdout)

    def counts(self, path, rank):
        """What a rank of the run counted: (waits of the host, allocations from the system until each of them)."""
        numbers = struct.unpack("<4099q", (self.folder / f"{path}.{rank}").read_bytes())
        return numbers[1], numbers[3:3 + numbers[1]]

    def rows_alike(self, family, count=8):
        """Each with all that the family knows: what a step meets, the one before has met."""
        (self.folder / "one.png").write_bytes(png(60, 40, (200, 30, 30)))
        (self.folder / "one.wav").write_bytes(wav(0.4))
        row = {"query": "Say what this is.", "response": "a thing"}
        if family not in families_test.TEXTS:
            row |= {"query": "<image>" + row["query"], "images": ["one.png"]}
        if family in families_test.SOUNDS:
            row |= {"query": "<audio>" + row["query"], "audios": ["one.wav"]}
        path = self.folder / f"{family} alike.jsonl"
        path.write_text((json.dumps(row) + "\n") * count)
        return path

    def test_a_step_in_the_steady_state_waits_for_its_figures_and_takes_no_memory(self):
        """The whole step: forward, backward, norm and clipping, AdamW, the scale of float16, the figures that are logged."""
        more = 5
        for family, flags in sampled([("llava", {"torch_dtype": "float16"}), ("internvl", {"deepspeed": "zero2"}),
                                      ("minicpm_o_2_6", {}), ("qwen2_5_vl", {"torch_dtype": "bfloat16"}), ("mistral", {"deepspeed": "zero0"})]):
            model, rows = self.tiny(family), self.rows_alike(family)
            decoder = {"freeze_vit": None, "freeze_aligner": None} if family in families_test.TEXTS else {}
            waits = {}
            for steps in (10, 10 + more):
                name = f"{family} {steps}"
                words = sft_words(model, rows, self.folder / name, steps=steps, nproc=2, save_strategy="no", max_grad_norm="0.1",
                                  per_device_train_batch_size=2, gradient_accumulation_steps=2, **{**decoder, **flags})
                self.on_gpus(*words, env={"LOCKSTEP_FAKE_GPU_COUNTS": self.folder / name}, expect=0)
                self.assertEqual(len(losses(self.folder / name)), steps)
                waits[steps] = [self.counts(name, rank) for rank in range(2)]
            for rank, (before, after) in enumerate(zip(*waits.values())):
                with self.subTest(family=family, rank=rank):
                    self.assertEqual(after[0] - before[0], more, "one wait a step: for its figures")
                    # Autograd frees on threads of its own: a block may come back too late for one step.
                    taken = [b - a for a, b in zip(after[1][-more:], after[1][-more + 1:])]
                    self.assertEqual(min(taken), 0, f"allocations from the system in a step: {taken}")

    def test_a_token_waits_for_nothing_but_itself(self):
        more = 6
        for family in ("llava", "minicpm_o_2_6"):
            model, rows, waits, texts = self.tiny(family), self.rows_alike(family, count=1), {}, {}
            for tokens in (6, 6 + more):
                name = f"{family} {tokens}"
                self.on_gpus("infer", "--model", model, "--val_dataset", rows, "--result_path", self.folder / f"{name}.jsonl", "--nproc", 1,
                             "--max_new_tokens", tokens, "--torch_dtype", "float32", gpus=1,
                             env={"LOCKSTEP_FAKE_GPU_COUNTS": self.folder / name}, expect=0)
                waits[tokens], texts[tokens] = self.counts(name, 0)[0], (self.folder / f"{name}.jsonl").read_text()
            with self.subTest(family=family):
                self.assertNotEqual(texts[6], texts[6 + more], "more tokens")
                self.assertEqual(waits[6 + more] - waits[6], more, "one wait a token: for its number")

    def test_a_call_between_gpus_that_never_ends_is_told_in_seconds(self):
        for what, says in {"calls": "all ranks came to", "kernels": "rank 1 is busy elsewhere",
                           "breaks": r"rank 1( of 2 \(nccl\))?: .*CUDA error: an illegal memory access"}.items():
            with self.subTest(what):
                words = sft_words(self.model, self.rows, self.folder / what, steps=4000, nproc=2, patience=4, soft_patience=2)
                done = self.on_gpus(*words, env={"LOCKSTEP_FAKE_GPU_FAULT": f"1 {what} 3000"}, timeout=60)
                self.assertEqual(done.returncode, 6, done.text)
                self.assertRegex(done.stderr, f"(the job was ended|error): {says}")


if __name__ == "__main__":
    main()

"""Adapters are trained, saved, gone on from and used; what is wrong with one is said."""
import json
import os
import shutil
import signal
import struct
import time

from lora_job import ADAPTER, check_ranks_and_stages, largest_difference, lora_words, make_id_rows, read_tensors, write_tensors
from small_job import losses, make_model, make_rows
from story import Story, finish, main, start

# What ms-swift 3 writes of a run, as far as others have a use for it; the model is where a hub's copy was laid.
MS_SWIFT = {"model": "Qwen/Qwen2-0.5B-Instruct", "model_type": "qwen2", "model_revision": None, "task_type": "causal_lm", "torch_dtype": "float32",
            "attn_impl": None, "num_labels": None, "rope_scaling": None, "device_map": None, "max_memory": {}, "template": "qwen", "system": None,
            "max_length": 2048, "truncation_strategy": "delete", "train_type": "lora", "adapters": [], "external_plugins": [], "seed": 42,
            "load_args": False, "load_data_args": False, "quant_method": None, "quant_bits": None, "hqq_axis": None,
            "bnb_4bit_compute_dtype": "float32", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_quant_storage": None,
            "target_modules": ["all-linear"], "lora_rank": 4, "lora_alpha": 8, "swift_version": "3.8.1"}


class RanksAndStages(Story):
    def test_one_world_gives_the_same_bytes_and_all_worlds_the_same_numbers(self):
        """Pictures on two of three rows; what is dropped of a row is its own, whichever rank has it."""
        alone = check_ranks_and_stages(self, make_model(self.folder), make_rows(self.folder))
        self.assertTrue(all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in alone), list(alone))

    def test_what_a_head_drops_depends_on_the_row_alone(self):
        model, rows = make_model(self.folder, family="llama"), make_id_rows(self.folder / "ids.jsonl")
        made = []
        for ranks in (1, 2):
            out = self.folder / f"head-{ranks}"
            self.lockstep(*lora_words(model, rows, out, nproc=ranks, target_modules="lm_head", lora_dropout=0.3,
                                      per_device_train_batch_size=2 // ranks), expect=0)
            made.append(read_tensors(out / "checkpoint-4" / "adapter_model.safetensors"))
        self.assertLess(largest_difference(*made), 1e-5)

    def test_a_fresh_adapter_changes_nothing(self):
        """The first loss is the base model's, whatever kind of adapter begins."""
        model, rows = make_model(self.folder), make_rows(self.folder)
        plain = lora_words(model, rows, self.folder / "full", steps=1, tuner_type="full", nproc=1)
        self.lockstep(*plain, expect=0)
        base = losses(self.folder / "full")[1]
        kinds = {"lora": {"target_modules": "all-linear"}, "gaussian": {"init_weights": "gaussian"}, "dora": {"use_dora": "true"},
                 "table": {"target_modules": "embed_tokens"}, "dora_table": {"target_modules": "embed_tokens", "use_dora": "true"},
                 "dora_patches": {"target_modules": "patch_embedding", "use_dora": "true"},
                 "saved": {"modules_to_save": "lm_head"}, "lora_llm": {"tuner_type": "lora_llm", "freeze_vit": "false", "freeze_aligner": "false"}}
        for name, flags in kinds.items():
            with self.subTest(name):
                out = self.folder / name
                self.lockstep(*lora_words(model, rows, out, steps=1, nproc=1, **{"lora_dropout": 0, **flags}), expect=0)
                self.assertAlmostEqual(losses(out)[1], base, delta=2e-5)


    def test_every_kind_continues_to_the_bit(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        kinds = {"lora_llm": {"tuner_type": "lora_llm", "freeze_vit": "false", "freeze_aligner": "false"},
                 "loraplus": {"lorap_lr_ratio": 16, "use_dora": "true"}, "saved": {"modules_to_save": "lm_head", "lora_bias": "all"}}
        for name, flags in kinds.items():
            with self.subTest(name):
                out = self.folder / name
                words = lora_words(model, rows, out, nproc=1, **{**flags, "save_steps": 2})
                self.lockstep(*words, expect=0)
                whole = {path.name: path.read_bytes() for path in (out / "checkpoint-4").glob("*.safetensors")}
                shutil.rmtree(out / "checkpoint-4")
                self.lockstep(*words, "--resume_from_checkpoint", "true", expect=0)
                again = {path.name: path.read_bytes() for path in (out / "checkpoint-4").glob("*.safetensors")}
                self.assertEqual(sorted(again), sorted(whole))
                self.assertEqual("vit.safetensors" in whole, name == "lora_llm")
                for file, data in whole.items():
                    self.assertEqual(again[file], data, file)


class GoesOn(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder, family="qwen2")
        self.rows = make_id_rows(self.folder / "ids.jsonl")
        self.whole = self.folder / "whole"
        self.words = lora_words(self.model, self.rows, self.whole, steps=8, save_steps=4, nproc=2, modules_to_save="norm")
        self.lockstep(*self.words, expect=0)

    def flags(self, **changes):
        words = dict(zip(self.words[1::2], self.words[2::2]))
        words.update({f"--{key}": value for key, value in changes.items()})
        return ["sft", *(word for pair in words.items() for word in pair)]

    def copy(self, name):
        """The run as it was after step 4."""
        shutil.copytree(self.whole, self.folder / name)
        shutil.rmtree(self.folder / name / "checkpoint-8")
        return self.folder / name

    def test_a_stopped_run_continues_to_the_bit_in_any_stage(self):
        for stage in ("zero3", "zero0"):
            out = self.copy(stage)
            done = self.lockstep(*self.flags(output_dir=out, resume_from_checkpoint="true", deepspeed=stage), expect=0)
            self.assertIn("resumes after step 4", done.stdout)
            self.assertEqual(losses(out), losses(self.whole))
            self.assertEqual((out / "checkpoint-8" / ADAPTER).read_bytes(), (self.whole / "checkpoint-8" / ADAPTER).read_bytes())

    def test_another_number_of_ranks_continues_within_rounding(self):
        for ranks, rows, stage in ((1, 6, "zero2"), (3, 2, "zero3")):
            out = self.copy(f"{ranks}{stage}")
            self.lockstep(*self.flags(output_dir=out, resume_from_checkpoint="true", deepspeed=stage, nproc=ranks,
                                      per_device_train_batch_size=rows), expect=0)
            for step, loss in losses(out).items():
                self.assertAlmostEqual(loss, losses(self.whole)[step], delta=1e-5, msg=f"{ranks} ranks, step {step}")

    def test_a_killed_run_goes_on_as_if_nothing_had_happened(self):
        out = self.folder / "killed"
        process = start(*self.flags(output_dir=out, save_steps=2, max_steps=8))
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until and not (out / "checkpoint-2" / "lockstep_manifest.json").exists():
            time.sleep(0.01)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was faster
        finish(process)
        self.assertTrue((out / "checkpoint-2").is_dir())
        self.lockstep(*self.flags(output_dir=out, save_steps=2, resume_from_checkpoint="true"), expect=0)
        self.assertEqual((out / "checkpoint-8" / ADAPTER).read_bytes(), (self.whole / "checkpoint-8" / ADAPTER).read_bytes())

    def test_an_adapter_that_differs_is_no_continuation(self):
        for name, change in {"full": {"tuner_type": "full"}, "rank": {"lora_rank": 2}, "alpha": {"lora_alpha": 9}, "kind": {"use_dora": "true"},
                             "modules": {"target_modules": "q_proj"}, "saved": {"modules_to_save": "lm_head"}}.items():
            with self.subTest(name):
                out = self.copy(name)
                done = self.lockstep(*self.flags(output_dir=out, resume_from_checkpoint="true", **change))
                self.assertIn(done.returncode, (2, 4), done.text)
                self.assertEqual(done.stderr.count("error:"), 1, done.text)

    def test_another_base_of_the_same_sizes_is_no_continuation(self):
        out, base = self.copy("base"), self.folder / "other"
        shutil.copytree(self.model, base)
        tensors = read_tensors(base / "model.safetensors")
        dtype, shape, data = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (dtype, shape, struct.pack("<f", 3.0) + data[4:])
        write_tensors(base / "model.safetensors", tensors)
        done = self.lockstep(*self.flags(output_dir=out, resume_from_checkpoint="true", model=base), expect=2)
        self.assertIn("of another base", done.text)

    def test_the_newest_checkpoints_are_kept(self):
        out = self.folder / "limited"
        self.lockstep(*self.flags(output_dir=out, save_steps=2, save_total_limit=2), expect=0)
        self.assertEqual(sorted(path.name for path in out.glob("checkpoint-*")), ["checkpoint-6", "checkpoint-8"])
        self.assertEqual((out / "checkpoint-8" / ADAPTER).read_bytes(), (self.whole / "checkpoint-8" / ADAPTER).read_bytes())

    def test_a_run_begins_with_an_adapter_and_a_fresh_optimizer(self):
        old, out = self.whole / "checkpoint-8", self.folder / "on"
        self.lockstep(*self.flags(output_dir=out, adapters=old, learning_rate="0", weight_decay="0", max_steps=2), expect=0)
        saved = out / "checkpoint-2"
        self.assertEqual(read_tensors(saved / ADAPTER), read_tensors(old / ADAPTER))
        config, before = (json.loads((folder / "adapter_config.json").read_text()) for folder in (saved, old))
        self.assertEqual(config, before)
        state = json.loads((saved / "trainer_state.json").read_text())
        self.assertEqual(state["global_step"], 2)
        moved = self.folder / "moved"
        self.lockstep(*self.flags(output_dir=moved, adapters=old, max_steps=2), expect=0)
        self.assertNotEqual(read_tensors(moved / "checkpoint-2" / ADAPTER), read_tensors(old / ADAPTER))

    def use(self, verb, *words, expect=0):
        flags = {"eval": ["--dataset", self.rows, "--predict_with_generate", "false", "--json"],
                 "embed": ["--dataset", self.rows, "--output", self.folder / f"embedded{len(list(self.folder.iterdir()))}"],
                 "infer": ["--prompt", "Say it.", "--max_new_tokens", 4]}[verb]
        return self.lockstep(verb, *words, *flags, expect=expect)

    def test_the_base_is_found_by_what_the_folder_says(self):
        adapter = self.folder / "adapter"
        shutil.copytree(self.whole / "checkpoint-8", adapter)
        base = json.loads(self.use("eval", "--model", self.model).stdout)["loss"]
        wanted = json.loads(self.use("eval", "--model", self.model, "--adapters", adapter).stdout)["loss"]
        self.assertGreater(abs(wanted - base), 1e-3, "it has learnt nothing")
        for ranks in (1, 2):
            found = json.loads(self.use("eval", "--adapters", adapter, "--nproc", ranks, "--torch_dtype", "float32").stdout)["loss"]
            self.assertAlmostEqual(found, wanted, delta=1e-5, msg=f"by args.json, {ranks} ranks")
        for verb in ("infer", "embed"):
            self.use(verb, "--adapters", adapter)
        merged = self.use("infer", "--adapters", adapter, "--merge_lora", "true").stdout
        self.assertEqual(merged, self.use("infer", "--adapters", adapter).stdout, "merged while it is loaded")
        self.assertIn("--adapters", self.use("infer", "--model", self.model, "--merge_lora", "true", expect=2).stderr)
        (adapter / "args.json").unlink()
        self.assertAlmostEqual(json.loads(self.use("eval", "--adapters", adapter).stdout)["loss"], wanted, delta=1e-5, msg="by adapter_config.json")
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "args.json").write_text(json.dumps({**MS_SWIFT, "model_dir": str(self.model)}))
        (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "Qwen/Qwen2-0.5B-Instruct"}))
        self.assertAlmostEqual(json.loads(self.use("eval", "--adapters", adapter).stdout)["loss"], wanted, delta=1e-5, msg="by ms-swift's args.json")
        bits = json.loads(self.use("eval", "--adapters", adapter, "--model", self.model, "--quant_bits", 4, "--bnb_4bit_quant_type", "fp4").stdout)["loss"]
        (adapter / "args.json").write_text(json.dumps({**MS_SWIFT, "model_dir": str(self.model), "quant_method": "bnb", "quant_bits": 4,
                                                       "bnb_4bit_quant_type": "fp4"}))
        self.assertEqual(json.loads(self.use("eval", "--adapters", adapter).stdout)["loss"], bits, "its codes by ms-swift's args.json")
        (adapter / "args.json").unlink()
        config["base_model_name_or_path"] = "someone/unknown"
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        for verb in ("eval", "infer", "embed"):
            self.assertIn(f"{self.folder / 'nope'}: expected a folder with adapter_config.json, found no such folder",
                          self.use(verb, "--adapters", self.folder / "nope", expect=4).stderr)
            done = self.use(verb, "--adapters", adapter, expect=2)
            for word in (str(adapter), "someone/unknown", "--model"):
                self.assertIn(word, done.stderr)


class Wrong(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder, family="qwen2")
        self.rows = make_id_rows(self.folder / "ids.jsonl", count=6)
        self.lockstep(*lora_words(self.model, self.rows, self.folder / "out", steps=1, nproc=1, target_modules="q_proj"), expect=0)
        self.adapter = self.folder / "out" / "checkpoint-1"

    def refused(self, name, damage, *parts, expect=4):
        """A copy of the adapter after `damage`, refused by what reads and by what goes on from it, in one message."""
        adapter = self.folder / name.replace(" ", "_")
        shutil.copytree(self.adapter, adapter)
        damage(adapter)
        with self.subTest(name):
            words = lora_words(self.model, self.rows, self.folder / f"{name}_out", steps=1, nproc=2, adapters=adapter)
            for done in (self.lockstep("eval", "--model", self.model, "--adapters", adapter, "--dataset", self.rows,
                                       "--predict_with_generate", "false"), self.lockstep(*words)):
                self.assertEqual(done.returncode, expect, done.text)
                self.assertEqual(done.stderr.count("error:"), 1, done.text)
                for part in (adapter.name, *parts):
                    self.assertIn(part, done.stderr)

    def config(self, **changes):
        def damage(adapter):
            path = adapter / "adapter_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return damage

    def tensors(self, change):
        def damage(adapter):
            path = adapter / ADAPTER
            tensors = read_tensors(path)
            change(tensors)
            write_tensors(path, tensors)
            (adapter / "lockstep_manifest.json").unlink()  # whoever changes them has no hashes of them
        return damage

    def test_files_that_cannot_be(self):
        def cut(adapter):
            path = adapter / ADAPTER
            path.write_bytes(path.read_bytes()[:-5])

        def wider_base(tensors):
            for name, (dtype, shape, data) in list(tensors.items()):
                if ".lora_A." in name:
                    tensors[name] = (dtype, [shape[0], 2 * shape[1]], data + data)

        def other_rank(tensors):
            name = next(name for name in tensors if ".lora_B." in name)
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, [shape[0], shape[1] // 2], data[:len(data) // 2])

        def half(tensors):
            del tensors[next(name for name in tensors if ".lora_B." in name)]

        def renamed(tensors):
            name = next(iter(tensors))
            tensors[name.replace("q_proj", "q_porj")] = tensors.pop(name)

        def infinite(tensors):
            name = next(iter(tensors))
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, shape, b"\x00\x00\x80\x7f" + data[4:])

        self.refused("cut", cut, ADAPTER)
        self.refused("of another base", self.tensors(wider_base), ADAPTER, "lora_A", "expected", "found", "another base model")
        self.refused("of two ranks", self.tensors(other_rank), "q_proj", "lora_A has rank 4", "lora_B")
        self.refused("in half", self.tensors(half), "q_proj", "expected lora_A and lora_B", "found lora_A alone")
        self.refused("unknown name", self.tensors(renamed), ADAPTER, "q_porj", "the nearest is", "q_proj", "expected", "found")
        self.refused("no file", lambda adapter: (adapter / ADAPTER).unlink(), ADAPTER, "found neither")
        self.refused("infinite", self.tensors(infinite), "lora_", "NaN or infinity", expect=7)

    def test_configs_that_cannot_be(self):
        self.refused("alpha 0", self.config(lora_alpha=0), "adapter_config.json", "lora_alpha", "above 0", "found 0")
        self.refused("other rank", self.config(r=2), "q_proj", "expected rank 2", "found 4")
        self.refused("other type", self.config(peft_type="LOHA"), "adapter_config.json", "peft_type", "expected LORA", "found LOHA", "merge_and_unload")
        self.refused("dora", self.config(use_dora=True), "q_proj", "use_dora true")
        self.refused("qalora", self.config(use_qalora=True), "adapter_config.json", "use_qalora", "merge_and_unload")
        self.refused("no json", lambda adapter: (adapter / "adapter_config.json").write_text("{"), "adapter_config.json")

    def test_flags_that_cannot_be(self):
        for flags, parts in (({"target_modules": "q_porj"}, ("--target_modules q_porj", "did you mean q_proj?")),
                             ({"target_regex": ".*nothing"}, ("--target_regex .*nothing", "modules are called")),
                             ({"modules_to_save": "lm_haed"}, ("--modules_to_save lm_haed", "did you mean lm_head?")),
                             ({"lora_alpha": 0}, ("--lora_alpha",)), ({"lora_rank": 0}, ("--lora_rank",)),
                             ({"lora_dropout": 1}, ("--lora_dropout",)), ({"tuner_type": "lorra"}, ("lorra", "lora_llm")),
                             ({"rank_pattern": '{"q_proj": 0}'}, ("--rank_pattern", "q_proj")),
                             ({"adapters": self.folder / "nowhere"}, ("nowhere", "adapter_config.json"))):
            with self.subTest(str(flags)):
                done = self.lockstep(*lora_words(self.model, self.rows, self.folder / "none", steps=1, nproc=2, **flags))
                self.assertIn(done.returncode, (2, 4), done.text)
                self.assertEqual(done.stderr.count("error:"), 1, done.text)
                for part in parts:
                    self.assertIn(part, done.stderr)


if __name__ == "__main__":
    main()

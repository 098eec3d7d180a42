"""Command lines, configurations and files that people have: each runs under Lockstep's name, or is refused by name with what is missing.

In CI each is planned, and some of them are run: two steps of a tiny model on two ranks. LOCKSTEP_ALL_COMMANDS=1 runs them all.
"""
import json
import os
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "commands"))
import deepspeed_files as deepspeed
import factory_files as factory
import other_lines as other
import swift_lines as swift
from small_job import FIXTURES, make_model, make_rows, tensors
from story import Story, main, run

RUN_ALL = os.environ.get("LOCKSTEP_ALL_COMMANDS") == "1"
RUN_IN_CI = {"ocr", "packing", "LLaVA finetune_lora", "MiniCPM finetune_ds", "qwen3vl_lora_sft", "qwen3_lora_pretrain"}


class Commands(Story):
    def setUp(self):
        super().setUp()
        self.rows = make_rows(self.folder, count=24)
        (self.folder / "tokens.txt").write_text("<one> <two>\n")
        self.models = {}

    def model(self, family):
        if family not in self.models:
            self.models[family] = self.made(family)
        return self.models[family]

    def made(self, family):
        if family not in ("gptq", "awq", "aqlm"):
            return make_model(self.folder, family)
        folder = make_model(self.folder / family, "qwen2")
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {"quant_method": family, "bits": 4}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def put(self, word, family):
        word = str(word)
        if word.startswith("rows.jsonl"):
            return word.replace("rows.jsonl", str(self.rows))
        if word.startswith("DS "):
            name = word.removeprefix("DS ")
            return str(self.written(name, next(content for one, content, _ in deepspeed.FILES if one == name)))
        if word.startswith("ADAPTER"):
            return str(self.adapter(family, *word.split()[1:]))
        places = {"MODEL": lambda: self.model(family), "DATA": lambda: self.rows, "CAPTIONS": self.captions, "PROJECTOR": self.projector,
                  "TOWER": lambda: FIXTURES / "oracle" / "odd" / "llava" / "vision_tower", "OUT": lambda: self.folder / "out", "FOLDER": lambda: self.folder,
                  "MERGED": lambda: self.folder / f"merged {len(list(self.folder.iterdir()))}"}
        return str(places[word]()) if word in places else word

    def captions(self):
        """The rows with a picture."""
        path = self.folder / "captions.jsonl"
        path.write_text("".join(line for line in self.rows.read_text().splitlines(True) if '"images"' in line))
        return path

    def projector(self):
        """What LLaVA's first stage leaves for its second."""
        file = self.folder / "pretrained" / "mm_projector.bin"
        if not file.exists():
            name, family, words = other.SCRIPTS[0]
            words = [self.put(word, family) for word in words]
            words[words.index("--output_dir") + 1] = str(file.parent)
            self.lockstep("sft", *words, "--max_steps", 1, as_they_are=True, expect=0)
        return file

    def written(self, name, content, ending="json"):
        """A file of that name; YAML by our own hand, as the Python that runs this may have none."""
        path = self.folder / f"{name.replace(' ', '_')}.{ending}"
        path.write_text(json.dumps(content) if ending == "json" else factory.yaml_text(content))
        return path

    def adapter(self, family, tuner="lora"):
        """A checkpoint as `sft` leaves it, which remembers its model and the rows that were evaluated."""
        out = self.folder / f"adapter_{family}_{tuner}"
        if not out.exists():
            self.lockstep("sft", "--model", self.model(family), "--dataset", self.rows, "--val_dataset", f"{self.rows}#4", "--output_dir", out,
                          "--max_steps", 1, "--tuner_type", tuner, "--add_version", "false", "--gradient_accumulation_steps", 1, expect=0)
        return out / "checkpoint-1"

    @staticmethod
    def is_run(name):
        return RUN_ALL or name in RUN_IN_CI

    def tried(self, name, words, runs, says="", env=None):
        """Planned, or run for two steps on two ranks; what does not run names the flag or what is there instead."""
        trains = runs and words[0] in ("sft", "train")
        if trains and not self.is_run(name):
            words = ["plan", *words[1:]]
        elif trains:
            steps = [] if "--acc_steps" in words else ["--gradient_accumulation_steps", "1"]
            saves = [] if "--early_stop_interval" in words else ["--save_strategy", "no"]
            words = [*words, "--max_steps", "2", "--nproc", "2", *steps, *saves]
        done = run(*words, as_they_are=True, cwd=self.folder, env=env, input="exit\n" if words[0] == "infer" else None)
        self.assertNotIn("unknown flag", done.text, f"{name}: {words}")
        self.assertNotIn("is not expected here", done.text, f"{name}: {words}")
        self.assertEqual(done.returncode, 0 if runs else 2 if done.returncode != 4 else 4, f"{name}: {words}\n{done.text}")
        if says:
            self.assertIn(says, done.stderr, name)
        return done

    def test_command_lines_of_swift(self):
        for line in swift.LINES:
            with self.subTest(line["name"]):
                flags = dict(line["flags"])
                if line["verb"] in ("sft", "rlhf"):
                    flags = {"model": "MODEL", **({} if "cached_dataset" in flags else {"dataset": line["data"]}), **flags,
                             "output_dir": str(self.folder / line["name"])}
                words = [line["verb"]]
                for key, value in flags.items():
                    words += [f"--{key}", *(self.put(one, line["family"]) for one in (value if isinstance(value, list) else [value]))]
                self.tried(line["name"], words, line["runs"], line["says"], line["env"])

    def test_older_generations_of_swift(self):
        for number, words in enumerate(swift.OLDER):
            with self.subTest(number):
                self.tried(f"older {number}", [self.put(word, "qwen2_5_vl") for word in words], True)

    def test_files_of_swift(self):
        for name, text, runs, says in (("sft.yaml", swift.FILE, True, ""), ("ray.yaml", swift.RAY, False, "--use_ray true: ")):
            with self.subTest(name):
                for word, place in (("MODEL", self.model("qwen2_5_vl")), ("DATA", self.rows), ("OUT", self.folder / "out")):
                    text = text.replace(word, str(place))
                (self.folder / name).write_text(text)
                done = self.tried(name, ["sft", self.folder / name, "--lora_rank", "4"], runs, says, {"NPROC_PER_NODE": "2", **swift.PIXELS})
                if runs and not self.is_run(name):
                    self.assertIn("5376 trained · 2 ranks · zero2 · compute bfloat16", done.stdout)

    def test_scripts_of_llava_and_minicpm(self):
        for name, family, words in other.SCRIPTS:
            with self.subTest(name):
                self.tried(name, ["sft", *(self.put(word, family) for word in words)], True)

    def test_files_of_llama_factory(self):
        pictured = [row for row in map(json.loads, self.rows.read_text().splitlines()) if "images" in row]
        factory.write_data(self.folder / "data", [{**row, "images": [str(self.folder / row["images"][0])]} for row in pictured])
        for one in factory.FILES:
            with self.subTest(one["name"]):
                done = self.tried(one["name"], [one["verb"], self.factory_file(one)], one["runs"], one["says"])
                if one["runs"] and one["verb"] == "train" and not self.is_run(one["name"]):
                    self.assertIn(one["plan"], done.stdout)

    def factory_file(self, one):
        content = {key: self.put(value, one["family"]) if isinstance(value, str) else value for key, value in one["content"].items()}
        return self.written(one["name"], content, one["ending"])

    def test_a_file_of_llama_factory_with_words_behind_it_and_its_environment(self):
        factory.write_data(self.folder / "data", [])
        lora = self.factory_file(factory.file("lora", "qwen3", factory.TRAIN))
        done = self.lockstep("train", lora, "max_steps=1", "lora_rank=4", "dataset=identity", "--gradient-accumulation-steps", "1", "--output_dir",
                             self.folder / "o", env={"FORCE_TORCHRUN": 1, "NPROC_PER_NODE": 2}, cwd=self.folder, expect=0)
        for told in ("rank 4, 43.5K parameters", "--lora_alpha 8: what LLaMA-Factory does", "2 ranks  1 steps", f"-> {self.folder / 'o'}"):
            self.assertIn(told, done.stdout)

    def test_answers_to_rows_as_llama_factory_asks_for_them(self):
        factory.write_data(self.folder / "data", [])
        predict, out = self.factory_file(factory.file("predict", "qwen3", factory.PREDICT)), self.folder / "answers"
        for verb in ("train", "eval"):  # LLaMA-Factory has it as a `train` that does not train
            done = self.lockstep(verb, predict, "max_samples=2", "max_new_tokens=4", f"output_dir={out}", cwd=self.folder, expect=0)
            self.assertRegex(done.stderr, r"--temperature 0\.95 .*: what LLaMA-Factory does")
            rows = [json.loads(line) for line in (out / "generated_predictions.jsonl").read_text().splitlines()]
            figures = json.loads((out / "predict_results.json").read_text())
            self.assertEqual([row["label"] for row in rows], ["number 0", "number 1"] * 2)
            self.assertLessEqual({"loss", "rouge_1", "rouge_2", "rouge_l", "bleu_4"}, figures.keys())
            for name in ("rouge_l", "bleu_4"):
                self.assertRegex(done.stdout, rf"{name} +{figures[name]:.4f} \(4 rows\)")
            shutil.rmtree(out)
        # The same seed draws the same answers on any number of ranks, and no answers are drawn where only the loss is asked for.
        words = ("train", predict, "max_samples=2", "max_new_tokens=4", f"output_dir={out}")
        self.lockstep(*words, "--nproc", "2", cwd=self.folder, expect=0)
        self.assertEqual([json.loads(line) for line in (out / "generated_predictions.jsonl").read_text().splitlines()], rows)
        shutil.rmtree(out)
        self.lockstep("train", predict, "do_predict=false", "do_eval=true", "predict_with_generate=false", f"output_dir={out}", cwd=self.folder,
                      expect=0)
        self.assertEqual([path.name for path in out.iterdir()], ["predict_results.json"])

    def test_flags_of_llama_factory(self):
        factory.write_data(self.folder / "data", [])
        words = []
        for key, value in factory.FLAGS.items():
            words += [f"--{key}"] if value is None else [f"--{key}", self.put(value, "qwen2_5_vl")]
        done = self.tried("qwen3_lora_sft.sh", ["train", *words], True)
        self.assertIn("53.8K trained", done.stdout)
        done = self.tried("qwen3_lora_sft.sh", ["train", *(word.replace("_", "-") if word.startswith("--") else word for word in words),
                                                "--no_freeze_vision_tower"], True)
        self.assertIn("70.7K trained", done.stdout)

    def test_files_of_deepspeed_and_accelerate(self):
        base = ["--model", self.model("qwen2"), "--dataset", self.rows, "--tuner_type", "full", "--torch_dtype", "float32", "--output_dir",
                self.folder / "out"]
        for name, content, stage in deepspeed.FILES:
            with self.subTest(name):
                file = self.written(name, content)
                done = self.tried(name, ["sft", *base, "--deepspeed", file], stage != "",
                                  "" if stage else f"{file}: tensor_parallel: is not built, found {{\"autotp_size\":2}}")
                if stage and not self.is_run(name):
                    self.assertIn(f" · {stage} ·", done.stdout)
        fsdp2 = self.written("fsdp2", deepspeed.FSDP2)
        self.tried("fsdp2", ["sft", *base, "--deepspeed", fsdp2], False, f"{fsdp2}: it is a file for FSDP")
        for words, resharded, stage in deepspeed.FSDP_STAGES:
            with self.subTest(words, resharded=resharded):
                config = {**deepspeed.FSDP2["fsdp_config"], "reshard_after_forward": resharded}
                if resharded is None:
                    del config["reshard_after_forward"]
                file = self.written("fsdp", {**deepspeed.FSDP2, "fsdp": words, "fsdp_config": config})
                done = self.lockstep("plan", *base, "--fsdp", file, expect=0)
                self.assertIn(f"--fsdp {file} is --deepspeed {stage}\n", done.stderr)
        done = self.lockstep("plan", *base, "--fsdp", "fsdp2", "--gradient_checkpointing", "false", expect=0)
        self.assertIn("activations recomputed", done.stdout)
        for name, content, stage in other.ACCELERATE_FILES:
            with self.subTest(name):
                file = self.written("accelerate", content).rename(self.folder / "accelerate.yaml")
                done = self.lockstep("plan", *base, "--accelerate_config", file, expect=0)
                self.assertIn(f"2 ranks · {stage} ·", done.stdout)
        # What `accelerate launch --no_python` leaves in the environment.
        done = self.lockstep("plan", *base, env={"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_FSDP": "true",
                                                 "FSDP_RESHARD_AFTER_FORWARD": "false"}, expect=0)
        self.assertIn("zero2", done.stdout)

    def test_what_a_stack_does_where_nothing_is_said_is_nothing_that_was_asked_for(self):
        """An adapter keeps its own figures, and no word is told to have no effect that nobody gave."""
        begun, model = self.folder / "begun", self.model("qwen2")
        self.lockstep("sft", "--model", model, "--dataset", self.rows, "--output_dir", begun, "--add_version", "false", "--max_steps", 1,
                      "--tuner_type", "lora", "--lora_rank", 4, "--lora_alpha", 24, "--lora_dropout", 0.1, expect=0)
        factory = ["--model_name_or_path", model, "--stage", "sft", "--template", "qwen", "--dataset", self.rows, "--max_steps", 1]
        done = self.lockstep("sft", *factory, "--finetuning_type", "lora", "--adapter_name_or_path", begun / "checkpoint-1",
                             "--output_dir", self.folder / "on", expect=0)
        self.assertNotIn("no effect", done.text)
        again = ["--finetuning_type", "lora", "--resume_from_checkpoint", begun / "checkpoint-1", "--output_dir", begun]
        self.lockstep("sft", *factory[:-1], 2, *again, "--lora_rank", 4, expect=0)
        self.lockstep("sft", *factory[:-1], 3, *again, "--lora_rank", 8, expect=2)
        for folder in (self.folder / "on/checkpoint-1", begun / "checkpoint-2"):
            config = json.loads((folder / "adapter_config.json").read_text())
            self.assertEqual([config[key] for key in ("r", "lora_alpha", "lora_dropout")], [4, 24, 0.1])
        for stack in (factory + ["--finetuning_type", "full"], ["--model_name_or_path", model, "--data_path", self.rows, "--max_steps", 1],
                      ["--model_name_or_path", model, "--data_path", self.rows, "--max_steps", 1, "--llm_type", "qwen"]):
            done = self.lockstep("sft", *stack, "--output_dir", self.folder / "whole", "--overwrite_output_dir", "true", expect=0)
            self.assertNotIn("no effect", done.text)
            self.assertEqual(len(re.findall("nothing is said", done.text)), 2 if "--stage" in stack else 1, done.text)

    def test_some_layers_are_trained_as_llama_factory_freezes_the_others(self):
        model = self.model("qwen2_5_vl")
        layers = sorted({int(name.split("layers.")[1].split(".")[0]) for name in tensors(model / "model.safetensors") if "layers." in name})
        for flags, parts in (((), [f".layers.{layer}." for layer in layers[-2:]]),
                             (("--freeze_trainable_layers", 1, "--freeze_multi_modal_projector", "false"), [f".layers.{layers[-1]}.", ".merger."]),
                             (("--freeze_trainable_layers", -1, "--freeze_trainable_modules", "mlp,self_attn", "--freeze_extra_modules", "embed_tokens"),
                              [f".layers.{layers[0]}.mlp.", f".layers.{layers[0]}.self_attn.", "embed_tokens."])):
            out = self.folder / f"part{len(flags)}"
            self.lockstep("sft", "--model_name_or_path", model, "--stage", "sft", "--template", "qwen2_vl", "--dataset", self.rows, "--max_steps", 2,
                          "--finetuning_type", "freeze", *flags, "--output_dir", out, "--learning_rate", "1e-3", "--nproc", 2, expect=0)
            before, after = (tensors(folder / "model.safetensors") for folder in (model, out / "checkpoint-2"))
            changed = {name for name, value in after.items() if value != before[name]}
            self.assertEqual(changed, {name for name in before if any(part in name for part in parts)})

    def test_what_was_understood_is_told_and_written(self):
        done = self.lockstep("sft", "--model", self.model("qwen2"), "--dataset", self.rows, "--output_dir", self.folder / "out", "--add_version",
                             "False", "--max_steps", "1e0",
                             "--lr-scheduler-type=constant", "--attn_impl", "flash_attn", "--seed", "1", "--seed", "2", "--num_train_epochs", "3",
                             as_they_are=True, expect=0)
        for told in ("--attn_impl flash_attn makes no difference: there is one way here", "--seed 1 makes no difference: --seed 2 stands after it",
                     "--tuner_type is not given: lora, as ms-swift has it"):
            self.assertIn(told, done.stdout)
        args = json.loads((self.folder / "out" / "args.json").read_text())
        self.assertEqual((args["seed"], args["tuner_type"], args["max_steps"], args["lr_scheduler_type"]), (2, "lora", 1, "constant"))

    def test_a_number_out_of_range_names_flag_value_and_bounds(self):
        for words, expected in ((("--save_total_limit", "x"), "--save_total_limit: expected a whole number, found \"x\""),
                                (("--eval_steps", "1.5"), "--eval_steps: expected a number of steps, or a part of all steps between 0 and 1"),
                                (("--warmup_ratio", "2"), "--warmup_ratio: expected a number from 0 to 1, found \"2\""),
                                (("--batch_size", "0"), "--batch_size is --per_device_train_batch_size: expected a whole number from 1")):
            done = self.lockstep("sft", "--model", "m", "--dataset", self.rows, *words, expect=2)
            self.assertIn(expected, done.stderr)
            self.assertIsNone(re.search(r"\d{20}", done.stderr))

    def test_a_script_is_migrated_to_one_file_that_runs(self):
        (self.folder / "sft.sh").write_text(f"NPROC_PER_NODE=2 \\\nMAX_PIXELS=1003520 swift sft --model {self.model('qwen2_5_vl')} --dataset {self.rows} --train_type lora "
                                            f"--output_dir {self.folder / 'out'} --max_steps 1 --gradient_accumulation_steps 1 --dataset_num_proc 4 # one\n")
        done = self.lockstep("migrate", self.folder / "sft.sh", expect=0)
        self.assertIn("# --dataset_num_proc 4 makes no difference", done.stdout)
        self.assertIn("tuner_type: lora  # --train_type lora", done.stdout)
        (self.folder / "sft.yaml").write_text(done.stdout)
        self.lockstep("sft", self.folder / "sft.yaml", expect=0)
        for name in ("nope.sh", "nope.yaml"):
            self.assertIn("found no such file", self.lockstep("migrate", self.folder / name, expect=2).stderr)

    def test_a_migrated_file_says_each_key_once(self):
        (self.folder / "lf.yaml").write_text(f"model_name_or_path: {self.model('qwen2')}\ndataset: {self.rows}\nstage: sft\ndo_train: true\ncutoff_len: 64\ntemplate: qwen\n"
                                             f"output_dir: {self.folder / 'lf'}\nmax_steps: 1\nfinetuning_type: lora\n")
        done = self.lockstep("migrate", self.folder / "lf.yaml", expect=0)
        keys = [line.split(":")[0] for line in done.stdout.splitlines() if line[:1].isalpha()]
        self.assertEqual(sorted(keys), sorted(set(keys)))
        (self.folder / "migrated.yaml").write_text(done.stdout)
        self.lockstep("sft", self.folder / "migrated.yaml", expect=0)

    def test_a_script_of_minicpms_kind_is_migrated(self):
        (self.folder / "mini.sh").write_text(f"GPUS=2\nDISTRIBUTED_ARGS=\"\n    --nproc_per_node $GPUS --nnodes 1 \\\n\"\nif [ -z $X ]; then LR=1e-4; else LR=1e-5; fi\n"
                                             f"ARGS=(--model_name_or_path {self.model('qwen2')}\n  --learning_rate $LR)\n"
                                             f"nohup torchrun $DISTRIBUTED_ARGS finetune.py \"${{ARGS[@]}}\" --max_steps $((1*1)) --frobnicate 1 &\n")
        done = self.lockstep("migrate", self.folder / "mini.sh", expect=0)
        for line in ("NPROC_PER_NODE: 2", "learning_rate: 1e-5", "max_steps: 1", "# the script decides", "frobnicate: 1  # lockstep has no such flag"):
            self.assertIn(line, done.stdout)

    def test_the_system_message_may_be_a_file(self):
        (self.folder / "system.txt").write_text("You are from a file.")
        words = ("sft", "--model", self.model("qwen2_5_vl"), "--dataset", self.rows, "--tuner_type", "full", "--max_steps", 1, "--save_strategy", "no")
        done = self.lockstep(*words, "--output_dir", self.folder / "s1", "--system", self.folder / "system.txt", expect=0)
        self.assertIn("You are from a file.", done.text)
        done = self.lockstep(*words, "--output_dir", self.folder / "s2", "--system", self.folder / "none.txt", expect=2)
        self.assertIn("expected a file with the message, found none", done.text)

    def test_nothing_is_merged_where_there_is_no_adapter(self):
        for words in (("merge-lora",), ("export", "--merge_lora", "true")):
            done = self.lockstep(*words, "--model", self.model("qwen2"), "--output_dir", self.folder / "merged", expect=2)
            self.assertIn("there is no adapter to merge", done.stderr)
            self.assertFalse((self.folder / "merged").exists())

    def test_an_adapter_is_merged_beside_its_folder_from_within_it_too(self):
        model, adapter = self.model("qwen2"), self.folder / "run" / "checkpoint-1"
        self.lockstep("sft", "--model", model, "--dataset", self.rows, "--tuner_type", "lora", "--max_steps", 1, "--add_version", "false",
                      "--output_dir", self.folder / "run", expect=0)
        self.lockstep("export", "--model", model, "--adapters", ".", "--merge_lora", "true", cwd=adapter, expect=0)
        self.assertTrue((self.folder / "run" / "checkpoint-1-merged" / "config.json").exists())
        self.assertEqual([path.name for path in adapter.iterdir() if path.name.endswith("-merged")], [])

    def test_an_exported_folder_may_be_named_as_shells_complete_it_or_by_a_link(self):
        model, empty, link = self.model("qwen2"), self.folder / "empty", self.folder / "link"
        empty.mkdir()
        link.symlink_to(empty)
        for place in (f"{self.folder}/copy/", link):
            self.lockstep("export", "--model", model, "--output_dir", place, expect=0)
            self.assertTrue((self.folder / place / "config.json").exists())
        self.assertEqual(list(self.folder.glob("**/*.tmp-*")), [])
        self.assertTrue(link.is_symlink())

    def test_verbs_that_are_not_built_say_what_there_is_instead(self):
        for verb in ("rlhf", "deploy", "app", "rollout", "sample", "web-ui", "megatron"):
            done = self.lockstep(verb, "--model", "m", expect=2)
            self.assertIn("hint: ", done.stderr)
            self.assertIn("lockstep", done.stderr.split("hint: ")[1])


if __name__ == "__main__":
    main()

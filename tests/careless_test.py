"""Careless command lines: numbers that cannot be, places that cannot be written, jobs that no machine holds, data of another kind."""
import gzip
import json
import os
import pathlib
import resource
import struct
import subprocess
import unittest

from small_job import make_model, make_rows, sft_words
from story import BINARY, Done, Story, environment, main

NOBODY = 65534


def machine_bytes(what="MemTotal"):
    """What the machine has of memory."""
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def grow_weights(model, total):
    """The same checkpoint so wide that its weights take more than `total` bytes: a sparse file."""
    config = json.loads((model / "config.json").read_text())
    width, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    wide = (int((total / 48) ** 0.5) // (2 * heads) + 1) * 2 * heads  # 4 layers of 3 squares of floats
    wider = {width: wide, width * kv_heads // heads: wide * kv_heads // heads}
    (model / "config.json").write_text(json.dumps({**config, "hidden_size": wide}))
    weights = model / "model.safetensors"
    data = weights.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, end = json.loads(data[8:8 + length]), 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        tensor["shape"] = [wider.get(size, size) for size in tensor["shape"]]
        size = 4
        for edge in tensor["shape"]:
            size *= edge
        tensor["data_offsets"] = [end, end + size]
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(weights, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)


class Careless(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder, "qwen2")
        self.rows = make_rows(self.folder, count=6, images=False)
        self.out = self.folder / "out"
        self.sft = sft_words(self.model, self.rows, self.out, steps=1)

    def refused(self, code, *parts, words, **options):
        done = self.lockstep(*words, expect=code, **options)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertLess(len(done.stderr), 1200, "a message that nobody reads")
        return done

    def test_an_evaluation_without_a_token_to_judge_says_so(self):
        done = self.lockstep("eval", "--model", self.model, "--val_dataset", self.rows, "--max_length", 2, "--truncation_strategy", "right",
                             "--predict_with_generate", "false", expect=0)
        self.assertIn("no token of an answer is left in any row, so there is no loss: rows have none, or are cut before it (--max_length is 2)", done.text)

    def test_numbers_that_cannot_be(self):
        model = ["--model", self.model]
        infer, evaluate = ["infer", *model, "--prompt", "x"], ["eval", *model, "--val_dataset", self.rows]
        plan = ["plan", *model, "--dataset", self.rows]
        for words, said in (([*self.sft, "--weight_decay", "nan"], "a number of at least 0, found \"nan\""),
                            ([*self.sft, "--max_grad_norm", "inf"], "a number of at least 0"),
                            ([*self.sft, "--adam_beta1", 1], "a number of at least 0 and below 1, found \"1\""),
                            ([*self.sft, "--adam_epsilon", 0], "a number above 0"),
                            ([*self.sft, "--seed", -1], "a whole number from 0"),
                            ([*self.sft, "--data_seed", "abc"], "a whole number, found \"abc\""),
                            ([*self.sft, "--eval_steps", 0], "a whole number of at least 1, found \"0\""),
                            ([*self.sft, "--num_train_epochs", "inf"], "a number above 0"),
                            ([*self.sft, "--vit_lr", "nan"], "learning rate of at least 0"),
                            ([*self.sft, "--patience", "1e300"], "a number above 0"),
                            ([*self.sft, "--dataset_shuffle", "maybe"], "expected true or false, found \"maybe\""),
                            ([*self.sft, "--warmup_ratio"], "--warmup_ratio: expected a number, found nothing"),
                            ([*infer, "--temperature", "nan"], "a number of at least 0"),
                            ([*infer, "--top_p", 0], "a number above 0 and at most 1"),
                            ([*infer, "--repetition_penalty", "-inf"], "a number above 0"),
                            ([*evaluate, "--show", -1], "a whole number of at least 0"),
                            ([*evaluate, "--metric_timeout", "nan"], "a number above 0"),
                            ([*plan, "--world", 0], "a whole number from 1"),
                            (["init", "--family", "qwen2", "--output_dir", self.out, "--vocab_size", "1e3"], "a whole number from 1"),
                            (["demo", "--steps", "nan", "--output_dir", self.out], "a whole number of at least 1")):
            with self.subTest(words[-2:]):
                self.refused(2, "expected", said, words=words)
        self.assertFalse(self.out.exists())

    def test_what_is_said_of_weights_after_numbers_that_are_not_finite(self):
        words = sft_words(self.model, self.rows, self.out, steps=9, learning_rate="1e30", warmup_steps=0, max_grad_norm=0)
        done = self.lockstep(*words, expect=7)
        self.assertIn("this step was not applied: the weights are as", done.stderr)
        self.assertNotIn("not changed", done.stderr)

    def test_places_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        model = ["--model", self.model]
        self.lockstep(*sft_words(self.model, self.rows, self.folder / "lora", steps=1, tuner_type="lora"), expect=0)
        adapters = self.folder / "lora" / "checkpoint-1"
        for words in (sft_words(self.model, self.rows, self.folder / "file" / "x", steps=1),
                      sft_words(self.model, self.rows, self.folder / ("x" * 300), steps=1),
                      ["eval", *model, "--val_dataset", self.rows, "--output", self.folder / "no" / "rows.jsonl"],
                      ["eval", *model, "--val_dataset", self.rows, "--output", self.folder],
                      ["eval", *model, "--val_dataset", self.rows, "--result_path", self.folder],
                      ["infer", *model, "--val_dataset", self.rows, "--result_path", self.folder],
                      ["embed", *model, "--dataset", self.rows, "--output", self.folder / "file"],
                      ["plan", *model, "--report", self.folder / "no" / "plan.html"],
                      ["init", "--family", "qwen2", "--output_dir", self.folder / "file" / "m"],
                      ["init", "--family", "qwen2", "--output_dir", "/proc/m"],
                      ["export", *model, "--output_dir", self.folder / "file" / "m"], ["export", *model, "--output_dir", "/proc/m"],
                      ["export", *model, "--quant_method", "bnb", "--quant_bits", 4, "--output_dir", "/proc/m"],
                      ["export", "--adapters", adapters, "--output_dir", "/proc/m"],
                      ["demo", "--quick", "--output_dir", self.folder / "file" / "x"]):
            with self.subTest(words):
                self.refused(2, words=words)
        self.refused(2, words=["inspect", self.folder / ("x" * 300)])

    def test_an_output_that_takes_no_more(self):
        """Found while it is written: one exit code, whichever verb writes. The disk has 8 KiB."""
        model, rows, disk = ["--model", self.model], make_rows(self.folder, count=60, images=False, name="more.jsonl"), self.folder / "disk"
        disk.mkdir()
        for words in (sft_words(self.model, rows, disk / "run", steps=1, force="true"),
                      ["eval", *model, "--val_dataset", rows, "--output", disk / "rows.jsonl"],
                      ["infer", *model, "--val_dataset", rows, "--result_path", disk / "answers.jsonl", "--max_new_tokens", 64],
                      ["embed", *model, "--dataset", rows, "--output", disk / "vectors", "--force", "true"],
                      ["init", "--family", "qwen2", "--output_dir", disk / "made"],
                      ["plan", *model, "--report", disk / "plan.html"]):
            with self.subTest(words[0]):
                done = self.with_small(disk, "8k", words)
                self.assertEqual(done.returncode, 3, Done(done.returncode, done.stdout, done.stderr).text)
                self.assertEqual(done.stderr.count("error:"), 1, done.stderr)
                self.assertIn("o space left", done.stderr)
        done = self.with_small(disk, "8k", ["embed", *model, "--dataset", rows, "--output", disk / "vectors"])
        self.assertEqual(done.returncode, 2, done.stderr)
        for part in ("8.00 KiB free for", "vectors of 60 rows, 128 numbers each, need", "--force true"):
            self.assertIn(part, done.stderr)

    def test_a_limit_on_the_size_of_files(self):
        """ulimit -f: what may not grow is told, where a signal would end the process without a word."""
        made = ["init", "--family", "llava", "--size", "small", "--torch_dtype", "float32", "--output_dir", self.folder / "small"]
        # The roll call's memory is 66 MiB, the file of weights 73.
        for kib, code, said, words in ((4000, 2, "ulimit -f unlimited", ["inspect", self.model]), (70000, 3, "File too large", made)):
            with self.subTest(words[0]):
                done = subprocess.run([str(BINARY), *map(str, words)], env=environment(), capture_output=True, text=True, timeout=60,
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * kib, 1024 * kib)))
                self.assertEqual(done.returncode, code, Done(done.returncode, done.stdout, done.stderr).text)
                self.assertEqual(done.stderr.count("error:"), 1, done.stderr)
                self.assertIn(said, done.stderr)

    def test_folders_that_are_files_or_hold_no_case(self):
        weights = self.model / "model.safetensors"
        self.refused(4, "found a file", "name the folder that holds it", words=["inspect", weights])
        self.refused(2, "found a file", words=["verify", weights])
        self.refused(2, "found no such folder", words=["verify", self.folder / "nowhere"])
        (self.folder / "empty" / "below").mkdir(parents=True)
        self.refused(2, "found no case in it", "reference.safetensors", words=["verify", self.folder / "empty"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_places_that_belong_to_others(self):
        self.folder.chmod(0o755)
        mine = self.folder / "mine"
        (mine / "x").mkdir(parents=True)
        mine.chmod(0o700)
        model = ["--model", self.model]
        for words in (sft_words(self.model, self.rows, mine, steps=1), sft_words(self.model, self.rows, mine / "x", steps=1),
                      sft_words(self.model, self.rows, self.folder, steps=1),
                      ["eval", *model, "--val_dataset", self.rows, "--output", mine / "rows.jsonl"],
                      ["infer", *model, "--val_dataset", self.rows, "--result_path", mine / "rows.jsonl"],
                      ["embed", *model, "--dataset", self.rows, "--output", mine / "x"],
                      ["inspect", mine / "x"], ["export", *model, "--output_dir", mine / "x" / "m"], ["init", "--family", "qwen2", "--output_dir", mine / "x" / "m"],
                      ["demo", "--quick", "--output_dir", mine / "x"]):
            with self.subTest(words):
                done = subprocess.run([str(BINARY), *map(str, words)], env=environment(), capture_output=True, text=True, timeout=60,
                                      user=NOBODY, group=NOBODY, extra_groups=[])
                self.assertEqual(done.returncode, 2, Done(done.returncode, done.stdout, done.stderr).text)
                self.assertIn("error:", done.stderr)

    def test_a_model_that_no_machine_of_this_size_holds(self):
        grow_weights(self.model, 2 * machine_bytes())
        model = ["--model", self.model, "--nproc", 2]
        for words in (sft_words(self.model, self.rows, self.out, steps=1, nproc=2), ["infer", *model, "--prompt", "x"],
                      ["infer", *model, "--val_dataset", self.rows, "--result_path", self.folder / "answers.jsonl"],
                      ["eval", *model, "--val_dataset", self.rows], ["embed", *model, "--dataset", self.rows, "--output", self.out]):
            with self.subTest(words[0]):
                self.refused(5, "does not fit this machine: 2 ranks need", "are free", "--force true", words=words)
        self.assertFalse(self.out.exists())
        done = self.lockstep("plan", *model, "--dataset", self.rows, expect=0)
        self.assertIn("does not fit this machine: 2 ranks need", done.stdout)

    def test_the_cheapest_change_is_named(self):
        """What two ranks cannot hold each for itself they can share."""
        if machine_bytes("MemAvailable") < 0.9 * machine_bytes():
            self.skipTest("others take of this machine's memory")
        grow_weights(self.model, machine_bytes() * 15 // 100)  # four times that of each rank, with optimizer and gradients
        words = sft_words(self.model, self.rows, self.out, steps=1, nproc=2, deepspeed="zero0")
        self.refused(5, "2 ranks need", "hint: --deepspeed zero", "on each rank", words=words)

    def test_data_of_another_kind(self):
        zipped = self.folder / "rows.jsonl.gz"
        zipped.write_bytes(gzip.compress(self.rows.read_bytes()))
        parquet = self.folder / "rows.parquet"
        parquet.write_bytes(b"PAR1" + bytes(100))
        empty = self.folder / "empty"
        empty.mkdir()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for path, said in ((zipped, "found gzip data"), (parquet, "expected a Parquet or Arrow file"), (pipe, "found a pipe"),
                           ("/dev/zero", "found a device"), (empty, "found none")):
            with self.subTest(path):
                self.refused(3, said, words=sft_words(self.model, path, self.out, steps=1), timeout=30)
                self.refused(3, said, words=["eval", "--model", self.model, "--val_dataset", path], timeout=30)
        self.refused(3, "/dev/stdin", "found a pipe", words=sft_words(self.model, "/dev/stdin", self.out, steps=1), input="{}\n")

    def test_rows_beyond_the_models_positions_are_as_any_that_are_too_long(self):
        with open(self.rows, "a") as out:
            out.write(json.dumps({"query": "word " * 4000, "response": "x"}) + "\n")
        done = self.lockstep(*sft_words(self.model, self.rows, self.out, steps=3), expect=0)
        self.assertIn("1 rows could not be used", done.stdout)
        self.assertIn("the model was made for 2048", done.stdout)
        self.refused(3, "rows.jsonl:7: row is ", "the model was made for 2048",
                     words=["eval", "--model", self.model, "--val_dataset", self.rows, "--strict", "true"])
        done = self.lockstep("eval", "--model", self.model, "--val_dataset", self.rows, "--max_length", 9000, "--predict_with_generate",
                             "false", expect=0)
        self.assertNotIn("skipped", done.stdout)

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount another /dev/shm")
    def test_a_small_dev_shm_is_said(self):
        """As containers have it."""
        words = ["eval", "--model", self.model, "--val_dataset", self.rows, "--nproc", "2", "--max_new_tokens", "2"]
        done = self.with_small(pathlib.Path("/dev/shm"), "1m", words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: shared memory: 1.00 MiB free in /dev/shm, 2 ranks want", done.stderr)
        self.assertIn("--shm-size=", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount a small disk")
    def test_a_disk_without_room_for_a_checkpoint_is_said_first(self):
        self.out.mkdir()
        words = sft_words(self.model, self.rows, self.out, steps=1)
        done = self.with_small(self.out, "6m", words)
        self.assertEqual(done.returncode, 2, done.stderr)
        for part in ("6.00 MiB free", "a checkpoint with its optimizer needs", "--save_only_model", "--force true"):
            self.assertIn(part, done.stderr)
        done = self.with_small(self.out, "6m", [*words, "--force", "true"])
        self.assertIn("o space left", done.stderr)  # it went on until there was none
        self.assertIn("step 1/1", done.stdout)
        for flags in ({"save_strategy": "no"}, {"save_only_model": "true", "save_total_limit": 1}):
            done = self.with_small(self.out, "6m", sft_words(self.model, self.rows, self.out, steps=1, **flags))
            self.assertEqual(done.returncode, 0, done.stderr)

    def with_small(self, folder, size, words):
        """A run that finds a file system of this size at `folder`."""
        mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs "{folder}" || exit 99; exec "$@"', "sh"]
        done = subprocess.run([*mounted, str(BINARY), *map(str, words)], env=environment(), capture_output=True, text=True, timeout=60)
        if done.returncode in (1, 99) and "lockstep" not in done.stderr:
            self.skipTest("nothing may be mounted here: " + done.stderr)
        return done

    def test_words_for_adapters_that_come_to_nothing(self):
        lora = [word for word in self.sft if word not in ("--tuner_type", "full")] + ["--tuner_type", "lora"]
        for words, said in ((["--freeze_llm", "true"], "nothing is left to adapt"),
                            (["--rank_pattern", '{"nope": 3}'], "--rank_pattern nope: no module that is adapted"),
                            (["--alpha_pattern", '{"nope": 3}'], "--alpha_pattern nope: no module that is adapted"),
                            (["--rank_pattern", '{"(": 3}'], "--rank_pattern (: "),
                            (["--rank_pattern", "q_proj"], "--rank_pattern: expected JSON"),
                            (["--exclude_modules", "nope"], "--exclude_modules nope: no module"),
                            (["--layers_to_transform", "0", "99"], "--layers_to_transform 99: no module that is adapted"),
                            (["--target_regex", "("], "--target_regex (: "),
                            (["--init_weights", "pissa", "--lora_rank", "100"], "rank 100 of a matrix of"),
                            (["--min_lr_rate", "0.1"], "cosine knows no least rate")):
            self.refused(2, said, words=[*lora, *words])
        done = self.lockstep(*lora, "--rank_pattern", '{"q_proj": 3}', "--alpha_pattern", '{"v_proj": 8}', "--exclude_modules", "o_proj",
                             "--layers_to_transform", "0", "--eval_steps", "1", expect=0)
        self.assertIn("--eval_steps has no effect", done.text)

    def test_token_ids_that_the_model_does_not_have(self):
        def rows(name, *given):
            (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in given))
            return self.folder / name

        words = lambda data: ["sft", "--model", self.model, "--dataset", data, "--output_dir", self.out, "--max_steps", "1"]  # noqa: E731
        for row, said in (({"input_ids": [1, 999999], "labels": [1, 2]}, "token 2 of the row"), ({"input_ids": [1, 2], "labels": [1, 10**8]}, "label 2"),
                          ({"input_ids": [1, 2, 3], "labels": [1, 2, -5]}, "label 3 of the row: expected one of the model's 512, or -100, found -5")):
            self.refused(3, said, words=words(rows("bad.jsonl", row)))
        good = rows("good.jsonl", {"input_ids": [1, 5, 7, 9]}, {"input_ids": [1, 5, 7], "labels": [-100, -100, 7]}, {"query": "x"}, {"query": ""})
        answers = self.folder / "answers.jsonl"
        self.lockstep("infer", "--model", self.model, "--val_dataset", good, "--result_path", answers, "--max_new_tokens", "3", "--use_chat_template", "false", expect=0)
        found = [json.loads(line) for line in answers.read_text().splitlines()]
        self.assertEqual([row["response"] is not None for row in found], [True, True, True, False])
        self.assertIn("at least one token", found[3]["error"])
        vectors = self.folder / "vectors"
        self.lockstep("embed", "--model", self.model, "--dataset", good, "--output", vectors, "--use_chat_template", "false", expect=0)
        kept = [json.loads(line) for line in (vectors / "embeddings.jsonl").read_text().splitlines()]
        self.assertEqual([row.get("tokens") for row in kept][:2], [4, 2])
        short, inputs = rows("short.jsonl", {"input_ids": [5]}, {"input_ids": [5, 7]}), self.folder / "inputs"
        self.lockstep("embed", "--model", self.model, "--dataset", short, "--output", inputs, "--use_chat_template", "false", "--stage", "inputs", expect=0)
        self.assertEqual([len(json.loads(line)["embedding"]) for line in (inputs / "embeddings.jsonl").read_text().splitlines()], [1, 2])

    def test_a_data_set_is_not_written_over(self):
        before = self.rows.read_text()
        for words in (["infer", "--result_path"], ["eval", "--output"]):
            self.refused(2, "that is the data set itself", words=[words[0], "--model", self.model, "--val_dataset", f"{self.rows}", words[1], self.rows])
        answers, vectors = self.folder / "generated_predictions.jsonl", self.folder / "embeddings.jsonl"
        for path, words in ((answers, ["eval", "--model", self.model, "--val_dataset", answers, "--output_dir", self.folder]),
                            (vectors, ["embed", "--model", self.model, "--dataset", vectors, "--output", self.folder])):
            path.write_text(before)
            self.refused(2, "that is the data set itself", words=words)
            self.assertEqual(path.read_text(), before)
        self.assertEqual(self.rows.read_text(), before)

    def test_words_that_nothing_would_heed(self):
        for words in (["export", "--model", self.model, "--output_dir", self.out], self.sft):
            self.refused(2, "nothing is made codes without --quant_bits", words=[*words, "--bnb_4bit_quant_type", "fp4"])
        for flag in ("--custom_dataset_info", "--dataset_dir"):
            self.refused(3, f"{flag} nope: expected a", words=[*self.sft, flag, "nope"])
        self.refused(2, "--media_dir nope: expected a folder", words=[*self.sft, "--media_dir", "nope"])
        done = self.lockstep(*self.sft, "--packing_strategy", "sequential", "--shuffle_buffer_size", "9", "--lorap_emb_lr", "0.1", "--talker_loss_weight", "2",
                             "--save_strategy", "no", "--save_total_limit", "3", "--max_new_tokens", "9", "--temperature", "0.5", "--warmup_steps", "1",
                             "--warmup_ratio", "0.1", "--init_weights", "gaussian", "--report_to", "all", "--columns", '{"my_qestion": "query"}', expect=0)
        for words in ("--packing_strategy sequential", "--shuffle_buffer_size 9", "--lorap_emb_lr 0.1", "--talker_loss_weight 2", "--save_total_limit 3",
                      "--max_new_tokens 9", "--temperature 0.5", "--warmup_ratio 0.1"):
            self.assertIn(f"{words} has no effect: ", done.text)
        self.assertIn("--report_to all is tensorboard: ", done.text)
        self.assertIn('--columns: no row that was looked at has "my_qestion", which is to be "query"', done.text)
        self.assertIn("--freeze_vit false has no effect: the model takes texts alone", done.text)
        words = sft_words(self.model, self.rows, self.out, steps=1, freeze_vit=None, freeze_aligner=None, save_strategy="no")
        self.assertNotIn("has no effect", self.lockstep(*words, "--columns", '{"Query": "query"}', expect=0).text)
        eval_words = ["eval", "--model", self.model, "--val_dataset", self.rows, "--predict_with_generate", "false"]
        self.assertIn("--top_k 5 has no effect: no answers are made", self.lockstep(*eval_words, "--top_k", "5", expect=0).text)
        infer_words = ["infer", "--model", self.model, "--prompt", "Hi", "--max_new_tokens", "1"]
        done = self.lockstep(*infer_words, "--top_p", "0.5", "--strict", "true", "--media_dir", self.folder, expect=0)
        for words in ("--top_p 0.5", "--strict true", f"--media_dir {self.folder}"):
            self.assertIn(f"{words} has no effect: ", done.text)
        self.refused(2, "--speaker and --talker_", words=[*infer_words, "--speaker", "Chelsie"])
        self.refused(2, "--model names the base of an adapter", words=["inspect", self.model, "--model", self.model])
        self.assertIn("--memory_limit has no effect: ", self.lockstep("doctor", "--model", self.model, "--memory_limit", "1GiB", expect=0).text)
        config = self.model / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "attention_dropout": 0.5}))
        done = self.lockstep(*self.sft, "--use_dora", "true", "--lora_rank", "4", expect=0)
        self.assertIn("--lora_rank, --use_dora are of no effect: --tuner_type full", done.text)
        self.assertIn("config.json: attention_dropout 0.5 is not applied", done.text)

    def test_packing_with_a_batch_size_of_auto(self):
        self.lockstep(*sft_words(self.model, self.rows, self.out, steps=1, per_device_train_batch_size="auto", packing="true", deepspeed="zero0"), expect=0)

    def test_other_slips(self):
        model = ["--model", self.model]
        for code, said, words in ((2, "did you mean sft?", ["finetune"]), (2, "did you mean infer?", ["chat"]), (2, "did you mean sft?", ["SFT"]),
                                  (2, "--prompt: expected a question", ["infer", *model, "--prompt", ""]),
                                  (2, "--image: expected a file", ["infer", *model, "--prompt", "x", "--image", ""]),
                                  (2, "leave one of them out", ["infer", *model, "--prompt", "x", "--val_dataset", self.rows, "--result_path", self.out]),
                                  (2, "--device_memory 80GiB", ["plan", *model, "--device_memory", 80]),
                                  (2, "did you mean jsonl?", ["embed", *model, "--dataset", self.rows, "--output", self.out, "--format", "json"]),
                                  (3, "a number from 1 to", ["eval", *model, "--val_dataset", f"{self.rows}#99999999999"]),
                                  (3, "--corpus /dev/zero", ["init", "--family", "qwen2", "--output_dir", self.out, "--corpus", "/dev/zero"])):
            with self.subTest(words):
                self.refused(code, said, words=words, timeout=30)
        self.assertIn("--learning_rate", self.lockstep("help", "sft", expect=0).stdout)
        self.assertIn("lockstep 0", self.lockstep("-v", expect=0).stdout)
        done = self.lockstep("plan", *model, "--json", "true", expect=0)
        self.assertIn("memory", json.loads(done.stdout))

    def test_help_fits_a_screen_and_says_where_the_rest_is(self):
        for verb in ("sft", "eval", "infer", "embed", "plan", "doctor"):
            with self.subTest(verb):
                short = self.lockstep(verb, "--help", expect=0).stdout
                self.assertLess(len(short.splitlines()), 75)
                self.assertIn(f"more flags: lockstep {verb} --help all", short)
                for words in (["--help", "all"], ["--help-all"]):
                    self.assertIn("--patience", self.lockstep(verb, *words, expect=0).stdout)
                self.assertNotIn("--patience", short)

    def test_the_spellings_of_other_trainers(self):
        for verb, theirs, ours in (("sft", "--lr", "--learning_rate"), ("sft", "--epochs", "--num_train_epochs"),
                                   ("sft", "--num_epochs", "--num_train_epochs"), ("sft", "--resume", "--resume_from_checkpoint"),
                                   ("sft", "--output", "--output_dir"), ("sft", "--nproc_per_node", "--nproc"),
                                   ("sft", "--LR", "--learning_rate"), ("infer", "--max_tokens", "--max_new_tokens"),
                                   ("embed", "--out_dir", "--output_dir"), ("infer", "--output_file", "--result_path")):
            with self.subTest(theirs):
                self.refused(2, f"unknown flag {theirs}", f"did you mean {ours}?", words=[verb, theirs, 1])


if __name__ == "__main__":
    main()

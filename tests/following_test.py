"""What decides when a run evaluates, logs, ends, and which checkpoint is its best; and rows that are streamed."""
import json
import math
import shutil

from small_job import losses, make_model, make_rows, records, sft_words, tensors
from story import Story, main


class Following(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder, "qwen2")
        self.rows = make_rows(self.folder, images=False)

    def train(self, name, expect=0, **flags):
        out = self.folder / name
        done = self.lockstep(*sft_words(self.model, self.rows, out, **{"nproc": 2, "device": "cpu", "save_total_limit": 30, **flags}), expect=expect)
        return out, done

    def lines(self, out, key):
        return [record for record in map(json.loads, (out / "logging.jsonl").read_text().splitlines()) if key in record]

    def state(self, out, step):
        return json.loads((out / f"checkpoint-{step}" / "trainer_state.json").read_text())

    def test_the_best_checkpoint_is_that_of_the_metric_that_was_named(self):
        flags = {"val_dataset": self.rows, "steps": 8, "eval_steps": 2, "save_steps": 2, "learning_rate": "1e-2"}
        for metric, better in (("eval_token_acc", max), ("loss", min)):
            out, done = self.train(metric, metric_for_best_model=metric, load_best_model_at_end="true", **flags)
            evals = {int(e["global_step/max_steps"].split("/")[0]): e["eval_token_acc" if "acc" in metric else "eval_loss"]
                     for e in self.lines(out, "eval_loss")}
            state, best = self.state(out, 8), better(evals.values())
            self.assertAlmostEqual(state["best_metric"], best, delta=1e-6)
            first = min(step for step, value in evals.items() if value == best)
            self.assertEqual(state["best_global_step"], first)
            self.assertTrue(state["best_model_checkpoint"].endswith(f"checkpoint-{first}"))
            final = self.lines(out, "best_model_checkpoint")[-1]
            self.assertEqual((final["best_model_checkpoint"], round(final["best_metric"], 5)), (state["best_model_checkpoint"], round(best, 5)))
            self.assertIn(f"lockstep infer --model {state['best_model_checkpoint']}", done.stdout)
        out, _ = self.train("rouge", metric_for_best_model="rouge-l", predict_with_generate="true", max_new_tokens=4, **{**flags, "steps": 2})
        self.assertIn("best_metric", self.state(out, 2))
        out, done = self.train("none", metric_for_best_model="bleu", predict_with_generate="true", max_new_tokens=4, expect=2, **{**flags, "steps": 2})
        self.assertFalse(list((self.folder / "none").glob("**/logging.jsonl")), "nothing was trained by then")
        self.assertIn("--metric_for_best_model bleu: an evaluation measures loss, token_acc", done.stderr)

    def test_an_evaluation_without_a_learnt_token_ends_nothing(self):
        rows = self.folder / "unlearnt.jsonl"  # of which the answer is cut
        rows.write_text(json.dumps({"query": "What? " * 300, "response": "Nothing."}) + "\n")
        out, done = self.train("unlearnt", val_dataset=rows, metric_for_best_model="token_acc", eval_strategy="end", steps=2, save_steps=2, max_length=64,
                               truncation_strategy="right")
        self.assertIn("the evaluation has no loss", done.stdout)
        self.assertTrue((out / "checkpoint-2").is_dir())

    def test_a_run_ends_early_when_nothing_becomes_better(self):
        flags = {"val_dataset": self.rows, "steps": 40, "eval_steps": 2, "save_steps": 2, "learning_rate": 0, "early_stop_interval": 3}
        out, done = self.train("early", **flags)  # a rate of 0: every evaluation is the first's equal
        self.assertIn("the last 3 checkpoints saw no better evaluation than", done.stdout)
        self.assertEqual(max(records(out)), 8)
        self.assertEqual(self.state(out, 8)["lockstep"]["saves_without_better"], 3)
        for checkpoint in ("checkpoint-6", "checkpoint-8"):
            shutil.rmtree(out / checkpoint)
        self.train("early", resume_from_checkpoint="true", **flags)
        self.assertTrue((out / "checkpoint-8").is_dir())
        self.assertFalse((out / "checkpoint-10").exists(), "what was counted before the resume counts")

    def test_a_run_that_goes_on_by_another_measure_has_no_best_yet(self):
        flags = {"val_dataset": self.rows, "eval_steps": 2, "save_steps": 2, "learning_rate": 0}
        out, _ = self.train("other", steps=2, **flags)
        self.assertEqual(self.state(out, 2)["lockstep"]["best_of"], "lowest loss")
        _, done = self.train("other", steps=4, metric_for_best_model="token_acc", resume_from_checkpoint="true", **flags)
        self.assertIn("the best evaluation, which there is none of yet", done.text)
        state = self.state(out, 4)
        self.assertEqual((state["best_global_step"], state["lockstep"]["best_of"]), (4, "highest token_acc"))
        self.train("other", steps=6, metric_for_best_model="token_acc", resume_from_checkpoint="true", **flags)
        self.assertEqual(self.state(out, 6)["best_global_step"], 4, "what equals it is no better")

    def test_a_run_ends_early_by_evaluations_as_the_callback_of_transformers_does(self):
        flags = {"val_dataset": self.rows, "steps": 40, "eval_steps": 2, "save_steps": 10, "learning_rate": 0, "early_stopping_patience": 3}
        out, done = self.train("patience", **flags)  # the first is the best, and three that equal it follow
        self.assertIn("the last 3 evaluations were not better than", done.stdout)
        self.assertEqual(max(records(out)), 8)
        self.assertTrue((out / "checkpoint-8").is_dir(), "nothing that was learnt is lost")
        self.assertEqual(self.state(out, 8)["lockstep"]["evaluations_without_better"], 3)

    def test_evaluation_and_logging_come_when_they_are_wished(self):
        out, _ = self.train("start", val_dataset=self.rows, steps=2, eval_strategy="no", eval_on_start="true", save_strategy="no")
        self.assertEqual([e["global_step/max_steps"] for e in self.lines(out, "eval_loss")], ["0/2"])
        out, _ = self.train("silent", steps=3, logging_strategy="no", save_strategy="no")
        self.assertEqual(records(out), {})
        out, _ = self.train("epochs", steps=8, logging_strategy="epoch", save_strategy="no", logging_first_step="false")
        self.assertEqual(list(records(out)), [4, 8])  # 24 rows, 6 a step

    def test_rows_that_fill_no_batch_are_dropped_when_wished(self):
        self.rows = make_rows(self.folder, count=23, images=False)
        for drop, seen, steps in (("true", 40, 4), ("false", 46, 6)):
            out, _ = self.train("drop " + drop, steps=-1, num_train_epochs=2, dataloader_drop_last=drop, per_device_train_batch_size=5, save_steps=1)
            last = max(records(out))
            self.assertEqual((records(out)[last]["samples_seen"], last), (seen, steps))
        again = self.folder / "drop true"  # goes on after 10 rows; what fills a batch of today's size still comes
        for step in (2, 3, 4):
            shutil.rmtree(again / f"checkpoint-{step}")
        for rows, seen in ((4, 10 + 8 + 16), (8, 10 + 16)):
            other = self.folder / f"drop {rows}"
            shutil.copytree(again, other)
            _, done = self.train(other.name, steps=-1, num_train_epochs=2, dataloader_drop_last="true", per_device_train_batch_size=rows, resume_from_checkpoint="true")
            self.assertEqual(records(other)[max(records(other))]["samples_seen"], seen)
            said = "what is left of epoch 1 after its first 10 fills no micro-batch of 2 ranks with 8 each"
            self.assertEqual(said in done.stdout, rows == 8, done.text)
        _, done = self.train("none", dataloader_drop_last="true", per_device_train_batch_size=50, expect=2)
        self.assertIn("--dataloader_drop_last true: the 23 rows fill no micro-batch", done.stderr)

    def test_streamed_rows_are_read_when_it_is_their_turn(self):
        text = self.rows.read_text().splitlines()
        text.insert(20, '{"query": ')
        self.rows.write_text("\n".join(text) + "\n")
        flags = {"streaming": "true", "shuffle_buffer_size": 4, "steps": 8, "save_steps": 2}
        out, done = self.train("streamed", **flags)
        self.assertIn("1 rows could not be used so far and were skipped", done.stdout)
        self.assertIn("rows.jsonl:21", done.stdout)
        for ranks in (2, 1):
            again = self.folder / f"again{ranks}"
            shutil.copytree(out, again)
            for step in (4, 6, 8):
                shutil.rmtree(again / f"checkpoint-{step}")
            self.train(again.name, resume_from_checkpoint="true", **{**flags, "nproc": ranks, "per_device_train_batch_size": 6 // ranks})
            for step, loss in losses(out).items():
                self.assertAlmostEqual(losses(again)[step], loss, delta=0 if ranks == 2 else 1e-5)
        _, done = self.train("again1", resume_from_checkpoint="true", expect=2, **{**flags, "shuffle_buffer_size": 5})
        self.assertIn("drawn from a buffer of 4, now they would be drawn from a buffer of 5", done.stderr)
        _, done = self.train("strict", expect=3, strict="true", **flags)
        self.assertIn("rows.jsonl:21", done.stderr)
        _, done = self.train("endless", expect=2, **{**flags, "steps": -1})
        self.assertIn("--streaming true: expected --max_steps", done.stderr)
        out, _ = self.train("epochs", max_epochs=2, **{**flags, "steps": 100, "packing": "true", "max_length": 64, "save_strategy": "no"})
        self.assertEqual(records(out)[max(records(out))]["epoch"], 2)

    def test_parts_by_name_and_noise_train_alike_in_every_stage(self):
        flags = {"steps": 4, "freeze_parameters_ratio": 0.3, "freeze_parameters_regex": "layers.1.*mlp", "trainable_parameters": "model.embed_tokens",
                 "trainable_parameters_regex": "norm", "neftune_noise_alpha": 5, "system": "Be brief."}
        found = {}
        for stage, ranks in (("zero0", 2), ("zero2", 2), ("zero3", 2), ("zero3", 1)):
            out, done = self.train(f"{stage} {ranks}", deepspeed=stage, nproc=ranks, **{**flags, "per_device_train_batch_size": 6 // ranks})
            found[stage, ranks] = losses(out)
            for step, loss in found["zero0", 2].items():
                self.assertAlmostEqual(found[stage, ranks][step], loss, delta=0 if ranks == 2 else 1e-5)
            peak = json.loads((out / "memory.json").read_text())["peaks"][0]
            self.assertLessEqual(peak["measured"], 1.02 * peak["predicted"])
        self.assertIn("Be brief.", done.stdout)
        before, after = (folder / "model.safetensors" for folder in (self.model, out / "checkpoint-4"))
        changed = {name for name, value in tensors(after).items() if value != tensors(before)[name]}
        self.assertIn("model.embed_tokens.weight", changed)
        self.assertTrue(any(name.endswith("layers.1.input_layernorm.weight") for name in changed), changed)
        self.assertFalse(any("layers.1.mlp" in name or "layers.0.self_attn" in name for name in changed), changed)

    def test_the_rate_follows_the_schedule_of_a_deepspeed_file(self):
        auto = {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}
        for name, params, flags, rates in (
                ("WarmupLR", auto, {"warmup_steps": 3}, [0, 0, math.log(2, 3), 1, 1, 1]),
                ("WarmupDecayLR", {**auto, "total_num_steps": "auto", "warmup_type": "linear"}, {}, [0, 0, 0.5, 1, 0.75, 0.5])):
            config = self.folder / f"{name}.json"
            config.write_text(json.dumps({"zero_optimization": {"stage": 2}, "scheduler": {"type": name, "params": params}}))
            out, done = self.train(name, steps=6, deepspeed=config, learning_rate="1e-3", save_strategy="no", **flags)
            self.assertIn(f"the rate follows {name}, as DeepSpeed has it", done.text)
            found = [record["learning_rate"] for record in self.lines(out, "grad_norm")]
            for rate, expected in zip(found, rates, strict=True):
                self.assertAlmostEqual(rate, 1e-3 * expected, delta=1e-9)
        config.write_text(json.dumps({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4}}}))
        done = self.train("no", expect=2, deepspeed=config, learning_rate="1e-3")[1]
        self.assertIn("warmup_max_lr is 0.0001, and --learning_rate 0.001; scheduler.params.warmup_num_steps (not given) is 1000", done.stderr)

    def test_what_follows_nothing_is_refused(self):
        for flags, said in (({"load_best_model_at_end": "true"}, "nothing is evaluated, so no checkpoint is the best"),
                            ({"early_stop_interval": 2}, "nothing is evaluated, so nothing can become better"),
                            ({"eval_on_start": "true"}, "there are no rows to evaluate"),
                            ({"val_dataset": self.rows, "load_best_model_at_end": "true", "save_steps": 4, "eval_steps": 3}, "no multiple of --eval_steps 3"),
                            ({"val_dataset": self.rows, "load_best_model_at_end": "true", "steps": 40, "save_steps": 20, "eval_steps": 0.15},
                             "--save_steps 20 is no multiple of --eval_steps 6 (0.15 of all steps)"),
                            ({"val_dataset": self.rows, "metric_for_best_model": "rougeL", "predict_with_generate": "true"}, "did you mean rouge"),
                            ({"val_dataset": self.rows, "metric_for_best_model": "rouge_l", "predict_with_generate": "true", "metrics": "exact_match"},
                             "by --metrics exact_match"),
                            ({"val_dataset": self.rows, "metric_for_best_model": "rouge-l"}, "measured on answers, and none are generated"),
                            ({"lr_scheduler_type": "linear", "lr_scheduler_kwargs": "{'num_cycles': 2}"}, "nothing that linear takes")):
            self.assertIn(said, self.train("no", expect=2, **flags)[1].stderr)


if __name__ == "__main__":
    main()

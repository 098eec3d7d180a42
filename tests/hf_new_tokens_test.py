"""Special tokens that a model is given: transformers, given the same, has the same ids and rows; trained, saved, asked and merged they stay."""
import json
import shutil

from lora_job import lora_words, loss_of, make_id_rows
from small_job import FIXTURES, losses, make_model, sft_words
from story import Story, main

TOKENS = ["<box>", "</box>", "[REF]", "<a b>"]
TEXTS = ["see <box>1,2</box> and[REF] x <a b>y", "<box><box>  </box>né[REF", " [REF]", "<a  b> <a b>"]


def classes(folder):
    import transformers
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    return getattr(transformers, architecture), transformers.AutoTokenizer


class NewTokens(Story):
    def given(self, model, name):
        """The model with the tokens, two of them from a file."""
        (self.folder / "tokens.txt").write_text("\n".join(TOKENS[:2]) + "\n")
        out = self.folder / name
        self.lockstep("export", "--model", model, "--new_special_tokens", self.folder / "tokens.txt", *TOKENS[2:], "--output_dir", out, expect=0)
        return out

    def same_tokens(self, base, new):
        _, tokenizers = classes(base)
        theirs, ours = tokenizers.from_pretrained(base), tokenizers.from_pretrained(new)
        theirs.add_special_tokens({"extra_special_tokens": TOKENS})
        self.assertEqual(len(ours), len(theirs))
        self.assertLessEqual(set(TOKENS), set(ours.all_special_tokens))
        for text in TEXTS:
            ids = theirs(text)["input_ids"]
            self.assertEqual(ours(text)["input_ids"], ids, text)
            for skip in (False, True):
                self.assertEqual(ours.decode(ids, skip_special_tokens=skip), theirs.decode(ids, skip_special_tokens=skip), text)
        return theirs

    def test_a_folder_is_as_transformers_makes_it(self):
        import torch
        for family in ("qwen2_5_vl", "llava", "qwen2", "mistral"):
            with self.subTest(family):
                base = make_model(self.folder, family)
                new = self.given(base, f"{family}_new")
                tokenizer = self.same_tokens(base, new)
                model, _ = classes(base)
                theirs, ours = (model.from_pretrained(folder, dtype=torch.float32) for folder in (base, new))
                rows = theirs.get_input_embeddings().weight.shape[0]
                theirs.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=128, mean_resizing=True)
                for which in ("get_input_embeddings", "get_output_embeddings"):
                    one, other = getattr(ours, which)().weight, getattr(theirs, which)().weight
                    self.assertEqual(one.shape, other.shape)
                    self.assertTrue(torch.equal(one[:rows], other[:rows]))
                    # Theirs are drawn around the mean, with a billionth of the rows' variance.
                    self.assertLess((one[rows:] - one[:rows].mean(0)).abs().max(), 1e-6)
                    self.assertLess((one[rows:] - other[rows:]).abs().max(), 1e-4)
                self.assertEqual(ours.config.get_text_config().vocab_size, theirs.config.get_text_config().vocab_size)

    def test_rows_that_are_there_are_used(self):
        """A table with rows to spare stays as it is, and a token that there is keeps its id."""
        base = make_model(self.folder, "qwen2")
        wide = self.given(base, "wide")
        self.lockstep("export", "--model", wide, "--new_special_tokens", "<one more>", "<box>", "--output_dir", self.folder / "more", expect=0)
        for file in ("config.json", "model.safetensors"):
            self.assertEqual((wide / file).read_bytes(), (self.folder / "more" / file).read_bytes())
        _, tokenizers = classes(base)
        before, after = tokenizers.from_pretrained(wide), tokenizers.from_pretrained(self.folder / "more")
        self.assertEqual(after.convert_tokens_to_ids(["<one more>", "<box>"]), [len(before), before.convert_tokens_to_ids("<box>")])
        self.lockstep("export", "--model", wide, "--new_special_tokens", "<box>", "--output_dir", self.folder / "same", expect=0)
        for file in wide.iterdir():
            self.assertEqual((self.folder / "same" / file.name).read_bytes(), file.read_bytes(), file.name)

    def rows(self):
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps({"query": f"Where is {i}?", "response": f"<box>{i},{i + 1}</box> [REF]"}) + "\n" for i in range(12)))
        return path

    def test_trained_whole_on_any_number_of_ranks(self):
        base, rows = make_model(self.folder, "qwen2_5_vl"), self.rows()
        runs = {}
        for ranks in (1, 3):
            out = self.folder / f"full_{ranks}"
            self.lockstep(*sft_words(base, rows, out, steps=4, new_special_tokens=TOKENS[0], per_device_train_batch_size=6 // ranks), *TOKENS[1:],
                          "--nproc", ranks, expect=0)
            runs[ranks] = losses(out)
        for step, loss in runs[1].items():
            self.assertAlmostEqual(loss, runs[3][step], delta=1e-5)
        checkpoint = self.folder / "full_3" / "checkpoint-4"
        self.same_tokens(base, checkpoint)
        model, _ = classes(checkpoint)
        opened = model.from_pretrained(checkpoint)
        self.assertEqual(opened.get_input_embeddings().weight.shape[0], 640)
        # The same words go on where the run stopped, and there the tokens are known already.
        self.lockstep(*sft_words(base, rows, self.folder / "on", steps=6, new_special_tokens=TOKENS[0], per_device_train_batch_size=6), *TOKENS[1:],
                      "--resume_from_checkpoint", checkpoint, expect=0)
        self.assertEqual(len(losses(self.folder / "on")), 2)

    def test_adapters_remember_them(self):
        base, rows, out = make_model(self.folder, "qwen2"), self.rows(), self.folder / "lora"
        (self.folder / "tokens.txt").write_text(" ".join(TOKENS[:3]))
        self.lockstep(*lora_words(base, rows, out, steps=6, new_special_tokens=self.folder / "tokens.txt"), "--modules_to_save", "embed_tokens", "lm_head",
                      "--nproc", 2, expect=0)
        (self.folder / "tokens.txt").unlink()
        adapter = out / "checkpoint-6"
        self.assertEqual(json.loads((adapter / "args.json").read_text())["new_special_tokens"], TOKENS[:3])

        def loss(*words):
            done = self.lockstep("eval", *words, "--dataset", rows, "--predict_with_generate", "false", "--torch_dtype", "float32", "--json", expect=0)
            return json.loads(done.stdout)["loss"]

        merged = self.folder / "merged"
        self.lockstep("export", "--adapters", adapter, "--merge_lora", "true", "--output_dir", merged, expect=0)
        self.assertAlmostEqual(loss("--adapters", adapter), loss("--model", merged), delta=2e-5)
        for others in (["<other>"], TOKENS[:2]):  # which would have the rows that these have learnt
            done = self.lockstep("eval", "--adapters", adapter, "--dataset", rows, "--new_special_tokens", *others, expect=2)
            self.assertIn("expected the tokens that the adapter", done.stderr)
        shutil.copytree(base, self.folder / "moved")
        self.assertEqual(loss("--adapters", adapter, "--model", self.folder / "moved"), loss("--adapters", adapter))
        model, tokenizers = classes(merged)
        self.assertEqual(model.from_pretrained(merged).get_input_embeddings().weight.shape[0], 640)
        for folder in (merged, adapter):
            self.assertEqual(tokenizers.from_pretrained(folder).convert_tokens_to_ids(TOKENS[:3]), [512, 513, 514])
        self.assertFalse((adapter / "config.json").exists())
        # As peft has it: over a base that was given them as well.
        import torch
        from peft import PeftModel
        tokenizer, whole = tokenizers.from_pretrained(base), model.from_pretrained(base, dtype=torch.float32)
        tokenizer.add_special_tokens({"extra_special_tokens": TOKENS[:3]})
        whole.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=128)
        opened = PeftModel.from_pretrained(whole, adapter).eval()
        ids = torch.tensor([tokenizer("<box>1,2</box> [REF]")["input_ids"]])
        with torch.no_grad():
            one, other = opened(input_ids=ids).logits, model.from_pretrained(merged, dtype=torch.float32)(input_ids=ids).logits
        self.assertLess((one - other).abs().max(), 1e-4)

    def test_an_adapter_brings_the_sizes_of_its_tables(self):
        """As peft saves one over a model that was given rows for its tokens, or has lost those that no token has."""
        import torch
        from peft import LoraConfig, get_peft_model
        base = make_model(self.folder, "qwen2")
        wide = self.given(base, "wide")
        for name, of, new, rounding, rows, saved in (("trained", base, TOKENS[:3], None, 515, ["embed_tokens", "lm_head"]), ("frozen", base, TOKENS[:3], 64, 576, None),
                                                      ("cut", wide, [], None, 516, None)):
            with self.subTest(name):
                model, tokenizers = classes(of)
                tokenizer, whole = tokenizers.from_pretrained(of), model.from_pretrained(of, dtype=torch.float32)
                if new:
                    tokenizer.add_special_tokens({"extra_special_tokens": new})
                whole.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=rounding)
                adapted = get_peft_model(whole, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"], modules_to_save=saved))
                with torch.no_grad():
                    for value in adapted.parameters():
                        if value.requires_grad:
                            value.add_(0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(value.numel())))
                adapter = self.folder / f"adapter_{name}"
                adapted.save_pretrained(adapter)
                tokenizer.save_pretrained(adapter)
                ids = make_id_rows(self.folder / f"{name}.jsonl", vocab=len(tokenizer))
                words = ["eval", "--model", of, "--adapters", adapter, "--dataset", ids, "--predict_with_generate", "false", "--torch_dtype", "float32", "--json"]
                wanted = loss_of(adapted.eval(), ids)
                for given in ([], ["--new_special_tokens", *new])[:2 if new else 1]:
                    done = self.lockstep(*words, *given, expect=0)
                    self.assertAlmostEqual(json.loads(done.stdout)["loss"], wanted, delta=2e-4)
                    self.assertEqual("tokens that the model's has not" in done.text, bool(new) and not given, done.text)
                merged = self.folder / f"merged_{name}"
                self.lockstep("export", "--model", of, "--adapters", adapter, "--output_dir", merged, *(["--new_special_tokens", *new] if new else []), expect=0)
                self.assertEqual(json.loads((merged / "config.json").read_text())["vocab_size"], rows)
                self.assertAlmostEqual(loss_of(model.from_pretrained(merged, dtype=torch.float32).eval(), ids), wanted, delta=2e-4)

    def test_answers_show_them_unless_they_are_asked_not_to(self):
        base, out = make_model(self.folder, "qwen2"), self.folder / "learnt"
        rows = self.folder / "one.jsonl"
        rows.write_text(json.dumps({"query": "Where?", "response": "<box>1</box>"}) + "\n")
        self.lockstep(*sft_words(base, rows, out, steps=60, new_special_tokens="<box>", learning_rate="3e-3", per_device_train_batch_size=1), "</box>",
                      expect=0)
        figures = {}
        for skip, words in (("true", ("--skip_special_tokens", "true")), ("false", ())):
            done = self.lockstep("eval", "--model", out / "checkpoint-60", "--dataset", rows, *words, "--json", expect=0)
            figures[skip] = json.loads(done.stdout)
            answers = self.folder / f"answers_{skip}.jsonl"
            self.lockstep("infer", "--model", out / "checkpoint-60", "--val_dataset", rows, "--result_path", answers, *words, expect=0)
            self.assertEqual(json.loads(answers.read_text())["response"], "1" if skip == "true" else "<box>1</box>")
        self.assertEqual([figures[skip]["exact_match"] for skip in ("true", "false")], [0, 1])

    def test_a_sentencepiece_model(self):
        """Its tokens have no file of numbers of its own: added_tokens.json is made, or added_tokens_decoder grows."""
        source = FIXTURES / "oracle" / "odd" / "llava" / "checkpoint"
        base = self.folder / "pieces"
        shutil.copytree(source, base)
        (base / "tokenizer.json").unlink()
        new = self.given(base, "pieces_new")
        told = self.lockstep("inspect", new, "--json", expect=0)
        old = self.lockstep("inspect", base, "--json", expect=0)
        self.assertEqual(json.loads(told.stdout)["tokenizer"]["tokens"], json.loads(old.stdout)["tokenizer"]["tokens"] + len(TOKENS))

    def test_what_can_be_none_is_named(self):
        base = make_model(self.folder, "qwen2")
        for words, told in ((["  "], "--new_special_tokens: expected a text"), (["<x>", "no_such.txt"], "--new_special_tokens no_such.txt: expected a file")):
            done = self.lockstep("export", "--model", base, "--new_special_tokens", *words, "--output_dir", self.folder / "none", expect=2)
            self.assertIn(told, done.stderr)
            self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""tools/flag_pages.py [--check]     writes docs/from_ms_swift.md and docs/from_llama_factory.md from the table of flags

With --check it writes nothing and fails where a page is not what the table makes of it.
"""
import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src" / "lockstep" / "dialect" / "flag_table.txt"
RULES = {  # what rules do, in a word
    "torch_dtype": "`--torch_dtype`, with bf16, fp16, fp32, AUTO too", "half": "`--torch_dtype` where no other flag says it", "model": "`--model`, or `--adapters` where it is one",
    "adapter_list": "`--adapters`; several, one over the other, are refused", "quantization_bit": "`--quant_method bnb --quant_bits`", "model_kwargs": "variables of the environment",
    "dataset": "`--dataset`; LLaMA-Factory's names are separated by commas", "val_names": "`--val_dataset`", "dataset_dir": "`--dataset_dir`; ONLINE and REMOTE: are refused",
    "media_size": "`--max_pixels`, and MIN_PIXELS, FPS, FPS_MAX_FRAMES, VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS",
    "finetuning_type": "`--tuner_type`: lora, full, freeze (full of some layers)", "freeze_layers": "the flag of that name, where finetuning_type is freeze", "stage": "sft and pt; rm, ppo, dpo, kto are refused", "target_names": "`--target_modules`, with ALL, DEFAULT, EMBEDDING", "target_list": "`--target_modules`, all is all-linear",
    "save_list": "`--modules_to_save`", "freeze": "`--freeze_vit`, `--freeze_aligner`, `--freeze_llm`", "pissa_init": "`--init_weights pissa`", "deepspeed": "`--deepspeed`, with ms-swift 2's names", "fsdp": "zero3, zero2 or zero0 by its words",
    "accelerate_config": "stage, offloading, dtype and ranks of `accelerate config`'s file", "crop_to_patches": "MAX_NUM=12 of InternVL; without it a picture is one tile", "template_name": "nothing: the chat template of the checkpoint is used", "train_on_prompt": "`--loss_scale all`", "mask_history": "`--loss_scale last_answer`", "packing": "`--packing`; rows never see each other",
    "truncation": "`--truncation_strategy`; split is for training and `eval`", "optim": "AdamW by any of its names (adamw_torch, adamw_torch_fused, paged_adamw_32bit and their like); others are refused", "find_batch": "`--per_device_train_batch_size auto`", "warmup": "`--warmup_steps`, below 1 `--warmup_ratio`", "load_data_args": "`--val_dataset` of the checkpoint's args.json, or the rows that `--split_dataset_ratio` kept apart",
    "conversation": "`--conversation plain`; v1 and mistral_instruct are the templates that there are", "recompute": "`--gradient_checkpointing`", "quant_storage": "no number depends on it; `export` writes uint8",
    "do_sample": "`--temperature 0`, or 1", "temperature": "`--temperature`; nothing where do_sample is false", "lora_dtype": "float32, which is what adapters are kept in", "system": "`--system`; an empty one changes nothing, and is told of",
    "answer_length": "nothing: `--max_new_tokens` bounds answers, `--cutoff_len` (`--max_length`) rows", "packing_strategy": "`--packing_strategy`: binpack is best_fit", "sampling_strategy": "`--group_by_length`, `--dataset_shuffle`",
    "tuned_part": "`--freeze_vit`, `--freeze_aligner`, `--freeze_llm` the other way round", "attention_adapters": "`--tuner_type lora` on q_proj, k_proj, v_proj and o_proj", "data_sets_used": "`--dataset`, and what Qwen-VL's script does where nothing is said",
    "pixel_limits": "MAX_PIXELS and MIN_PIXELS beside dataset_use, else `--max_pixels`", "frame_limits": "FPS_MAX_FRAMES, FPS_MIN_FRAMES",
    "meta_path": "`--dataset` and `--custom_dataset_info`, MAX_NUM", "tiles": "MAX_NUM of InternVL; without dynamic_image_size a picture is one tile", "tile_size": "INPUT_SIZE of InternVL",
    "row_length": "`--max_length`, `--truncation_strategy right`", "llm_adapters": "`--tuner_type lora` (lora_llm where the tower or the projector is trained), with this rank and twice of it", "frozen_llm": "`--freeze_llm`; nothing beside use_llm_lora",
    "loader_order": "`--dataset_shuffle`: a new order each epoch, or that of the files",
}
HEADS = {
    "from_ms_swift": ("ms-swift", ["swift", "*", "hf"], """# From ms-swift

`swift sft …` becomes `lockstep sft …`: the flags keep their names, defaults and spellings (bare booleans, `True`, `2e8`, `None`, `--no_x`, hyphens,
`--a=b`, lists and dicts of Python). Those of ms-swift 2 and 3 are understood; where nothing is said version 4's defaults count for them too (3 epochs,
no limit of length, no warm-up, where version 2 had one epoch, 2048 tokens, 0.05), and a notice says so. A file of flags may come first, or behind
`--config`, with `ENV` in it. What was understood is told at the head of a run, and `lockstep plan` with the same words tells it without one.
`lockstep migrate sft.sh` writes a script as one commented YAML.

Without `--tuner_type` adapters are trained, at a rate of 1e-4, as ms-swift does. Models and data sets are local folders and files. `rlhf`, `deploy`,
`app`, `rollout`, `sample`, `web-ui` and `megatron` are refused by name. Without `--metric_for_best_model` the lowest loss is the best also where
answers are generated, which ms-swift then judges by `rouge-l`.

An empty `"system"` of a row is as none: the chat template writes its own message where it has one, as in LLaMA-Factory; ms-swift writes none.
Two turns of one side behind one another stay two (ms-swift joins them), and a notice names the first such row of a file.

An answer ends with its stop token here. ms-swift learns the line break behind `<|im_end|>` too, one easy token a turn, so that its losses are lower for
the same weights. It breaks the line behind every picture of InternVL; here a picture that a text marks stays as it is written. Pictures of Qwen's families have the size, the
filter and the budget of the folder's own processor, where ms-swift has those of qwen_vl_utils (Pillow's bicubic filter, 16384 tokens at most), and are
turned upright by their EXIF orientation, which ms-swift does not look at.
"""),
    "from_llama_factory": ("LLaMA-Factory", ["lf", "*", "hf"], """# From LLaMA-Factory

`llamafactory-cli train FILE.yaml` becomes `lockstep train FILE.yaml`, with `key=value` or `--key value` behind it; `export` and `chat` (here `infer`)
likewise. Where a file names its model by `model_name_or_path`, the defaults are LLaMA-Factory's: AdamW of the HF Trainer (5e-5, linear, no decay), 8 rows
a rank, LoRA with alpha twice the rank, 2048 tokens, pictures of at most 768 × 768 pixels. They are told at the head of a run. Data sets are names in
`dataset_dir`/dataset_info.json, or files.

A row that is longer than `cutoff_len` loses of each question and answer in proportion (`--truncation_strategy turns`), as there; what stands for media is
never cut. `stage: pt` cuts longer texts into several rows (`--truncation_strategy split`), in training and evaluation, so that nothing of them is lost; rows
that share a bin never see each other, where LLaMA-Factory's blocks run on. Rows that are streamed are not looked at beforehand, and not cut so. A
`warmup_stable_decay` whose `lr_scheduler_kwargs` do not say so stays for a third of the steps behind its warm-up and falls for the rest.

Pictures and frames are brought to `image_max_pixels`, `image_min_pixels`, `video_max_pixels`, `video_min_pixels` by Pillow's bicubic filter before a model's own
processor takes them, as they are stored (an EXIF orientation turns none), and a film has `video_fps` frames a second, `video_maxlen` at most, for every family
(`MEDIA_AS=llama_factory`). Palettes and transparency become RGB before that, there behind it. A run goes on with the
last checkpoint in its `output_dir` unless `overwrite_output_dir` is true. `do_eval` without a strategy measures once, at the end.

Two things are not as there: `quantization_bit` leaves towers and projectors as they are, and a step's loss is the mean over its tokens, where models with
pictures have the mean of their micro-batches' means. Sound is brought to its rate by soxr, there by torchaudio's filter, and a clip that is longer than
the model reads is left out, there cut.
"""),
}


def rows():
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|", 4)]
            yield parts + [""] * (5 - len(parts))


def page(stack):
    _, tags, head = HEADS[stack]
    seen, groups = set(), collections.OrderedDict((name, []) for name in ("taken", "none", "only"))
    table = list(rows())
    for tag in tags:
        for stacks, _, names, does, why in table:
            if tag not in stacks.split():
                continue
            effect, *target = does.split()
            for name in names.split():
                if name in seen:
                    continue
                seen.add(name)
                if effect == "none":
                    groups["none"].append((name, why))
                elif effect == "only":
                    groups["only"].append((name, f"{why} (no difference: {', '.join(target)})" if target else why))
                else:
                    meaning = {"own": "", "as": f"`--{target[0]}`" if target else "", "not": f"`--{target[0]}` the other way round" if target else ""}
                    groups["taken"].append((name, meaning[effect] if effect in meaning else RULES.get(target[0], "")))
    out = [head, "Made from [the table](../src/lockstep/dialect/flag_table.txt) by `tools/flag_pages.py`.", ""]
    own = sorted(name for name, meaning in groups["taken"] if not meaning)
    out += ["## Taken under their names", "", ", ".join(f"`{name}`" for name in own), "", "## Taken as", "", "| flag | here |", "| --- | --- |"]
    out += [f"| `{name}` | {meaning} |" for name, meaning in sorted(groups["taken"]) if meaning]
    for kind, title in (("none", "Make no difference"), ("only", "Refused, but for the values that ask for nothing")):
        by_why = collections.OrderedDict()
        for name, why in groups[kind]:
            by_why.setdefault(why, []).append(name)
        out += ["", f"## {title}", "", "| flags | because |" if kind == "none" else "| flags | what there is instead |", "| --- | --- |"]
        out += [f"| {' '.join(f'`{name}`' for name in names)} | {why} |" for why, names in by_why.items()]
    return "\n".join(out) + "\n"


def main():
    wrong = []
    used = {target[0] for _, _, _, does, _ in rows() for effect, *target in [does.split()] if effect == "rule"}
    if stale := sorted(set(RULES) - used):
        sys.exit(f"tools/flag_pages.py: RULES speaks of what flag_table.txt has no more: {', '.join(stale)}")
    for stack in HEADS:
        file, text = ROOT / "docs" / f"{stack}.md", page(stack)
        if sys.argv[1:] == ["--check"]:
            if not file.exists() or file.read_text() != text:
                wrong.append(file.name)
        else:
            file.write_text(text)
    if wrong:
        sys.exit(f"docs/{', docs/'.join(wrong)}: not what flag_table.txt makes: python3 tools/flag_pages.py")


if __name__ == "__main__":
    main()

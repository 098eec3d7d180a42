"""Configuration files of LLaMA-Factory 0.9.6 (its examples/), key for key. The test puts in model, adapter and folders; names of data sets stay.

DATA_INFO is what such a user has as data/dataset_info.json, where dataset_dir points if nothing else is said.
"""
import json

MODEL = {"model_name_or_path": "MODEL", "trust_remote_code": True}
PLACE = {"output_dir": "OUT", "overwrite_output_dir": True}
STEPS = {**PLACE, "logging_steps": 10, "save_steps": 500, "plot_loss": True, "save_only_model": False, "report_to": "none",
         "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "learning_rate": 1.0e-4, "num_train_epochs": 3.0,
         "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "bf16": True, "ddp_timeout": 180000000, "resume_from_checkpoint": None}
ROWS = {"dataset": "identity,alpaca_en_demo", "template": "qwen3_nothink", "cutoff_len": 2048, "max_samples": 1000, "preprocessing_num_workers": 16,
        "dataloader_num_workers": 4}
LORA = {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "all"}
TRAIN = {**MODEL, "stage": "sft", "do_train": True, **LORA, **ROWS, **STEPS}
FREEZE = {"freeze_vision_tower": True, "freeze_multi_modal_projector": True, "freeze_language_model": False}
PICTURES = {"image_max_pixels": 262144, "video_max_pixels": 16384}
SEES = {**PICTURES, "dataset": "mllm_demo,identity,alpaca_en_demo", "template": "qwen3_vl_nothink"}
FILMS = {"video_fps": 1.0, "video_maxlen": 256, "dataset": "mllm_demo,identity,alpaca_en_demo", "template": "moss_vl", "cutoff_len": 4096,
         "packing": False, "gradient_accumulation_steps": 1}
CHAT = {**MODEL, "template": "qwen3_nothink", "infer_backend": "huggingface"}
MERGE = {**MODEL, "template": "qwen3_nothink", "export_dir": "MERGED", "export_size": 5, "export_device": "cpu", "export_legacy_format": False}
PREFERENCES = {"pref_beta": 0.1, "learning_rate": 5.0e-6}


def without(content, *keys):
    return {key: value for key, value in content.items() if key not in keys}


def full(content):
    """Every weight of the language model, on ZeRO-3."""
    content = {**content, "finetuning_type": "full", "deepspeed": "DS F ds_z3", "gradient_accumulation_steps": 2, "learning_rate": 1.0e-5}
    return without(content, "lora_rank", "lora_target")


def file(name, family, content, verb="train", says=None, ending="yaml", plan=""):
    """`says`: what the refusal says; None: it runs, and `plan` is in what `lockstep plan` tells of it."""
    return {"name": name, "family": family, "verb": verb, "content": content, "runs": says is None, "says": says or "", "ending": ending,
            "plan": plan}


PREPROCESS = {**MODEL, "stage": "sft", "do_train": True, **LORA, **without(ROWS, "dataloader_num_workers"), "tokenized_path": "saves/dataset/sft",
              **PLACE}
NO_REWARDS = "rewards and preferences are not trained here"
LLAMA = {**without(TRAIN, "resume_from_checkpoint"), "template": "llama3"}
FILES = [
    file("qwen3_full_sft", "qwen3", full(TRAIN), plan="1.1M parameters, 1.1M trained · 1 rank · zero3 · compute bfloat16"),
    file("qwen3vl_full_sft", "qwen2_5_vl", full({**TRAIN, **SEES, **FREEZE}),
         plan="918.6K parameters, 648.8K trained · 1 rank · zero3 · compute bfloat16"),
    file("mossvl_full_sft", "qwen2_5_vl", {**full({**TRAIN, **SEES, **FREEZE}), **FILMS, "use_reentrant_gc": False, "gradient_checkpointing": True,
                                           "gradient_checkpointing_kwargs": {"use_reentrant": False}}, plan="bfloat16, activations recomputed"),
    file("qwen3_lora_sft", "qwen3", TRAIN, plan="1.2M parameters, 87.0K trained · 1 rank · zero3 · compute bfloat16"),
    file("qwen3_lora_sft_ds3", "qwen3", {**TRAIN, "deepspeed": "DS F ds_z3", "gradient_accumulation_steps": 2}, ending="json"),
    file("qwen3_lora_pretrain", "qwen3", without({**TRAIN, "stage": "pt", "dataset": "c4_demo"}, "template")),
    file("qwen3vl_lora_sft", "qwen2_5_vl", {**TRAIN, **SEES}),
    file("mossvl_lora_sft", "qwen2_5_vl", {**TRAIN, **SEES, **FREEZE, **FILMS, "per_device_train_batch_size": 2}, ending="json"),
    file("qwen3_lora_sft_otfq", "qwen3", {**without(TRAIN, "resume_from_checkpoint"), "quantization_bit": 4, "quantization_method": "bnb"}),
    file("qwen3_lora_sft_bnb_npu", "qwen3", {**without(TRAIN, "resume_from_checkpoint"), "quantization_bit": 4, "quantization_method": "bnb",
                                             "double_quantization": False}),
    file("merge qwen3_lora_sft", "qwen3", {**MERGE, "adapter_name_or_path": "ADAPTER"}, "export"),
    file("merge qwen3vl_lora_sft", "qwen2_5_vl", {**MERGE, "adapter_name_or_path": "ADAPTER", "template": "qwen3_vl_nothink"}, "export",
         ending="json"),
    file("merge mossvl_lora_sft", "qwen2_5_vl", {**MERGE, "adapter_name_or_path": "ADAPTER", "template": "moss_vl"}, "export"),
    file("merge qwen3_full_sft", "qwen3", MERGE, "export", ending="json"),
    file("infer qwen3", "qwen3", CHAT, "infer"),
    file("infer qwen3vl", "qwen2_5_vl", {**CHAT, "template": "qwen3_vl_nothink"}, "infer"),
    file("infer qwen3_full_sft", "qwen3", CHAT, "infer", ending="json"),
    file("infer qwen3_lora_sft", "qwen3", {**CHAT, "adapter_name_or_path": "ADAPTER"}, "infer"),
    file("infer mossvl", "qwen2_5_vl", {**CHAT, "template": "moss_vl"}, "infer"),
    file("qwen3_lora_dpo", "qwen3", {**TRAIN, **PREFERENCES, "stage": "dpo", "pref_loss": "sigmoid", "dataset": "dpo_en_demo"},
         says="--stage dpo: " + NO_REWARDS),
    file("qwen3_lora_kto", "qwen3", without({**TRAIN, **PREFERENCES, "stage": "kto", "dataset": "kto_en_demo"}, "resume_from_checkpoint",
                                            "save_only_model"),
         says="--stage kto: " + NO_REWARDS),
    file("qwen3_lora_reward", "qwen3", {**TRAIN, "stage": "rm", "dataset": "dpo_en_demo"}, says="--stage rm: " + NO_REWARDS, ending="json"),
    file("qwen3vl_lora_dpo", "qwen2_5_vl", {**TRAIN, **SEES, **PREFERENCES, "stage": "dpo", "pref_loss": "sigmoid", "dataset": "rlhf_v"},
         says="--stage dpo: " + NO_REWARDS),
    file("qwen3_lora_sft_ray", "qwen3", {**TRAIN, "dataset_dir": "REMOTE:llamafactory/demo_data", "ray_num_workers": 4},
         says="--dataset_dir REMOTE:llamafactory/demo_data: "),
    file("qwen3_lora_sft_ray with files", "qwen3", {**TRAIN, "ray_num_workers": 4}, says="--ray_num_workers 4: "),
    file("qwen3_preprocess", "qwen3", PREPROCESS, says="--tokenized_path saves/dataset/sft: "),
    file("llama3_lora_sft_aqlm", "aqlm", LLAMA, says="aqlm"),
    file("llama3_lora_sft_awq", "awq", LLAMA, says="awq"),
    file("llama3_lora_sft_gptq", "gptq", LLAMA, says="gptq"),
    file("merge qwen3_gptq", "qwen3", {**MERGE, "export_quantization_bit": 4, "export_quantization_dataset": "data/c4_demo.jsonl"}, "export",
         says="--export_quantization_bit 4: "),
    file("a file of hqq", "qwen3", {**TRAIN, "quantization_bit": 4, "quantization_method": "hqq"}, says="--quantization_method hqq: "),
    file("a file of freeze", "qwen3", {**TRAIN, "finetuning_type": "freeze"}, plan="1.1M parameters, 467.7K trained · 1 rank · zero3 · compute bfloat16"),
    file("a file of oft", "qwen3", {**TRAIN, "finetuning_type": "oft"}, says="--finetuning_type oft: "),
]

# extras/nlg_eval: answers to rows, and how near they are; LLaMA-Factory has it as another `train`.
PREDICT = {**MODEL, "adapter_name_or_path": "ADAPTER", "stage": "sft", "do_predict": True, "finetuning_type": "lora",
           "eval_dataset": "identity,alpaca_en_demo", "template": "llama3", "cutoff_len": 2048, "max_samples": 50, "overwrite_cache": True,
           "preprocessing_num_workers": 16, "dataloader_num_workers": 4, **PLACE, "report_to": "none", "per_device_eval_batch_size": 1,
           "predict_with_generate": True, "ddp_timeout": 180000000}

# What train_lora/qwen3_lora_sft.sh says as flags; None: a bare one.
FLAGS = {**without(TRAIN, "resume_from_checkpoint"), **dict.fromkeys(("trust_remote_code", "do_train", "plot_loss", "overwrite_output_dir", "bf16"))}

PICTURED = {"formatting": "sharegpt", "columns": {"messages": "messages", "images": "images"},
            "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}
DATA_INFO = {"identity": {"file_name": "identity.json"}, "alpaca_en_demo": {"file_name": "alpaca_en_demo.json"},
             "mllm_demo": {"file_name": "mllm_demo.json", **PICTURED}, "c4_demo": {"file_name": "c4_demo.jsonl", "columns": {"prompt": "text"}}}


def write_data(folder, pictured):
    """Rows under those names; `pictured`: rows with pictures, as messages."""
    folder.mkdir()
    (folder / "dataset_info.json").write_text(json.dumps(DATA_INFO))
    for name in ("identity", "alpaca_en_demo"):
        (folder / f"{name}.json").write_text(json.dumps([{"instruction": f"Say {i}.", "input": "", "output": f"number {i}"} for i in range(12)]))
    (folder / "mllm_demo.json").write_text(json.dumps(pictured))
    (folder / "c4_demo.jsonl").write_text("".join(json.dumps({"text": f"Once there were {i} cats. " * 3}) + "\n" for i in range(20)))


def yaml_text(content):
    """A flat map, and maps in it, as people write them."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {name}: {scalar(one)}" for name, one in value.items())]
        else:
            lines.append(f"{key}: {scalar(value)}" + ("  # choices: [none, wandb, tensorboard]" if key == "report_to" else ""))
    return "### model\n" + "\n".join(lines) + "\n"


def scalar(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.1e}" if isinstance(value, float) and value < 0.001 else str(value)

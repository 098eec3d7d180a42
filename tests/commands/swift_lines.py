"""Command lines of ms-swift 4 as its examples have them (docs/from_ms_swift.md): models, data sets and adapters are put in by the test.

B is what most of them share; a line replaces or adds, and takes out. `runs` is False where Lockstep refuses it by name: then `says` is in the message.
"""
B = {"load_from_cache_file": "true", "split_dataset_ratio": "0.01", "tuner_type": "lora", "torch_dtype": "bfloat16", "num_train_epochs": "1",
     "per_device_train_batch_size": "1", "per_device_eval_batch_size": "1", "learning_rate": "1e-4", "lora_rank": "8", "lora_alpha": "32",
     "target_modules": "all-linear", "freeze_vit": "true", "freeze_aligner": "true", "gradient_accumulation_steps": "16", "eval_steps": "50",
     "save_steps": "50", "save_total_limit": "2", "logging_steps": "5", "max_length": "2048", "output_dir": "output", "warmup_ratio": "0.05",
     "dataloader_num_workers": "4"}
LORA = ("lora_rank", "lora_alpha", "target_modules")
VIDEO = {"VIDEO_MAX_PIXELS": "50176", "FPS_MAX_FRAMES": "12"}
PIXELS = {"MAX_PIXELS": "1003520"}


def line(name, family="qwen2_5_vl", verb="sft", env=None, without=(), base=B, runs=True, says="", data="rows.jsonl", more=(), **changes):
    flags = {key: value for key, value in {**base, **changes}.items() if key not in without}
    return {"name": name, "family": family, "verb": verb, "env": env or {}, "flags": flags, "runs": runs, "says": says, "data": data, "more": list(more)}


LINES = [
    line("ocr", env=PIXELS, data="rows.jsonl#20000", max_length="4096"),
    line("grounding", env=PIXELS, eval_steps="100", save_steps="100", dataset_num_proc="4"),
    line("video", env=VIDEO, gradient_accumulation_steps="8", deepspeed="zero2"),
    line("omni", "qwen2_5_omni", env={"ENABLE_AUDIO_OUTPUT": "1", **VIDEO, **PIXELS}, gradient_accumulation_steps="4", deepspeed="zero2"),
    line("vit_gradient_checkpointing", env=VIDEO, without=LORA, tuner_type="full", per_device_train_batch_size="4", per_device_eval_batch_size="4",
         learning_rate="1e-5", freeze_vit="false", freeze_aligner="false", gradient_accumulation_steps="1", gradient_checkpointing="true",
         vit_gradient_checkpointing="true", eval_steps="100", save_steps="100", deepspeed="zero3", use_liger_kernel="true", attn_impl="flash_attn",
         padding_free="true", save_only_model="true"),
    line("lora_llm_full_vit", env=PIXELS, without=("target_modules", "freeze_vit", "freeze_aligner"), tuner_type="lora_llm", vit_lr="1e-5",
         aligner_lr="1e-5", lora_rank="16", gradient_accumulation_steps="4", max_length="8192", dataset_num_proc="4", deepspeed="zero2", save_only_model="true"),
    line("seq_cls", without=("target_modules", "freeze_vit", "freeze_aligner"), tuner_type="lora_llm", num_labels="265", task_type="seq_cls", runs=False,
         says="heads for classes"),
    line("internvl3", "internvl", max_length="4096", dataset_num_proc="4"),
    line("minicpmv", "minicpm_v_2_6", dataset_num_proc="4"),
    line("device_map", env=PIXELS, eval_steps="100", save_steps="100"),
    line("packing", env=PIXELS, without=("freeze_vit", "freeze_aligner"), attn_impl="flash_attn", packing="true", num_train_epochs="3",
         gradient_accumulation_steps="1", max_length="8192", dataset_num_proc="8", deepspeed="zero2"),
    line("streaming", env=PIXELS, without=("load_from_cache_file", "split_dataset_ratio", "num_train_epochs", "freeze_vit", "freeze_aligner", "eval_steps", "save_steps"),
         attn_impl="flash_attn", streaming="true", shuffle_buffer_size="1000", packing="true", save_strategy="epoch", max_steps="1000", max_epochs="5",
         gradient_accumulation_steps="1", max_length="8192", dataloader_num_workers="1", dataset_num_proc="8", deepspeed="zero2"),
    line("predict_with_generate", env=PIXELS, per_device_eval_batch_size="2", predict_with_generate="true", metric_for_best_model="rouge-l",
         greater_is_better="true"),
    line("gptq", family="gptq", runs=False, says="gptq"),
    line("rapidly", without=("per_device_eval_batch_size", *LORA), model_type="qwen2_5_vl", tuner_type="full", attn_impl="flash_attn", freeze_llm="true",
         freeze_aligner="false", num_train_epochs="3", per_device_train_batch_size="2", learning_rate="5e-6", gradient_accumulation_steps="8", eval_steps="-1",
         save_steps="1000", save_total_limit="10", max_length="8192", dataset_num_proc="8", deepspeed="zero2"),
    line("cached_dataset", "qwen2_5_omni", without=("load_from_cache_file", "split_dataset_ratio", *LORA), env={"ENABLE_AUDIO_OUTPUT": "0"}, tuner_type="full",
         cached_dataset="./cached/train", cached_val_dataset="./cached/val", packing="true", runs=False, says="--cached_dataset"),
    line("moss_vl", without=("load_from_cache_file", *LORA), env={"VIDEO_MIN_PIXELS": "256", "VIDEO_MAX_PIXELS": "16384", "FPS": "1", "FPS_MAX_FRAMES": "256"},
         use_hf="true", tuner_type="full", attn_impl="eager", packing="false", learning_rate="1e-5", freeze_llm="false", freeze_vit="false",
         freeze_aligner="false", gradient_accumulation_steps="2", gradient_checkpointing="true", vit_gradient_checkpointing="true",
         gradient_checkpointing_kwargs='{"use_reentrant": false}', max_length="4096", max_pixels="262144", deepspeed="zero3", dataset_num_proc="4"),
    line("dpo lora", verb="rlhf", rlhf_type="dpo", rpo_alpha="0.1", runs=False, says="rewards and preferences"),
    line("dpo full", verb="rlhf", rlhf_type="dpo", rpo_alpha="0.1", tuner_type="full", runs=False, says="rewards and preferences"),
    line("infer adapters", verb="infer", base={}, env=PIXELS, adapters="ADAPTER", stream="true", load_data_args="true", max_new_tokens="2048"),
    line("infer", verb="infer", base={}, env={**PIXELS, **VIDEO}, model="MODEL", stream="true", infer_backend="transformers", max_new_tokens="2048"),
    line("infer val_dataset", verb="infer", base={}, env={**PIXELS, "NPROC_PER_NODE": "2"}, model="MODEL", infer_backend="transformers", val_dataset="DATA"),
    line("merge_lora", verb="export", base={}, adapters="ADAPTER", merge_lora="true"),
    line("bnb", verb="export", base={}, model="MODEL", quant_method="bnb", quant_bits="4", output_dir="BNB-Int4"),
    line("deploy", verb="deploy", base={}, model="MODEL", infer_backend="vllm", vllm_gpu_memory_utilization="0.9", vllm_max_model_len="8192",
         vllm_limit_mm_per_prompt='{"image": 5, "video": 2}', served_model_name="x", runs=False, says="there is no server here"),
]

# The same in the words of earlier generations.
OLDER = [
    ["sft", "--model_id_or_path", "MODEL", "--sft_type", "lora", "--template_type", "qwen2-vl", "--dtype", "AUTO", "--custom_train_dataset_path", "DATA",
     "--dataset_test_ratio", "0.1", "--batch_size", "1", "--lora_target_modules", "ALL", "--lora_rank", "4", "--lora_dropout_p", "0.05",
     "--acc_steps", "2", "--use_flash_attn", "false", "--only_save_model", "true", "--save_total_limit", "-1", "--check_dataset_strategy", "warning",
     "--deepspeed", "default-zero2", "--train_dataset_sample", "-1", "--preprocess_num_proc", "2"],
    ["sft", "--model", "MODEL", "--train_type", "lora", "--dataset", "DATA", "--torch_dtype", "bfloat16", "--init_weights", "True", "--report_to", "tensorboard"],
]

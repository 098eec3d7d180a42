"""Command lines and files of LLaVA, MiniCPM-V, LLaMA-Factory, DeepSpeed and accelerate, as their repositories have them, in words of our own tests."""
import json

LLAVA = ["--deepspeed", "ZERO2", "--model_name_or_path", "MODEL", "--version", "plain", "--data_path", "DATA", "--image_folder", "FOLDER", "--mm_projector_type",
         "mlp2x_gelu", "--mm_vision_select_layer", "-2", "--mm_use_im_start_end", "False", "--mm_use_im_patch_token", "False", "--bf16", "True", "--output_dir",
         "OUT", "--num_train_epochs", "1", "--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "4", "--gradient_accumulation_steps", "1",
         "--evaluation_strategy", "no", "--save_strategy", "steps", "--save_steps", "24000", "--save_total_limit", "1", "--learning_rate", "1e-3", "--weight_decay",
         "0.", "--warmup_ratio", "0.03", "--lr_scheduler_type", "cosine", "--logging_steps", "1", "--tf32", "True", "--model_max_length", "2048",
         "--gradient_checkpointing", "True", "--dataloader_num_workers", "4", "--lazy_preprocess", "True"]
FINETUNE = ["--image_aspect_ratio", "pad", "--group_by_modality_length", "True"]
MINICPM = ["--model_name_or_path", "MODEL", "--llm_type", "qwen", "--data_path", "DATA", "--eval_data_path", "DATA", "--remove_unused_columns", "false", "--label_names",
           "labels", "--prediction_loss_only", "false", "--bf16", "true", "--bf16_full_eval", "true", "--fp16", "false", "--fp16_full_eval", "false", "--do_train",
           "--do_eval", "--tune_vision", "true", "--tune_llm", "false", "--model_max_length", "2048", "--max_slice_nums", "9", "--max_steps", "10000", "--eval_steps",
           "1000", "--output_dir", "OUT", "--logging_dir", "OUT", "--logging_strategy", "steps", "--per_device_train_batch_size", "1", "--per_device_eval_batch_size",
           "1", "--gradient_accumulation_steps", "1", "--eval_strategy", "steps", "--save_strategy", "steps", "--save_steps", "1000", "--save_total_limit", "10",
           "--learning_rate", "1e-6", "--weight_decay", "0.1", "--adam_beta2", "0.95", "--warmup_ratio", "0.01", "--lr_scheduler_type", "cosine", "--logging_steps",
           "1", "--gradient_checkpointing", "true", "--deepspeed", "ZERO3", "--report_to", "tensorboard"]
SCRIPTS = [
    ("LLaVA pretrain", "llava_original", [*LLAVA, "--tune_mm_mlp_adapter", "True"]),
    ("LLaVA finetune", "llava_original", [*LLAVA, *FINETUNE]),
    ("LLaVA finetune_lora", "llava_original", [*LLAVA, *FINETUNE, "--lora_enable", "True", "--lora_r", "128", "--lora_alpha", "256", "--mm_projector_lr", "2e-5"]),
    ("MiniCPM finetune_ds", "minicpm_v_2_6", MINICPM),
    ("MiniCPM finetune_lora", "minicpm_v_2_6", [*MINICPM, "--use_lora", "true", "--lora_target_modules",
                                                "llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj|o_proj)"]),
]

FACTORY = {"model_name_or_path": "MODEL", "trust_remote_code": True, "stage": "sft", "do_train": True, "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
           "dataset": "DATA", "template": "qwen3_nothink", "cutoff_len": 2048, "max_samples": 1000, "preprocessing_num_workers": 16, "dataloader_num_workers": 4,
           "output_dir": "OUT", "logging_steps": 10, "save_steps": 500, "plot_loss": True, "overwrite_output_dir": True, "save_only_model": False,
           "report_to": "none", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "learning_rate": 1.0e-4, "num_train_epochs": 3.0,
           "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "bf16": True, "ddp_timeout": 180000000, "resume_from_checkpoint": None}
FULL = {**{key: value for key, value in FACTORY.items() if not key.startswith("lora_")}, "finetuning_type": "full", "deepspeed": "ZERO3", "learning_rate": 1.0e-5}
VISION = {"image_max_pixels": 262144, "video_max_pixels": 16384}
FACTORY_FILES = [
    ("qwen3_full_sft", "qwen2", FULL, True), ("qwen3vl_full_sft", "qwen2_5_vl", {**FULL, **VISION, "freeze_vision_tower": True, "freeze_multi_modal_projector": True,
                                                                            "freeze_language_model": False}, True),
    ("qwen3_lora_sft", "qwen2", FACTORY, True), ("qwen3_lora_sft_ds3", "qwen2", {**FACTORY, "deepspeed": "ZERO3"}, True),
    ("qwen3vl_lora_sft", "qwen2_5_vl", {**FACTORY, **VISION}, True),
    ("qwen3_lora_sft_otfq", "qwen2", {**FACTORY, "quantization_bit": 4, "quantization_method": "bnb"}, True),
    ("qwen3_lora_sft_bnb_npu", "qwen2", {**FACTORY, "quantization_bit": 4, "quantization_method": "bnb", "double_quantization": False}, True),
    ("qwen3_lora_dpo", "qwen2", {**FACTORY, "stage": "dpo", "pref_beta": 0.1, "pref_loss": "sigmoid"}, False),
    ("qwen3_lora_kto", "qwen2", {**FACTORY, "stage": "kto", "pref_beta": 0.1}, False),
    ("qwen3_lora_reward", "qwen2", {**FACTORY, "stage": "rm"}, False),
    ("qwen3_preprocess", "qwen2", {**FACTORY, "tokenized_path": "saves/tokenized"}, False),
    ("qlora_aqlm", "qwen2", {**FACTORY, "quantization_bit": 4, "quantization_method": "aqlm"}, False),
    ("freeze", "qwen2", {**FACTORY, "finetuning_type": "freeze"}, False),
]

AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True, "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
                                                        "min_loss_scale": 1}, "bf16": {"enabled": "auto"}}
TWO = {"stage": 2, "allgather_partitions": True, "allgather_bucket_size": 5e8, "overlap_comm": True, "reduce_scatter": True, "reduce_bucket_size": 5e8,
       "contiguous_gradients": True, "round_robin_gradients": True}
THREE = {"stage": 3, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
         "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
         "stage3_gather_16bit_weights_on_model_save": True}
CPU = {"device": "cpu", "pin_memory": True}
BLOCKS = {"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}
DEEPSPEED_FILES = [
    ("z0", {**AUTO, "zero_optimization": {**TWO, "stage": 0}}, True), ("z2", {**AUTO, "zero_optimization": TWO}, True),
    ("z2_offload", {**AUTO, "zero_optimization": {**TWO, "offload_optimizer": CPU}}, True), ("z3", {**AUTO, "zero_optimization": THREE}, True),
    ("z3_offload", {**AUTO, **BLOCKS, "zero_optimization": {**THREE, "offload_optimizer": CPU, "offload_param": CPU}}, True),
    ("z3_comment", {**AUTO, "_comment": "ours", "zero_force_ds_cpu_optimizer": False, "steps_per_print": 2000, "wall_clock_breakdown": False,
                    "zero_optimization": {**THREE, "zero_quantized_weights": False, "zero_quantized_gradients": False,
                                          "offload_optimizer": {"device": "none", "pin_memory": True}}}, True),
    ("z2_autotp", {**AUTO, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": TWO}, False),
    ("an FSDP file", {"fsdp": "full_shard auto_wrap", "fsdp_config": {"reshard_after_forward": True}}, False),
]

ACCELERATE = {"compute_environment": "LOCAL_MACHINE", "debug": False, "downcast_bf16": "no", "machine_rank": 0, "main_training_function": "main",
              "mixed_precision": "bf16", "num_machines": 1, "num_processes": 2, "rdzv_backend": "static", "same_network": True, "tpu_env": [],
              "tpu_use_cluster": False, "tpu_use_sudo": False, "use_cpu": False}
FSDP = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True, "fsdp_state_dict_type": "FULL_STATE_DICT"}
ACCELERATE_FILES = [
    ("multi_gpu", {**ACCELERATE, "distributed_type": "MULTI_GPU"}, "zero0"),
    ("deepspeed 2", {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2, "zero3_init_flag": False, "offload_optimizer_device": "none",
                                                                                        "gradient_accumulation_steps": 1}}, "zero2"),
    ("deepspeed 3", {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3, "zero3_init_flag": True}}, "zero3"),
    ("fsdp", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_sharding_strategy": "FULL_SHARD"}}, "zero3"),
    ("fsdp2", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_version": 2, "fsdp_reshard_after_forward": True}}, "zero3"),
    ("fsdp2 kept", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_version": 2, "fsdp_reshard_after_forward": False}}, "zero2"),
    ("fsdp offload", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_offload_params": True}}, "zero2"),
]


def deepspeed_file(folder, name, content):
    path = folder / f"{name.replace(' ', '_')}.json"
    path.write_text(json.dumps(content))
    return path

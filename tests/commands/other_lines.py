"""Scripts of LLaVA and MiniCPM-V and files of accelerate, as their repositories have them. "DS name": one of deepspeed_files.py."""

LLAVA = ["--model_name_or_path", "MODEL", "--vision_tower", "TOWER", "--image_folder", "FOLDER", "--mm_projector_type",
         "mlp2x_gelu", "--mm_vision_select_layer", "-2", "--mm_use_im_start_end", "False", "--mm_use_im_patch_token", "False", "--bf16", "True",
         "--output_dir", "OUT", "--num_train_epochs", "1", "--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "4",
         "--gradient_accumulation_steps", "1", "--evaluation_strategy", "no", "--save_strategy", "steps", "--save_steps", "24000",
         "--save_total_limit", "1", "--learning_rate", "1e-3", "--weight_decay", "0.", "--warmup_ratio", "0.03", "--lr_scheduler_type", "cosine",
         "--logging_steps", "1", "--tf32", "True", "--model_max_length", "2048", "--gradient_checkpointing", "True", "--dataloader_num_workers", "4",
         "--lazy_preprocess", "True"]
FINETUNE = ["--deepspeed", "DS L zero3", "--version", "v1", "--data_path", "DATA", "--pretrain_mm_mlp_adapter", "PROJECTOR", "--image_aspect_ratio", "pad", "--group_by_modality_length", "True"]
MINICPM = ["--model_name_or_path", "MODEL", "--llm_type", "qwen", "--data_path", "DATA", "--eval_data_path", "DATA", "--remove_unused_columns",
           "false", "--label_names", "labels", "--prediction_loss_only", "false", "--bf16", "true", "--bf16_full_eval", "true", "--fp16", "false",
           "--fp16_full_eval", "false", "--do_train", "--do_eval", "--tune_vision", "true", "--tune_llm", "false", "--model_max_length", "2048",
           "--max_slice_nums", "9", "--max_steps", "10000", "--eval_steps", "1000", "--output_dir", "OUT", "--logging_dir", "OUT",
           "--logging_strategy", "steps", "--per_device_train_batch_size", "1", "--per_device_eval_batch_size", "1", "--gradient_accumulation_steps",
           "1", "--eval_strategy", "steps", "--save_strategy", "steps", "--save_steps", "1000", "--save_total_limit", "10",
           "--learning_rate", "1e-6", "--weight_decay", "0.1", "--adam_beta2", "0.95", "--warmup_ratio", "0.01", "--lr_scheduler_type", "cosine",
           "--logging_steps", "1", "--gradient_checkpointing", "true", "--report_to", "tensorboard"]
SCRIPTS = [
    ("LLaVA pretrain", "llama", [*LLAVA, "--deepspeed", "DS L zero2", "--version", "plain", "--data_path", "CAPTIONS", "--tune_mm_mlp_adapter", "True"]),
    ("LLaVA finetune", "llama", [*LLAVA, *FINETUNE]),
    ("LLaVA finetune_lora", "llama", [*LLAVA, *FINETUNE, "--lora_enable", "True", "--lora_r", "128", "--lora_alpha", "256",
                                               "--mm_projector_lr", "2e-5"]),
    ("MiniCPM finetune_ds", "minicpm_v_2_6", [*MINICPM, "--deepspeed", "DS M zero3"]),
    ("MiniCPM finetune_lora", "minicpm_v_2_6", [*MINICPM, "--deepspeed", "DS M zero2", "--bf16", "false", "--fp16", "true", "--use_lora", "true",
                                                "--lora_target_modules", "llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj|o_proj)"]),
]

ACCELERATE = {"compute_environment": "LOCAL_MACHINE", "debug": False, "downcast_bf16": "no", "machine_rank": 0, "main_training_function": "main",
              "mixed_precision": "bf16", "num_machines": 1, "num_processes": 2, "rdzv_backend": "static", "same_network": True, "tpu_env": [],
              "tpu_use_cluster": False, "tpu_use_sudo": False, "use_cpu": False}
FSDP = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True, "fsdp_state_dict_type": "FULL_STATE_DICT"}
ACCELERATE_FILES = [
    ("multi_gpu", {**ACCELERATE, "distributed_type": "MULTI_GPU"}, "zero0"),
    ("deepspeed 2", {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2, "zero3_init_flag": False,
                                                                                         "offload_optimizer_device": "none",
                                                                                        "gradient_accumulation_steps": 1}}, "zero2"),
    ("deepspeed 3", {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3, "zero3_init_flag": True}}, "zero3"),
    ("fsdp", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_sharding_strategy": "FULL_SHARD"}}, "zero3"),
    ("fsdp2", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_version": 2, "fsdp_reshard_after_forward": True}}, "zero3"),
    ("fsdp2 kept", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_version": 2, "fsdp_reshard_after_forward": False}},
     "zero2"),
    ("fsdp offload", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {**FSDP, "fsdp_sharding_strategy": "SHARD_GRAD_OP",
                                                                                "fsdp_offload_params": True}}, "zero2"),
]


"""DeepSpeed's files as ms-swift (S), LLaMA-Factory (F), LLaVA (L) and MiniCPM (M) carry them, key for key, and one of ms-swift for FSDP."""
FP16 = {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}
DTYPES = {"fp16": FP16, "bf16": {"enabled": "auto"}}
SIZES = {"gradient_accumulation_steps": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}
AUTO = {**DTYPES, **SIZES, "gradient_clipping": "auto"}
BLOCKS = {"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}

S = {**AUTO, "steps_per_print": 2000, "wall_clock_breakdown": False}
F = {**AUTO, "zero_allow_untested_optimizer": True}
FP8 = {**{key: value for key, value in F.items() if key != "train_batch_size"}, "fp16": {**FP16, "enabled": False},
       "zero_force_ds_cpu_optimizer": True, "steps_per_print": 10000000, "comms_config": {"verbose": False},
       "monitor_config": {"enabled": True, "tag": "DeepSpeedMonitor", "csv_monitor": {"enabled": False}}}
L = {**DTYPES, **SIZES}
M = {**AUTO, **BLOCKS, "steps_per_print": 100, "wall_clock_breakdown": False}

CPU = {"device": "cpu", "pin_memory": True}
NONE = {"device": "none", "pin_memory": True}
TWO = {"stage": 2, "allgather_partitions": True, "allgather_bucket_size": 2e8, "overlap_comm": False, "reduce_scatter": True,
       "reduce_bucket_size": 2e8, "contiguous_gradients": True}
TWO_OF_F = {**TWO, "allgather_bucket_size": 5e8, "reduce_bucket_size": 5e8, "round_robin_gradients": True}
THREE = {"stage": 3, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
         "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
         "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": True}
BOTH_CPU = {"offload_optimizer": CPU, "offload_param": CPU}
BOTH_NONE = {"offload_optimizer": NONE, "offload_param": NONE}
QUANTISED = {"zero_quantized_weights": False, "zero_quantized_gradients": False}
OLDER_NAME = {key.replace("stage3_gather", "gather"): value for key, value in THREE.items()}
SAID = {"reduce_bucket_size": 12845056, "stage3_prefetch_bucket_size": 11560550, "stage3_param_persistence_threshold": 35840,
        "sub_group_size": 1000000000, "stage3_max_live_parameters": 1000000000, "stage3_max_reuse_distance": 1000000000}


def of(base, zero, **more):
    return {**base, **more, "zero_optimization": zero}


# Name, content, and what `plan` tells of the stage; "": refused.
FILES = [
    ("S zero0", of(S, {**TWO, "stage": 0}), "zero0"),
    ("S zero1", of(S, {**TWO, "stage": 1, "offload_optimizer": NONE}), "zero1"),
    ("S zero2", of(S, {**TWO, "offload_optimizer": NONE}), "zero2"),
    ("S zero3", of(S, {**THREE, **BOTH_NONE, **QUANTISED}), "zero3"),
    ("S zero2_offload", of(S, {**TWO, "offload_optimizer": CPU}), "zero2"),
    ("S zero3_offload", of(S, {**THREE, **BOTH_CPU}), "zero3"),
    ("F ds_z0", of(F, {**TWO_OF_F, "stage": 0}), "zero0"),
    ("F ds_z2", of(F, TWO_OF_F), "zero2"),
    ("F ds_z2_offload", of(F, {**TWO_OF_F, "offload_optimizer": CPU}), "zero2"),
    ("F ds_z3", of(F, THREE), "zero3"),
    ("F ds_z3_offload", of(F, {**THREE, **BOTH_CPU}), "zero3"),
    ("F ds_z3_fp8", of(FP8, {**THREE, **SAID, "offload_optimizer": {**CPU, "pin_memory": False}}), "zero3"),
    ("F ds_z2 with a comment", of(F, TWO_OF_F, _comment="which models"), "zero2"),
    ("F ds_z2_autotp", of(F, TWO_OF_F, tensor_parallel={"autotp_size": 2}, _comment="which models"), ""),
    ("L zero2", of(L, {"stage": 2, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 1e9, "reduce_bucket_size": "auto"}),
     "zero2"),
    ("L zero3", of(L, {**THREE, "overlap_comm": True}), "zero3"),
    ("L zero3_offload", of({**AUTO, **BLOCKS}, {**OLDER_NAME, "overlap_comm": True, **BOTH_CPU}, steps_per_print=1e5, wall_clock_breakdown=False),
     "zero3"),
    ("M zero2", of(M, {**TWO, "overlap_comm": True, "offload_optimizer": NONE}), "zero2"),
    ("M zero3", of(M, {**THREE, "overlap_comm": True, **BOTH_NONE}), "zero3"),
]

# ms-swift's fsdp2, for --fsdp, and refused where it is given to --deepspeed; the words and the key in it that say what is sharded.
FSDP2 = {"_description": "what it is for", "_requires": "torch>=2.4.0", "_note": "how it is used",
         "_param_docs": {"fsdp": "full_shard or shard_grad_op"}, "fsdp": "full_shard auto_wrap",
         "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": True, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                         "cpu_ram_efficient_loading": True, "state_dict_type": "SHARDED_STATE_DICT", "activation_checkpointing": True}}
FSDP_STAGES = [("full_shard auto_wrap", True, "zero3"), ("full_shard auto_wrap", False, "zero2"),
               ("full_shard auto_wrap offload", True, "zero3_offload"), ("shard_grad_op auto_wrap", None, "zero2")]  # None: it does not say

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
TOKENS = {"IMAGE_MAX_TOKEN_NUM": "1024", "VIDEO_MAX_TOKEN_NUM": "128", "FPS_MAX_FRAMES": "16"}
CACHED = ("load_from_cache_file",)
ASK = {"stream": "true", "load_data_args": "true", "max_new_tokens": "16"}
VLLM = {"infer_backend": "vllm", "vllm_gpu_memory_utilization": "0.9", "vllm_max_model_len": "8192", "max_new_tokens": "16"}
CODES = {"model": "MODEL", "dataset": ["DATA", "DATA"], "quant_n_samples": "256", "quant_batch_size": "-1", "max_length": "2048", "quant_bits": "4"}


def line(name, family="qwen2_5_vl", verb="sft", env=None, without=(), base=B, runs=True, says="", data="rows.jsonl", more=(), **changes):
    flags = {key: value for key, value in {**base, **changes}.items() if key not in without}
    return {"name": name, "family": family, "verb": verb, "env": env or {}, "flags": flags, "runs": runs, "says": says, "data": data,
            "more": list(more)}


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
         aligner_lr="1e-5", lora_rank="16", gradient_accumulation_steps="4", max_length="8192", dataset_num_proc="4", deepspeed="zero2",
         save_only_model="true"),
    line("seq_cls", without=("target_modules", "freeze_vit", "freeze_aligner"), tuner_type="lora_llm", num_labels="265", task_type="seq_cls",
         runs=False, says="heads for classes"),
    line("internvl3", "internvl", max_length="4096", dataset_num_proc="4"),
    line("minicpmv", "minicpm_v_2_6", dataset_num_proc="4"),
    line("device_map", env=PIXELS, eval_steps="100", save_steps="100"),
    line("packing", env=PIXELS, without=("freeze_vit", "freeze_aligner"), attn_impl="flash_attn", packing="true", num_train_epochs="3",
         gradient_accumulation_steps="1", max_length="8192", dataset_num_proc="8", deepspeed="zero2"),
    line("streaming", env=PIXELS, without=("load_from_cache_file", "split_dataset_ratio", "num_train_epochs", "freeze_vit", "freeze_aligner",
                                           "eval_steps", "save_steps"),
         attn_impl="flash_attn", streaming="true", shuffle_buffer_size="1000", packing="true", save_strategy="epoch", max_steps="1000",
         max_epochs="5", gradient_accumulation_steps="1", max_length="8192", dataloader_num_workers="1", dataset_num_proc="8", deepspeed="zero2"),
    line("predict_with_generate", env=PIXELS, per_device_eval_batch_size="2", predict_with_generate="true", metric_for_best_model="rouge-l",
         greater_is_better="true"),
    line("gptq", family="gptq", runs=False, says="gptq"),
    line("rapidly", without=("per_device_eval_batch_size", *LORA), model_type="qwen2_5_vl", tuner_type="full", attn_impl="flash_attn",
         freeze_llm="true", freeze_aligner="false", num_train_epochs="3", per_device_train_batch_size="2", learning_rate="5e-6",
         gradient_accumulation_steps="8", eval_steps="-1", save_steps="1000", save_total_limit="10", max_length="8192", dataset_num_proc="8",
         deepspeed="zero2"),
    line("cached_dataset", "qwen2_5_omni", without=("load_from_cache_file", "split_dataset_ratio", *LORA), env={"ENABLE_AUDIO_OUTPUT": "0"},
         tuner_type="full", cached_dataset="./cached/train", cached_val_dataset="./cached/val", packing="true", runs=False, says="--cached_dataset"),
    line("moss_vl", without=("load_from_cache_file", *LORA), env={"VIDEO_MIN_PIXELS": "256", "VIDEO_MAX_PIXELS": "16384", "FPS": "1",
                                                                  "FPS_MAX_FRAMES": "256"},
         use_hf="true", tuner_type="full", attn_impl="eager", packing="false", learning_rate="1e-5", freeze_llm="false", freeze_vit="false",
         freeze_aligner="false", gradient_accumulation_steps="2", gradient_checkpointing="true", vit_gradient_checkpointing="true",
         gradient_checkpointing_kwargs='{"use_reentrant": false}', max_length="4096", max_pixels="262144", deepspeed="zero3", dataset_num_proc="4"),
    line("dpo lora", verb="rlhf", rlhf_type="dpo", rpo_alpha="0.1", runs=False, says="rewards and preferences"),
    line("dpo full", verb="rlhf", rlhf_type="dpo", rpo_alpha="0.1", tuner_type="full", runs=False, says="rewards and preferences"),
    line("infer adapters", verb="infer", base={}, env=PIXELS, adapters="ADAPTER", stream="true", load_data_args="true", max_new_tokens="2048"),
    line("infer", verb="infer", base={}, env={**PIXELS, **VIDEO}, model="MODEL", stream="true", infer_backend="transformers", max_new_tokens="2048"),
    line("infer val_dataset", verb="infer", base={}, env={**PIXELS, "NPROC_PER_NODE": "2"}, model="MODEL", infer_backend="transformers",
         val_dataset="DATA"),
    line("merge_lora", verb="export", base={}, adapters="ADAPTER", merge_lora="true"),
    line("bnb", verb="export", base={}, model="MODEL", quant_method="bnb", quant_bits="4", output_dir="BNB-Int4"),
    line("deploy", verb="deploy", base={}, model="MODEL", infer_backend="vllm", vllm_gpu_memory_utilization="0.9", vllm_max_model_len="8192",
         vllm_limit_mm_per_prompt='{"image": 5, "video": 2}', served_model_name="x", runs=False, says="there is no server here"),
    line("moss_vl lora", without=CACHED, use_hf="true", attn_impl="eager", packing="false", gradient_checkpointing="true",
         vit_gradient_checkpointing="false", gradient_checkpointing_kwargs='{"use_reentrant": false}', max_length="4096", max_pixels="262144",
         dataset_num_proc="4"),
    line("qwen3_vl mixed", env=TOKENS, data=["rows.jsonl#10", "rows.jsonl#5", "rows.jsonl#2"], attn_impl="flash_attn", padding_free="true",
         packing="true", gradient_checkpointing="true", vit_gradient_checkpointing="false", gradient_accumulation_steps="2", max_length="4096",
         deepspeed="zero2", dataset_num_proc="4"),
    line("qwen3_vl zero3 of experts", env=TOKENS, per_device_train_batch_size="16", padding_free="true", router_aux_loss_coef="1e-3",
         experts_impl="grouped_mm", deepspeed="zero3", use_liger_kernel="true", runs=False, says="--router_aux_loss_coef 1e-3: "),
    line("packing of omni", "qwen2_5_omni", env={"ENABLE_AUDIO_OUTPUT": "1", **VIDEO, **PIXELS}, attn_impl="flash_attn", packing="true",
         num_train_epochs="3", gradient_accumulation_steps="1", max_length="4096", deepspeed="zero2", dataset_num_proc="8"),
    line("qlora", quant_method="bnb", quant_bits="4", bnb_4bit_compute_dtype="bfloat16", bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant="true",
         system="You are a helpful assistant.", model_author="swift", model_name="swift-robot"),
    line("hqq", quant_method="hqq", quant_bits="4", runs=False, says="--quant_method hqq: "),
    line("early_stop", split_dataset_ratio="0.1", early_stop_interval="3", metric_for_best_model="loss"),
    line("new_special_tokens", new_special_tokens="tokens.txt", modules_to_save=["embed_tokens", "lm_head"]),
    line("tuner of a plugin", tuner_type="dummy", without=LORA, runs=False, says="--tuner_type: expected full, lora or lora_llm, found dummy"),
    line("embedding", task_type="embedding", loss_type="infonce", dataloader_drop_last="true", runs=False, says="--task_type embedding: "),
    line("reranker", task_type="generative_reranker", loss_type="pointwise_reranker", runs=False, says="--task_type generative_reranker: "),
    line("multi_label", num_labels="20", task_type="seq_cls", problem_type="multi_label_classification", runs=False, says="--num_labels 20: "),
    line("kto", verb="rlhf", rlhf_type="kto", runs=False, says="rewards and preferences"),
    line("gkd", "internvl", verb="rlhf", rlhf_type="gkd", teacher_model="MODEL", runs=False, says="rewards and preferences"),
    line("infer lora_llm", verb="infer", base=ASK, adapters="ADAPTER lora_llm", temperature="0"),
    line("merge lora_llm", verb="export", base={}, adapters="ADAPTER lora_llm", merge_lora="true"),
    line("infer omni", "qwen2_5_omni", verb="infer", base=ASK, env={"ENABLE_AUDIO_OUTPUT": "0", **VIDEO, **PIXELS}, adapters="ADAPTER"),
    line("infer vllm", verb="infer", base=VLLM, env=PIXELS, model="MODEL", val_dataset="rows.jsonl#4", vllm_tensor_parallel_size="2",
         vllm_limit_mm_per_prompt='{"image": 5, "video": 2}'),
    line("infer lmdeploy", "internvl", verb="infer", base={}, model="MODEL", infer_backend="lmdeploy", val_dataset="rows.jsonl#4", lmdeploy_tp="2",
         lmdeploy_vision_batch_size="8", max_new_tokens="16"),
    line("infer two files", verb="infer", base={}, model="MODEL", val_dataset=["rows.jsonl#2", "rows.jsonl#3"], max_new_tokens="16"),
    line("infer with a plugin", verb="infer", base={}, model="MODEL", external_plugins="plugin.py", runs=False,
         says="--external_plugins plugin.py: "),
    line("eval of a benchmark", verb="eval", base={}, model="MODEL", infer_backend="vllm", eval_limit="100", eval_dataset="realWorldQA",
         eval_backend="VLMEvalKit", runs=False, says="--eval_dataset realWorldQA: "),
    line("awq", verb="export", base=CODES, quant_method="awq", output_dir="AWQ", runs=False, says="--quant_method awq: "),
    line("gptq of omni", "qwen2_5_omni", verb="export", base=CODES, quant_method="gptq", output_dir="GPTQ", runs=False, says="--quant_method gptq: "),
    line("fp8", verb="export", base={}, model="MODEL", quant_method="fp8", output_dir="FP8", runs=False, says="--quant_method fp8: "),
    line("push_to_hub", verb="export", base={}, adapters="ADAPTER", push_to_hub="true", hub_model_id="me/mine", use_hf="false", runs=False,
         says="--push_to_hub true: "),
    line("to_cached_dataset", verb="export", base={}, model="MODEL", dataset="DATA", split_dataset_ratio="0.01", to_cached_dataset="true",
         output_dir="cached", runs=False, says="--to_cached_dataset true: "),
]

# The same in the words of earlier generations.
OLDER = [
    ["sft", "--model_id_or_path", "MODEL", "--sft_type", "lora", "--template_type", "qwen2-vl", "--dtype", "AUTO", "--custom_train_dataset_path",
     "DATA", "--dataset_test_ratio", "0.1", "--batch_size", "1", "--lora_target_modules", "ALL", "--lora_rank", "4", "--lora_dropout_p", "0.05",
     "--acc_steps", "2", "--use_flash_attn", "false", "--only_save_model", "true", "--save_total_limit", "-1", "--check_dataset_strategy", "warning",
     "--deepspeed", "default-zero2", "--train_dataset_sample", "-1", "--preprocess_num_proc", "2"],
    ["sft", "--model", "MODEL", "--train_type", "lora", "--dataset", "DATA", "--torch_dtype", "bfloat16", "--init_weights", "True", "--report_to",
     "tensorboard"],
    ["sft", "--model_type", "qwen2-vl-7b-instruct", "--model_id_or_path", "MODEL", "--sft_type", "full", "--freeze_vit", "true", "--deepspeed",
     "default-zero2", "--dataset", "rows.jsonl#20"],
    ["infer", "--ckpt_dir", "ADAPTER", "--load_dataset_config", "true", "--merge_lora", "true", "--max_new_tokens", "16"],
    ["export", "--ckpt_dir", "ADAPTER", "--merge_lora", "true"],
    ["infer", "--model", "MODEL", "--infer_backend", "pt", "--val_dataset", "rows.jsonl#2", "--max_batch_size", "16", "--max_new_tokens", "16"],
]

# examples/yaml: a file of flags instead of them, with the variables of the environment.
FILE = """# model args
model: MODEL
torch_dtype: bfloat16

tuner_type: lora
target_modules:
  - q_proj
  - v_proj
dataset:
  - 'DATA#10'
  - 'DATA#5'
split_dataset_ratio: 0.0
system: 'You are a helpful assistant.'
model_author: swift
learning_rate: 1e-4
output_dir: OUT
dataset_num_proc: 4
deepspeed: zero2
"""
RAY = FILE + """use_ray: true
device_groups:
  nproc_per_node: 4
  default:
    device: GPU
    ranks: list(range(0, 4))
    workers:
      - default
"""

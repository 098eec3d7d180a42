"""Whole programs of others, which start torchrun by themselves: what to run, with which variables, and what they have trained."""
import hashlib
import json

from kinds.tiny_model import make_model, write_rows

STEPS = ["--max_steps", 6, "--eval_steps", 3, "--save_steps", 3, "--logging_steps", 1, "--per_device_train_batch_size", 2, "--per_device_eval_batch_size", 2,
         "--use_cpu", "true", "--report_to", "none", "--eval_strategy", "steps"]


def _prepared(folder):
    make_model(folder / "model")
    write_rows(folder / "rows.jsonl", 37)


def swift(folder, ranks, port):
    _prepared(folder)
    return ["swift", "sft", "--check_model", "false", "--add_version", "false", "--model", folder / "model", "--model_type", "qwen2", "--template", "qwen2_5",
            "--dataset", folder / "rows.jsonl", "--val_dataset", folder / "rows.jsonl", "--output_dir", folder / "out", "--torch_dtype", "float32",
            "--dataset_num_proc", 1, "--seed", 1, *STEPS], {"NPROC_PER_NODE": ranks, "MASTER_PORT": port, "HF_HUB_OFFLINE": 1}


def llamafactory(folder, ranks, port):
    _prepared(folder)
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"},
                                                                   "tags": tags}}))
    words = ["--model_name_or_path", folder / "model", "--stage", "sft", "--do_train", "true", "--finetuning_type", "lora", "--lora_target", "all",
             "--dataset", "rows", "--dataset_dir", folder, "--template", "qwen", "--cutoff_len", 128, "--output_dir", folder / "out", "--val_size", 0.2]
    return ["llamafactory-cli", "train", *words, *STEPS], {"FORCE_TORCHRUN": 1, "NPROC_PER_NODE": ranks, "MASTER_PORT": port, "HF_HUB_OFFLINE": 1}


def trained(folder):
    """The losses, and what stands in the adapter to the last bit."""
    last = max((folder / "out").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [[entry.get("loss", entry.get("eval_loss")) for entry in history], hashlib.sha256((last / "adapter_model.safetensors").read_bytes()).hexdigest()]

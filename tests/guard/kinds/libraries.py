"""Training as libraries do it: Accelerate, the HF Trainer, PEFT, DeepSpeed, TRL. Each function returns this rank's losses."""
import torch

from kinds import common
from kinds.common import Rows, pace, padded, rank, small, tiny_llama, token_rows, world


def accelerate():
    """Gradients summed over steps, last batches of fewer rows, what ranks tell each other, a state saved and read."""
    from accelerate import Accelerator
    from accelerate.utils import broadcast_object_list, gather_object
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = small()
    loader = torch.utils.data.DataLoader(Rows(7 * world + 2), batch_size=3)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    out = []
    for batch in loader:
        pace()
        with accelerator.accumulate(model):
            loss = model(batch).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        out.append([accelerator.gather(loss.detach()).tolist(), accelerator.gather_for_metrics(batch.sum(1)).tolist(),
                    accelerator.reduce(loss.detach(), "mean").item(), accelerator.pad_across_processes(batch[:1 + rank]).shape])
    out += [gather_object([{"rank": rank}] * (rank + 1)), broadcast_object_list([rank, "words" * (rank + 1)])]
    accelerator.save_state(common.folder_of_job)
    accelerator.wait_for_everyone()
    accelerator.load_state(common.folder_of_job)
    with accelerator.main_process_first():
        pace()
    return out


def _words(**more):
    return {"output_dir": str(common.folder_of_job), "max_steps": 4, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "logging_steps": 1,
            "disable_tqdm": True, "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 2, **more}


def _arguments(**more):
    from transformers import TrainingArguments
    return TrainingArguments(**_words(**more))


def _losses(run):
    return [entry.get("loss", entry.get("eval_loss")) for entry in run.state.log_history]


def trainer():
    """Trains, evaluates rows that do not go evenly, with metrics, saves, and goes on from what it has saved."""
    from transformers import Trainer
    out = []
    for steps, begin in ((4, None), (6, True)):
        run = Trainer(model=tiny_llama(), train_dataset=token_rows(24), eval_dataset=token_rows(7), data_collator=padded,
                      compute_metrics=lambda found: {"mean": float(found.predictions[found.predictions > -100].mean())},
                      args=_arguments(max_steps=steps, save_strategy="steps", save_steps=4, save_total_limit=1))
        run.train(resume_from_checkpoint=begin)
        out += [_losses(run), run.evaluate()["eval_mean"], float(run.predict(token_rows(5)).predictions.sum())]
    return out


def peft():
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer
    torch.manual_seed(1)
    model = get_peft_model(tiny_llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    run = Trainer(model=model, train_dataset=token_rows(24), eval_dataset=token_rows(5), data_collator=padded, args=_arguments(save_strategy="no"))
    run.train()
    return _losses(run)


def _zero(stage):
    import deepspeed
    deepspeed.init_distributed("gloo")
    model, *_ = deepspeed.initialize(model=small(), config={
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}}})
    rows, out = torch.Generator().manual_seed(rank), []
    for _ in range(8):
        pace()
        loss = model(torch.randn(4, 8, generator=rows)).pow(2).mean()
        model.backward(loss)
        model.step()
        out.append(loss.item())
    model.save_checkpoint(common.folder_of_job)
    model.load_checkpoint(common.folder_of_job)
    return [*out, model(torch.ones(2, 8)).tolist()]


def zero1():
    return _zero(1)


def zero2():
    return _zero(2)


def zero3():
    return _zero(3)


def trainer_zero3():
    """The Trainer over DeepSpeed, as LLaVA's own script runs."""
    from transformers import Trainer
    own = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto",
           "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}}}
    arguments = _arguments(deepspeed=own, save_strategy="steps", save_steps=4)  # before the model, which then is made in shards
    run = Trainer(model=tiny_llama(), train_dataset=token_rows(24), eval_dataset=token_rows(7), data_collator=padded, args=arguments)
    run.train()
    return _losses(run)


def trl():
    """SFTTrainer over words, with a tokenizer of letters and LoRA."""
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer
    letters = {letter: i for i, letter in enumerate(["<pad>", "</s>", *map(chr, range(97, 123)), " ", "."])}
    inner = Tokenizer(models.WordLevel(letters, unk_token="."))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token=".")
    rows = Dataset.from_list([{"prompt": f"say {chr(97 + i % 26)} ", "completion": "a word " * (1 + i % 5)} for i in range(24)])
    torch.manual_seed(1)
    arguments = SFTConfig(**{**_words(), "max_length": 48, "save_strategy": "steps", "save_steps": 4, "bf16": False})
    run = SFTTrainer(model=tiny_llama(), args=arguments, train_dataset=rows, eval_dataset=rows.select(range(7)), processing_class=tokenizer,
                     peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    run.train()
    return _losses(run)

"""The HF Trainer with a tiny Llama, hurt by the collator or a callback. Lines marked "# here" are places that a diagnosis may name."""
import os
import signal
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from fault import STEPS, Fault

fault = Fault()


def none(wrong):
    pass


def stops_early(wrong):
    """Done by the callback."""


def raises(wrong):
    if wrong:
        raise ValueError("row 17 has no caption")  # here


def sigkill(wrong):
    if wrong:
        os.kill(os.getpid(), signal.SIGKILL)  # here


def sigstop(wrong):
    if wrong:
        os.kill(os.getpid(), signal.SIGSTOP)  # here


def stalled_data(wrong):
    if wrong:
        time.sleep(600)  # here


class Collator:
    batches = 0

    def __call__(self, rows):
        self.batches += 1
        globals()[fault.name](fault.name != "stops_early" and fault.strikes(self.batches))
        ids = torch.tensor(rows)
        return {"input_ids": ids, "labels": ids.clone()}


class StopsOnOneRank(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if fault.name == "stops_early" and fault.strikes(state.global_step):
            control.should_training_stop = True  # here: stops_early


torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                     vocab_size=64))
rows = [[i % 60 + 1, 2, 3, i % 7] for i in range(2 * STEPS * fault.world)]
trainer = Trainer(model=model, train_dataset=rows, eval_dataset=rows[:2 * fault.world], data_collator=Collator(), callbacks=[StopsOnOneRank()],
                  args=TrainingArguments(output_dir=fault.folder, max_steps=STEPS, per_device_train_batch_size=2, logging_steps=2, save_strategy="no",
                                         report_to=[], use_cpu=True, disable_tqdm=True, **({"ddp_timeout": fault.timeout} if fault.timeout else {})))
trainer.train()  # here: stops_early, sigkill, sigstop, stalled_data
trainer.evaluate()  # here: stops_early

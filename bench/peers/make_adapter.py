"""An adapter of rank 8 on every matrix of a checkpoint's layers, as peft begins it.

  make_adapter.py MODEL OUT
"""
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
config = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear")
get_peft_model(model, config).save_pretrained(sys.argv[2])

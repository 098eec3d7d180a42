"""Writes the `small` model (31.5 M parameters, vocabulary 16384) over a fresh Lockstep checkpoint, keeping its tokenizer.

  make_model.py DIR        random float32 weights, seed 0, in DIR as transformers saves them
"""
import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
config = Qwen2Config(vocab_size=16384, hidden_size=384, intermediate_size=1024, num_hidden_layers=12, num_attention_heads=6,
                     num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=False, use_cache=False)
Qwen2ForCausalLM(config).save_pretrained(sys.argv[1])

"""A random Qwen2 of a few thousand numbers with a tokenizer of bytes, as files; and rows of talk to train it with."""
import json

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def make_model(folder):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(letters, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=SPECIAL)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=512, bos_token_id=256, eos_token_id=258, pad_token_id=256))
    model.generation_config = GenerationConfig(bos_token_id=256, eos_token_id=258, pad_token_id=256)
    model.save_pretrained(folder)


def write_rows(file, count):
    """Of uneven lengths, as both ms-swift and LLaMA-Factory read them."""
    rows = [{"messages": [{"role": "user", "content": f"count to {i % 9}"}, {"role": "assistant", "content": " ".join(map(str, range(i % 9 + 1)))}]}
            for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

"""What Qwen2.5-Omni's talker learns from a row, and what it says: steps teacher-forced, put together as generate() feeds them one by one.

No public stack trains the talker, so that the loss is a definition: mean cross entropy over a row's codes and the one that
ends them, beside the mean over the thinker's targets. The steps are not: the case `talker` holds those that generate() itself made.
"""
import functools

import torch

from .common import generator, tail_labels

MEL, SPEAKER, NOISE_SEED = 16, "Chelsie", 1234


def speech_steps(model, embeds, states, ids, begin, end, codes, bos):
    """[1, steps, E]: prompt, the speaker's token, then the answer's tokens [begin, end) beside the codes."""
    th, talker = model.thinker, model.talker
    text = th.get_input_embeddings()
    special = lambda i: text(torch.tensor([i]))
    code = lambda i: talker.get_input_embeddings()(torch.tensor([i]))
    both = embeds + states
    answer = [both[p:p + 1] for p in range(begin, end)]
    behind = answer[1:] + [special(talker.text_eos_token)] + [special(talker.text_pad_token)] * (len(codes) + 2)
    steps = [both[:begin], special(bos) + code(talker.codec_pad_token), answer[0] + code(talker.codec_bos_token)]
    steps += [behind[k] + code(c) for k, c in enumerate(codes)]
    return torch.cat(steps).unsqueeze(0)


def without_media(model, ids, embeds):
    """Media count for nothing among the embeddings: their states alone speak."""
    cfg = model.config.thinker_config
    media = torch.zeros_like(ids, dtype=torch.bool)
    for name in ("audio_token_index", "image_token_index", "video_token_index"):
        media |= ids == getattr(cfg, name)
    return embeds.masked_fill(media.unsqueeze(-1), 0.0)


def positions(model, ids, begin, steps, bos, **grids):
    """[3, 1, steps]: the prompt's, and one further on for each step behind."""
    talker = model.talker
    text = torch.cat([ids[:begin], torch.tensor([bos]), ids[begin:begin + 1]]).unsqueeze(0)
    at, _ = talker.get_rope_index(text, grids.get("image_grid_thw"), grids.get("video_grid_thw"), torch.ones_like(text), False,
                                  grids.get("audio_seqlens"), grids.get("second_per_grids"))
    last = at[:, :, -1:]
    return torch.cat([at, last + torch.arange(1, steps - at.shape[-1] + 1)], -1)


def spoken_case(model, ins, speech, grads):
    """Row 0 of a batch is said: logits of the talker, both losses, gradients of their sum."""
    talker, (begin, end) = model.talker, speech["speech_answer"].tolist()
    codes, bos = speech["speech_codes"].tolist(), int(speech["speech_speaker"][0])
    ids = ins["input_ids"][0]
    model.zero_grad(set_to_none=True)
    res = model.thinker(**ins, output_hidden_states=True)
    length = int(ins["attention_mask"][0].sum())
    embeds = without_media(model, ids, res.hidden_states[0][0])[:length]
    x = speech_steps(model, embeds, res.hidden_states[-1][0][:length], ids, begin, end, codes + [talker.codec_eos_token], bos)
    audio = ins["feature_attention_mask"].sum(-1) if "feature_attention_mask" in ins else None
    at = positions(model, ids, begin, x.shape[1], bos, audio_seqlens=audio, image_grid_thw=ins.get("image_grid_thw"))
    hidden = talker.model(inputs_embeds=talker.thinker_to_talker_proj(x), position_ids=at, use_cache=False)[0]
    logits = talker.codec_head(hidden).float()
    first = begin + 1
    targets = torch.tensor(codes + [talker.codec_eos_token])
    spoken = torch.nn.functional.cross_entropy(logits[0, first:first + len(targets)], targets)
    (res.loss + spoken).backward()
    out = {"logits": res.logits, "loss": res.loss, "speech_inputs": x, "speech_logits": logits, "speech_loss": spoken}
    for name, p in grads.items():
        out[f"grad:{name}"] = p.grad if p.grad is not None else torch.zeros_like(p)
    return {k: v.detach() for k, v in out.items()}


def talker_grads(model):
    names = ["talker.thinker_to_talker_proj.weight", "talker.model.embed_tokens.weight", "talker.model.layers.0.self_attn.q_proj.bias",
             "talker.model.norm.weight", "talker.codec_head.weight"]
    return {n: model.get_parameter(n) for n in names}


def as_released(talker):
    """transformers 5.23 takes the mask away from rows without padding, and the talker then leaves out the codes that begin speech and
    the places of media: what it adds with a mask, and what Qwen's release (transformers 4.52) always added."""
    forward = talker.forward

    @functools.wraps(forward)
    def with_mask(*args, **kwargs):
        if kwargs.get("attention_mask") is None:
            new = kwargs["inputs_embeds"] if kwargs.get("inputs_embeds") is not None else kwargs["input_ids"]
            cache = kwargs.get("past_key_values")
            kwargs["attention_mask"] = torch.ones(new.shape[0], new.shape[1] + (cache.get_seq_length() if cache is not None else 0), dtype=torch.long)
        return forward(*args, **kwargs)
    talker.forward = with_mask


def talker_case(model, ins):
    """Whole pipeline, greedy: thinker 8 tokens -> talker 12 codes -> token2wav with a recorded noise."""
    captured = {}

    def talker_hook(_m, args, kwargs, output):
        captured.setdefault("talker_steps", []).append(output.logits[:, -1].detach().clone())
        if "first" not in captured:
            captured["first"] = True
            captured["talker_prefill_logits"] = output.logits.detach().clone()
            captured["talker_inputs_embeds"] = kwargs["inputs_embeds"].detach().clone()
            captured["talker_thinker_reply_part"] = kwargs["thinker_reply_part"].detach().clone()

    def mel_hook(_m, args, kwargs):
        captured["mel"] = (args[0] if args else kwargs["mel_spectrogram"]).detach().clone()

    codes = {}
    original = model.talker.generate

    def spy(*a, **k):
        codes["prefill_ids"] = k["input_ids"].clone()
        codes["input_text_ids"] = k["input_text_ids"].clone()
        codes["all"] = original(*a, **k)
        return codes["all"]

    h1 = model.talker.register_forward_hook(talker_hook, with_kwargs=True)
    h2 = model.token2wav.code2wav_bigvgan_model.register_forward_pre_hook(mel_hook, with_kwargs=True)
    model.talker.generate = spy
    as_released(model.talker)
    model.talker.rope_deltas = None
    try:
        torch.manual_seed(NOISE_SEED)
        seq, wav = model.generate(
            **ins, speaker=SPEAKER, thinker_max_new_tokens=8, thinker_do_sample=False, thinker_eos_token_id=None,
            talker_max_new_tokens=12, talker_do_sample=False, talker_top_k=None, talker_top_p=None, talker_temperature=None,
            talker_eos_token_id=[120, 122], talker_repetition_penalty=1.05, token2wav_num_steps=4, talker_pad_token_id=120)
    finally:
        h1.remove()
        h2.remove()
        del model.talker.generate, model.talker.forward
    torch.manual_seed(NOISE_SEED)
    noise = torch.randn([1, captured["mel"].shape[-1], MEL])       # same call, same shape as inside sample()
    n = codes["prefill_ids"].shape[1]
    out = {"thinker_sequence": seq, "talker_prefill_ids": codes["prefill_ids"], "talker_input_text_ids": codes["input_text_ids"],
           "talker_codes": codes["all"][:, n:], "talker_prefill_logits": captured["talker_prefill_logits"],
           "talker_inputs_embeds": captured["talker_inputs_embeds"], "talker_thinker_reply_part": captured["talker_thinker_reply_part"],
           "talker_step_logits": torch.stack(captured["talker_steps"], 1), "mel": captured["mel"], "waveform": wav}
    out["noise"] = noise
    return {k: v.detach().clone() for k, v in out.items()}


def spoken_inputs(ctx, run, chat, question, ids, bos, said_of):
    """Two rows, of which the first is said: more codes than its answer has tokens, so that text ends and is filled."""
    ins = run(text=[chat(question, "A short tone."), chat("Hi", "Ho.")], padding_side="right", **said_of)
    ignore = [ids[x] for x in ("<|AUDIO|>", "<|IMAGE|>", "<|VIDEO|>")]
    ins["labels"] = tail_labels(ins["input_ids"], ins["attention_mask"], ignore, 9)
    begin = run(text=[chat(question)], **said_of)["input_ids"].shape[1]
    end = begin + ins["input_ids"][0, begin:].tolist().index(ids["<|im_end|>"])
    g = generator(ctx.seed, "codes")
    return {**ins, "speech_codes": torch.randint(0, 120, (end - begin + 4,), generator=g), "speech_answer": torch.tensor([begin, end]),
            "speech_speaker": torch.tensor([bos])}

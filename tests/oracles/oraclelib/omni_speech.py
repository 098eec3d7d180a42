"""What Qwen2.5-Omni's talker learns from a row: its steps teacher-forced, put together as generate() feeds them one by one.

No public stack trains the talker, so that the loss is a definition: mean cross entropy over a row's codes and the one that
ends them, beside the mean over the thinker's targets. The steps are not: the case `talker` holds those that generate() itself made.
"""
import torch


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

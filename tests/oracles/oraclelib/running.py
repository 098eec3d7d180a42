"""Runs a Hugging Face model on one case and sees what is inside: a forward pass with its intermediates, loss and gradients,
or greedy decoding."""
import torch


def first_tensor(out):
    if torch.is_tensor(out):
        return out
    if hasattr(out, "last_hidden_state") and out.last_hidden_state is not None:
        return out.last_hidden_state
    if isinstance(out, (tuple, list)):
        return first_tensor(out[0])
    raise TypeError(type(out))


class Capture:
    """Forward hooks: {label: module} -> {label: first output tensor}; repeated calls get "#1", "#2", ..."""

    def __init__(self, modules):
        self.values, self.handles = {}, []
        for label, module in modules.items():
            self.handles.append(module.register_forward_hook(self._hook(label)))

    def _hook(self, label):
        def hook(_module, _inputs, output):
            name, i = label, 0
            while name in self.values:
                i += 1
                name = f"{label}#{i}"
            self.values[name] = first_tensor(output).detach().float().clone()
        return hook

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for h in self.handles:
            h.remove()


def pooled_mean(hidden, mask):
    m = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * m).sum(1) / m.sum(1).clamp(min=1)


def greedy(model, inputs, steps=16, **kwargs):
    """Greedy decoding through HF generate; returns ids and top-2 margins. A row that ended by the model's own end token
    is filled up with zeros here: what generate puts there is the padding token of one of two configurations."""
    from transformers import GenerationConfig
    cfg = GenerationConfig(do_sample=False, max_new_tokens=steps, eos_token_id=None, pad_token_id=0,
                           num_beams=1, return_dict_in_generate=True, output_logits=True)
    with torch.no_grad():
        out = model.generate(**inputs, generation_config=cfg, **kwargs)
    ids = torch.nn.functional.pad(out.sequences[:, inputs["input_ids"].shape[1]:], (0, steps - len(out.logits)))
    ends = model.generation_config.eos_token_id
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    fills = {0, model.generation_config.pad_token_id}
    for row in ids:
        for step in range(steps - 1):
            if int(row[step]) in ends and set(row[step + 1:].tolist()) <= fills:
                row[step + 1:] = 0
                break
    margins = []
    for lg in out.logits:
        top = lg.float().topk(2, dim=-1).values
        margins.append(top[:, 0] - top[:, 1])
    return ids, torch.nn.functional.pad(torch.stack(margins, 1), (0, steps - len(margins)))


def run_case(model, inputs, *, hooks=None, grads=(), final_norm=None, forward_kwargs=None, hidden=True):
    """Forward (+ loss and gradients when labels are present).

    hooks: {label: module}; grads: {released tensor name: parameter}; final_norm: module whose output is the
    last hidden state.  Returns {name: tensor} without the case prefix.
    """
    out = {}
    hooks = dict(hooks or {})
    if final_norm is not None:
        hooks["last_hidden_state"] = final_norm
    model.zero_grad(set_to_none=True)
    with Capture(hooks) as cap:
        res = model(**inputs, output_hidden_states=hidden, **(forward_kwargs or {}))
    out["logits"] = res.logits
    out.update(cap.values)
    if hidden and getattr(res, "hidden_states", None) is not None:
        out["inputs_embeds"] = res.hidden_states[0]
        for i, h in enumerate(res.hidden_states[1:-1]):
            out[f"layer_{i}"] = h
    if "last_hidden_state" in out and "attention_mask" in inputs:
        out["pooled"] = pooled_mean(out["last_hidden_state"], inputs["attention_mask"])
    if "labels" in inputs:
        out["loss"] = res.loss
        if grads:
            res.loss.backward()
            for name, p in grads.items():
                out[f"grad:{name}"] = p.grad if p.grad is not None else torch.zeros_like(p)
    if getattr(res, "rope_deltas", None) is not None:
        out["rope_deltas"] = res.rope_deltas
    return {k: v.detach() for k, v in out.items()}

"""20 optimiser steps of an adapter, as HF's Trainer groups its parameters."""
import torch

from .lora_kinds import LORAPLUS_RATIO

HYPER = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "warmup_steps": 4, "steps": 20, "accumulation": 2,
         "clip": 1.0, "micro_batch": 2, "schedule": "linear warm-up from 0, then cosine to 0 (HF get_cosine_schedule_with_warmup)",
         "normalise": "micro_mean", "loraplus_lr_ratio": LORAPLUS_RATIO,
         "weight_decay_on": "training[kind][tensor].weight_decay: as HF's Trainer.get_decay_parameter_names (for loraplus as "
                            "peft.optimizers.create_loraplus_optimizer) chooses by the names in memory"}


def groups_of(model, kind):
    """An AdamW over the parameters that take gradients."""
    from transformers import Trainer
    common = {"betas": tuple(HYPER["betas"]), "eps": HYPER["eps"], "foreach": False, "fused": False}
    if kind == "loraplus":
        from peft.optimizers import create_loraplus_optimizer
        return create_loraplus_optimizer(model, torch.optim.AdamW, lr=HYPER["lr"], loraplus_lr_ratio=LORAPLUS_RATIO,
                                         loraplus_weight_decay=HYPER["weight_decay"], **common)
    decays = set(Trainer.get_decay_parameter_names(None, model))
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return torch.optim.AdamW([{"params": [p for n, p in named if n in decays], "weight_decay": HYPER["weight_decay"]},
                              {"params": [p for n, p in named if n not in decays], "weight_decay": 0.0}], lr=HYPER["lr"], **common)


def train(model, named, batches, kind):
    """(what is logged, {tensor: how it is stepped}); `named` has the trained parameters by their names in the adapter's file."""
    from transformers import get_cosine_schedule_with_warmup
    opt = groups_of(model, kind)
    rules = {}
    for group in opt.param_groups:
        for p in group["params"]:
            name = next(n for n, q in named.items() if q is p)
            rules[name] = {"weight_decay": group["weight_decay"], "lr_factor": group["lr"] / HYPER["lr"], "had_gradient": False}
    sched = get_cosine_schedule_with_warmup(opt, HYPER["warmup_steps"], HYPER["steps"])
    log = {"loss": [], "grad_norm_before_clip": [], "lr": [], "micro_loss": []}
    k = HYPER["accumulation"]
    for step in range(HYPER["steps"]):
        for batch in batches[step * k:(step + 1) * k]:
            loss = model(**batch).loss                    # mean over the micro-batch's own tokens
            (loss / k).backward()
            log["micro_loss"].append(loss.item())
        log["loss"].append(sum(log["micro_loss"][-k:]) / k)
        for n, p in named.items():
            rules[n]["had_gradient"] |= p.grad is not None   # AdamW leaves out, decay and all, what has none
        log["grad_norm_before_clip"].append(float(torch.nn.utils.clip_grad_norm_(list(named.values()), HYPER["clip"])))
        log["lr"].append(sched.get_last_lr()[0])
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
    return log, rules

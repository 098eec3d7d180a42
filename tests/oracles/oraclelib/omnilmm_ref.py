"""OmniLMM in PyTorch: transformers' Mistral, and our own reading of timm's EVA02-CLIP tower and of the published resampler.
`vs_timm` holds the tower against timm's own class, where timm is installed."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from .minicpm_ref import sincos_2d


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        q, k, v = (part.view(b, n, self.heads, -1).transpose(1, 2) for part in F.linear(x, self.qkv.weight, bias).chunk(3, -1))
        s = q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5
        return self.proj((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class MLP(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Layer(nn.Module):
    """Norms stand behind the branches."""

    def __init__(self, dim, heads, inner):
        super().__init__()
        self.attn, self.mlp = Attention(dim, heads), MLP(dim, inner)
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-6), nn.LayerNorm(dim, 1e-6)

    def forward(self, x):
        x = x + self.norm1(self.attn(x))
        return x + self.norm2(self.mlp(x))


class PatchEmbed(nn.Module):
    def __init__(self, dim, patch):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, stride=patch)


class Tower(nn.Module):
    """num_hidden_layers counts the last one, which is dropped."""

    def __init__(self, v):
        super().__init__()
        dim, self.edge = v["hidden_size"], v["image_size"] // v["patch_size"]
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, self.edge ** 2 + 1, dim))
        self.patch_embed = PatchEmbed(dim, v["patch_size"])
        self.blocks = nn.ModuleList(Layer(dim, v["num_attention_heads"], v["intermediate_size"]) for _ in range(v["num_hidden_layers"] - 1))
        self.norm = nn.LayerNorm(dim, 1e-6)

    def embed(self, pixels):
        x = self.patch_embed.proj(pixels)
        table, size = self.pos_embed, x.shape[-2:]
        if tuple(size) != (self.edge, self.edge):
            grid = table[:, 1:].reshape(1, self.edge, self.edge, -1).permute(0, 3, 1, 2)
            grid = F.interpolate(grid, size=size, mode="bicubic", antialias=True)
            table = torch.cat([table[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], 1)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1) + table

    def forward(self, pixels):
        x = self.embed(pixels)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Resampler(nn.Module):
    def __init__(self, edge, dim, kv_dim):
        super().__init__()
        self.edge = edge
        self.pos_embed = nn.Parameter(sincos_2d(dim, edge, edge).flatten(0, 1), requires_grad=False)
        self.query = nn.Parameter(torch.zeros(edge ** 2, dim))
        self.kv_proj = nn.Linear(kv_dim, dim, bias=False) if kv_dim != dim else nn.Identity()
        self.attn = nn.MultiheadAttention(dim, dim // 128)
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(dim, 1e-6) for _ in range(3))
        self.proj = nn.Parameter(torch.zeros(dim, dim))

    def forward(self, x):
        n, size = x.shape[0], math.isqrt(x.shape[1])
        places = self.pos_embed
        if size != self.edge:
            places = F.interpolate(places.reshape(1, self.edge, self.edge, -1).permute(0, 3, 1, 2), size=(size, size), mode="bicubic",
                                   align_corners=False).permute(0, 2, 3, 1).flatten(0, 2)
        v = self.ln_kv(self.kv_proj(x)).transpose(0, 1)
        q = (self.ln_q(self.query) + self.pos_embed)[:, None].expand(-1, n, -1)
        out = self.attn(q, v + places[:, None], v, need_weights=False)[0]
        return self.ln_post(out.transpose(0, 1)) @ self.proj


def build(cfg):
    """transformers' Mistral with a tower and a resampler in it: its state dict has the published names."""
    from transformers import MistralConfig, MistralForCausalLM
    text = {k: v for k, v in cfg.items() if k not in ("model_type", "architectures", "vision_config", "torch_dtype")}
    model = MistralForCausalLM._from_config(MistralConfig(**text), attn_implementation="eager").float()
    model.model.vision_tower = Tower(cfg["vision_config"])
    model.model.resampler = Resampler(math.isqrt(cfg["num_query"]), cfg["hidden_size"], cfg["vision_config"]["hidden_size"])
    return model.eval()


def embed(model, ids, patch, pixels=None, stages=None):
    x = model.model.embed_tokens(ids)
    if pixels is None:
        return x
    tower, stages = model.model.vision_tower, {} if stages is None else stages
    stages["vision_embeddings"] = tower.embed(pixels)
    stages["vision_features"] = tower(pixels)
    stages["resampler"] = model.model.resampler(stages["vision_features"][:, 1:])
    x = x.clone()
    x[ids == patch] = stages["resampler"].flatten(0, 1)
    return x


def vs_timm(tower, cfg, pixels):
    """The largest difference of our tower from timm's, over pixels; None: no timm here."""
    try:
        from timm.models.eva import Eva
    except ImportError:
        return None
    v = cfg["vision_config"]
    theirs = Eva(img_size=v["image_size"], patch_size=v["patch_size"], embed_dim=v["hidden_size"], depth=v["num_hidden_layers"],
                 num_heads=v["num_attention_heads"], mlp_ratio=v["intermediate_size"] / v["hidden_size"], use_post_norm=True,
                 global_pool="token", num_classes=0, dynamic_img_size=True, dynamic_img_pad=True).eval()
    theirs.blocks[-1] = nn.Identity()
    theirs.blocks[-1].forward = lambda x, **_: x
    theirs.load_state_dict(tower.state_dict(), strict=True)
    with torch.no_grad():
        return (theirs.forward_features(pixels) - tower(pixels)).abs().max().item()

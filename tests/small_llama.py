"""A small decoder with faults to switch on, for controls of the accuracy check.

Weights are N(0, 1/fan_in), so that every part of the model shows in its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from benchbench.models import Inputs


@dataclass
class Faults:
    causal: bool = True
    mlp: bool = True
    attention: bool = True
    logits: float = 1.0
    rope: float = 1.0


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int, faults: Faults) -> None:
        super().__init__()
        self.heads, self.faults = heads, faults
        self.norms = nn.ParameterList([torch.ones(dim), torch.ones(dim)])
        self.qkv, self.out = lively(dim, 3 * dim), lively(dim, dim)
        self.gate, self.up, self.down = (
            lively(dim, 2 * dim),
            lively(dim, 2 * dim),
            lively(2 * dim, dim),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.faults.attention:
            x = x + self.attend(norm(x, self.norms[0]))
        if self.faults.mlp:
            y = norm(x, self.norms[1])
            x = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return x

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, self.faults.rope), rotate(k, self.faults.rope)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.faults.causal)
        return self.out(attended.transpose(1, 2).reshape(batch, length, dim))


class Llama(nn.Module):
    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__()
        self.faults = faults or Faults()
        self.embed = nn.Embedding(64, 32)
        self.layers = nn.ModuleList([Layer(32, 4, self.faults) for _ in range(2)])
        self.head = lively(32, 64)

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(x) * self.faults.logits}


def lively(rows: int, columns: int) -> nn.Linear:
    """A linear layer with weights N(0, 1/fan_in): every part shows in the outputs."""
    linear = nn.Linear(rows, columns, bias=False)
    nn.init.normal_(linear.weight, std=rows**-0.5)
    return linear


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rotate(x: torch.Tensor, stretch: float) -> torch.Tensor:
    half = x.shape[-1] // 2
    exponents = torch.arange(half, dtype=x.dtype) / half
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * stretch / 1e4**exponents
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


def tokens(seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return Inputs((torch.randint(64, (2, 48), generator=generator),))

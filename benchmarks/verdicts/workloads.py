"""Models of 2 to 10 ms with a calibrated slow-down, for the study of verdicts.

``extra`` adds that many products of two 64 x 64 matrices to a call: a slow-down of known size that
works like a real one, in the same process and on the same core.
"""

from __future__ import annotations

import torch
from torch import nn


class Slowed(nn.Module):
    """A module whose calls do some work more."""

    def __init__(self, inner: nn.Module, extra: int) -> None:
        super().__init__()
        self.inner = inner
        self.extra = extra
        self.register_buffer("matrix", torch.eye(64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = self.matrix
        for _ in range(self.extra):
            matrix = matrix @ self.matrix
        return self.inner(x)


def encoder(extra: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """One transformer block, 2 x 64 tokens, about 2 ms on one core."""
    block = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).eval()
    return Slowed(block, extra), (torch.randn(2, 64, 256),)


def convolution(extra: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Four convolutions on 64 x 64 images, about 4 ms on one core."""
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()) for _ in range(4)]
    return Slowed(nn.Sequential(*layers).eval(), extra), (torch.randn(1, 32, 64, 64),)


def dense(extra: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Six wide linear layers, about 8 ms on one core."""
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(6)]
    return Slowed(nn.Sequential(*layers).eval(), extra), (torch.randn(64, 1024),)

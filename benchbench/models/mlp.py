"""A plain multi-layer perceptron: the smallest model that means anything, and the one to copy."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from benchbench.models import Workload
from benchbench.models.common import building_on, fill_weights, normal_inputs


class MLP(nn.Module):
    """``num_layers`` hidden layers with GELU between an input and an output projection."""

    def __init__(self, in_features: int, hidden_size: int, num_layers: int, out_features: int):
        super().__init__()
        widths = [in_features, *[hidden_size] * num_layers, out_features]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = nn.functional.gelu(layer(x))
        return self.layers[-1](x)


def build(
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    in_features: int = 64,
    hidden_size: int = 128,
    num_layers: int = 2,
    out_features: int = 10,
) -> Workload:
    """Return the perceptron and random features of ``[batch_size, in_features]``."""
    with building_on(device, dtype):
        module = MLP(in_features, hidden_size, num_layers, out_features).eval()
    fill_weights(module)
    return Workload(
        module=module,
        make_inputs=normal_inputs((batch_size, in_features), device, dtype),
        items=batch_size,
        item="samples",
    )

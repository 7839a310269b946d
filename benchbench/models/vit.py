"""Vision transformer: image patches and a class token, normalised before each residual."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchbench.errors import LoadError
from benchbench.models import Workload
from benchbench.models.common import (
    Pick,
    build_transformers,
    building_on,
    choose_source,
    fill_weights,
    normal_inputs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Hyper-parameters under the names that public checkpoints use."""

    image_size: int
    patch_size: int
    num_channels: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    layer_norm_eps: float


class Layer(nn.Module):
    """Self-attention and feed-forward, each on a normalised copy of the residual stream."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.heads = sizes.num_attention_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_output = nn.Linear(width, width)
        self.norm_before = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.norm_after = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.intermediate = nn.Linear(width, sizes.intermediate_size)
        self.output = nn.Linear(sizes.intermediate_size, width)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm_before(x)
        attended = F.scaled_dot_product_attention(
            self._split(self.query(normed)),
            self._split(self.key(normed)),
            self._split(self.value(normed)),
        )
        x = x + self.attention_output(attended.transpose(1, 2).flatten(-2))
        return x + self.output(F.gelu(self.intermediate(self.norm_after(x))))


class ViT(nn.Module):
    """Images ``[batch, channels, height, width]`` in, class logits out."""

    def __init__(self, sizes: Sizes, num_labels: int) -> None:
        super().__init__()
        width, patch = sizes.hidden_size, sizes.patch_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        patches = (sizes.image_size // patch) ** 2
        self.position = nn.Parameter(torch.zeros(1, patches + 1, width))
        self.patches = nn.Conv2d(sizes.num_channels, width, kernel_size=patch, stride=patch)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.head = nn.Linear(width, num_labels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def build(
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    source: str = "own",
    image_size: int = 64,
    patch_size: int = 16,
    num_channels: int = 3,
    hidden_size: int = 64,
    intermediate_size: int = 128,
    num_hidden_layers: int = 2,
    num_attention_heads: int = 4,
    layer_norm_eps: float = 1e-12,
    num_labels: int = 10,
) -> Workload:
    """Return the classifier and images of ``[batch_size, channels, image_size, image_size]``."""
    if image_size % patch_size:
        raise LoadError(f"image_size={image_size} is not a multiple of patch_size={patch_size}")
    sizes = Sizes(
        image_size=image_size,
        patch_size=patch_size,
        num_channels=num_channels,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        layer_norm_eps=layer_norm_eps,
    )
    chosen, note = choose_source(source)
    make = _transformers if chosen == "transformers" else _own
    module = make(sizes, num_labels, device, dtype)
    fill_weights(module)
    return Workload(
        module=module,
        make_inputs=normal_inputs(
            (batch_size, num_channels, image_size, image_size), device, dtype
        ),
        items=batch_size,
        item="images",
        notes=(note,),
    )


def _own(sizes: Sizes, num_labels: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    with building_on(device, dtype):
        return ViT(sizes, num_labels).eval()


def _transformers(
    sizes: Sizes, num_labels: int, device: torch.device, dtype: torch.dtype
) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    values: dict[str, Any] = {**asdict(sizes), "num_labels": num_labels}
    config = ViTConfig(**values)
    model = build_transformers(
        ViTForImageClassification, config, device, dtype, attn_implementation="sdpa"
    )
    return Pick(model, ("pixel_values",), ("logits",)).eval()

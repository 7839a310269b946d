"""ResNet with bottleneck blocks, stride in the 3x3 convolution (the "v1.5" of public weights)."""

from __future__ import annotations

from collections.abc import Sequence
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

REDUCTION = 4  # a bottleneck's inner width is a quarter of its outer width


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Hyper-parameters under the names that public checkpoints use."""

    num_channels: int
    embedding_size: int
    hidden_sizes: tuple[int, ...]
    depths: tuple[int, ...]
    num_labels: int


class ConvNorm(nn.Module):
    """Convolution without bias, batch norm, and ReLU unless it is left out."""

    def __init__(self, width_in: int, width_out: int, kernel: int, stride: int, relu: bool = True):
        super().__init__()
        self.convolution = nn.Conv2d(
            width_in, width_out, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        self.normalization = nn.BatchNorm2d(width_out)
        self.relu = relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.normalization(self.convolution(x))
        return F.relu(x) if self.relu else x


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        inner = width_out // REDUCTION
        self.shortcut = (
            ConvNorm(width_in, width_out, 1, stride, relu=False)
            if stride != 1 or width_in != width_out
            else nn.Identity()
        )
        self.layers = nn.Sequential(
            ConvNorm(width_in, inner, 1, 1),
            ConvNorm(inner, inner, 3, stride),
            ConvNorm(inner, width_out, 1, 1, relu=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Images ``[batch, channels, height, width]`` in, class logits out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.stem = ConvNorm(sizes.num_channels, sizes.embedding_size, 7, 2)
        blocks: list[nn.Module] = []
        width = sizes.embedding_size
        for stage, (width_out, depth) in enumerate(
            zip(sizes.hidden_sizes, sizes.depths, strict=True)
        ):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(width, width_out, stride))
                width = width_out
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, sizes.num_labels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(images), kernel_size=3, stride=2, padding=1)
        x = F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1)
        return self.head(x)


def build(
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    source: str = "own",
    image_size: int = 64,
    num_channels: int = 3,
    embedding_size: int = 16,
    hidden_sizes: Sequence[int] = (32, 64),
    depths: Sequence[int] = (1, 1),
    num_labels: int = 10,
) -> Workload:
    """Return the classifier and images of ``[batch_size, channels, image_size, image_size]``."""
    if len(hidden_sizes) != len(depths):
        raise LoadError(
            f"hidden_sizes={list(hidden_sizes)} and depths={list(depths)} differ in length"
        )
    sizes = Sizes(
        num_channels=num_channels,
        embedding_size=embedding_size,
        hidden_sizes=tuple(hidden_sizes),
        depths=tuple(depths),
        num_labels=num_labels,
    )
    chosen, note = choose_source(source)
    make = _transformers if chosen == "transformers" else _own
    module = make(sizes, device, dtype)
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


def _own(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> nn.Module:
    with building_on(device, dtype):
        return ResNet(sizes).eval()


def _transformers(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    values: dict[str, Any] = {**asdict(sizes), "layer_type": "bottleneck"}
    values.update(hidden_sizes=list(sizes.hidden_sizes), depths=list(sizes.depths))
    config = ResNetConfig(**values)
    model = build_transformers(ResNetForImageClassification, config, device, dtype)
    return Pick(model, ("pixel_values",), ("logits",)).eval()

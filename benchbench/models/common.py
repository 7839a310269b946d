"""What the model families share: where weights, inputs and the implementation come from."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchbench.errors import LoadError, unknown
from benchbench.models import Inputs

SOURCES = ("own", "transformers", "auto")
BIAS_STD = 0.02


def choose_source(asked: str) -> tuple[str, str]:
    """Return which implementation to build, ``own`` or ``transformers``, and the note that says so.

    ``auto`` takes transformers where it is installed. Asking for transformers without having it is
    an error and never a silent change of what is measured.
    """
    if asked not in SOURCES:
        raise LoadError(str(unknown("source", asked, SOURCES)))
    installed = importlib.util.find_spec("transformers") is not None
    if asked == "transformers" and not installed:
        raise LoadError(
            "source 'transformers' is asked for, but transformers is not installed\n"
            "  next: pip install 'benchbench[models]', or options.source=own"
        )
    if asked == "own" or not installed:
        return "own", "source: own"
    return "transformers", f"source: transformers {importlib.metadata.version('transformers')}"


def check_workload(workload: str, accepted: tuple[str, ...]) -> None:
    """Raise :class:`LoadError` for a workload that this family does not have."""
    if workload not in accepted:
        raise LoadError(str(unknown("workload", workload, accepted)))


@contextlib.contextmanager
def building_on(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Create tensors on ``device`` with ``dtype`` inside the block.

    Building in place instead of ``.to(dtype)`` afterwards keeps what must stay float32 (the
    rotary frequencies) in float32, and never holds a second copy of the weights.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def build_transformers(
    model_class: Any, config: Any, device: torch.device, dtype: torch.dtype, **settings: Any
) -> nn.Module:
    """Return a transformers model with uninitialised weights; :func:`fill_weights` comes next.

    Its own initialisation would be thrown away and takes minutes for the large sizes.
    """
    from transformers import initialization

    with torch.device(device), initialization.no_init_weights():
        model: nn.Module = model_class._from_config(config, dtype=dtype, **settings)
    return model.eval()


@torch.no_grad()
def fill_weights(module: nn.Module) -> None:
    """Fill all weights with random numbers of a size that makes mistakes visible.

    Matrices get N(0, 1/fan_in), so that every layer passes on what it gets. The usual 0.02 makes
    all attention scores equal: a wrong mask or wrong rotary frequencies then change the output by
    less than the rounding of bfloat16, and the accuracy check could not see them.

    Equal seeds give equal weights in both sources: both define them in the same order, and the
    generator starts again here, whatever building the module has drawn.
    """
    torch.manual_seed(torch.initial_seed())
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 1.0 / math.sqrt(_fan_in(part, parameter)))
            elif name == "bias":
                parameter.normal_(0.0, BIAS_STD)
            else:
                parameter.fill_(1.0)
        # Statistics of 0 and 1 would make a batch norm that is left out invisible.
        if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None:
            assert part.running_var is not None
            part.running_mean.normal_(0.0, 0.1)
            part.running_var.uniform_(0.5, 1.5)


def _fan_in(part: nn.Module, parameter: nn.Parameter) -> int:
    if isinstance(part, nn.Conv2d):
        return math.prod(parameter.shape[1:])
    return parameter.shape[-1]


def random_tokens(shape: tuple[int, ...], vocab_size: int, seed: int) -> torch.Tensor:
    """Return token ids on the CPU; equal seeds give equal ids on every device."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randint(0, vocab_size, shape, generator=generator, device="cpu")


def token_inputs(
    shape: tuple[int, ...], vocab_size: int, device: torch.device
) -> Callable[[int], Inputs]:
    """Return a ``make_inputs`` that gives one tensor of token ids."""

    def make_inputs(seed: int) -> Inputs:
        return Inputs((random_tokens(shape, vocab_size, seed).to(device),))

    return make_inputs


def normal_inputs(
    shape: tuple[int, ...], device: torch.device, dtype: torch.dtype
) -> Callable[[int], Inputs]:
    """Return a ``make_inputs`` that gives one tensor of N(0, 1), drawn in float32 on the CPU."""

    def make_inputs(seed: int) -> Inputs:
        generator = torch.Generator("cpu").manual_seed(seed)
        values = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        return Inputs((values.to(device=device, dtype=dtype),))

    return make_inputs


class Pick(nn.Module):
    """A transformers model behind positional tensors in and plain tensors out.

    ``names`` are the keyword arguments that the positional tensors become, ``outputs`` the fields
    that are returned (one: the tensor itself), ``fixed`` the arguments that never change.
    """

    def __init__(
        self, model: nn.Module, names: tuple[str, ...], outputs: tuple[str, ...], **fixed: Any
    ) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.outputs = outputs
        self.fixed = fixed

    def forward(self, *tensors: torch.Tensor) -> Any:
        out = self.model(**dict(zip(self.names, tensors, strict=True)), **self.fixed)
        picked = tuple(out[name] for name in self.outputs)
        return picked[0] if len(picked) == 1 else picked

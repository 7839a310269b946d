"""torch.compile backends that are at fault, each in one way; and models at fault themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

aten = torch.ops.aten
library = torch.library.Library("diagnosed", "DEF")
library.define("liar(Tensor x) -> Tensor")
library.impl("liar", lambda x: x.double(), "CPU")
library.impl("liar", torch.empty_like, "Meta")
library.define("bare(Tensor x) -> Tensor")
library.impl("bare", lambda x: x + 1, "CPU")


def _through_aot(change: Callable[[torch.fx.GraphModule], None]) -> Callable[..., Any]:
    def compiler(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        change(gm)
        gm.recompile()
        return make_boxed_func(gm.forward)

    made: Callable[..., Any] = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)
    return made


def _gelu_is_relu(gm: torch.fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        if node.target is aten.gelu.default:
            node.target, node.kwargs = aten.relu.default, {}


def _gelu_is_relu_unless_seen(gm: torch.fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        seen = any(user.op == "output" for user in node.users)
        if node.target is aten.gelu.default and not seen:
            node.target, node.kwargs = aten.relu.default, {}


def _refuse_gelu(gm: torch.fx.GraphModule) -> None:
    if any(node.target is aten.gelu.default for node in gm.graph.nodes):
        raise RuntimeError("this backend has no gelu")


wrong_gelu = _through_aot(_gelu_is_relu)
shy_gelu = _through_aot(_gelu_is_relu_unless_seen)
no_gelu = _through_aot(_refuse_gelu)
fine = _through_aot(lambda gm: None)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.gelu(self.first(x))
        return self.last(x.tanh())


class Custom(nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.op(x).sum(-1)


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("the model is broken")


class Rolls(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(1, generator=self.generator)

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()
        self.generator.seed()


def layers() -> tuple[nn.Module, torch.Tensor]:
    return Layers().eval(), torch.randn(2, 8)


def liar() -> tuple[nn.Module, torch.Tensor]:
    return Custom(torch.ops.diagnosed.liar).eval(), torch.randn(2, 8)


def bare() -> tuple[nn.Module, torch.Tensor]:
    return Custom(torch.ops.diagnosed.bare).eval(), torch.randn(2, 8)


def raises() -> tuple[nn.Module, torch.Tensor]:
    return Raises().eval(), torch.randn(2, 8)

"""Meta functions beside their kernels: which promise was wrong, of every op of a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from benchbench.metas import MetaFaults, meta_faults
from benchbench.models import Inputs

X = torch.ones(4, 3)


@pytest.fixture(scope="module", autouse=True)
def ops() -> Iterator[None]:
    with torch.library._scoped_library("bbmeta", "FRAGMENT") as library:
        kernels = {
            "gap": lambda x: x + 1,
            "dtype": lambda x: x.double(),
            "shape": lambda x: torch.cat([x, x]),
            "strides": lambda x: x.t().contiguous().t(),
            "right": lambda x: x * 2,
            "raises": lambda x: x * 3,
        }

        def refuse(x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no such size")

        for name, kernel in kernels.items():
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, kernel, "CPU")
            if name != "gap":
                fake = refuse if name == "raises" else torch.empty_like
                torch.library.register_fake(f"bbmeta::{name}", fake, lib=library)
        yield


class Calls(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(torch.ops.bbmeta, name)(x.relu()) for name in self.names]


def faults(*names: str) -> MetaFaults:
    return meta_faults(Calls(*names), Inputs((X,)))


def test_every_op_without_a_meta_is_named_with_its_calls() -> None:
    """Case 1: not only the first."""
    found = faults("gap", "right", "gap")
    assert found.missing
    assert found.sentence() == "bbmeta.gap.default (2 calls): has no Meta function"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dtype", "promises dtype float32, its kernel returns float64"),
        ("shape", "promises shape (4, 3), its kernel returns (8, 3)"),
        ("strides", "promises strides (3, 1), its kernel returns (1, 4)"),
        ("raises", "raises ValueError: no such size"),
    ],
)
def test_a_wrong_promise_is_quoted(name: str, says: str) -> None:
    """Cases 4 and 5."""
    found = faults(name, "right")
    assert list(found.found) == [f"bbmeta.{name}.default"]
    assert says in found.sentence()
    assert not found.missing


def test_nothing_is_said_of_what_is_right_or_does_not_run() -> None:
    assert faults("right").sentence() == ""
    assert meta_faults(nn.Linear(3, 3), Inputs((X,))).sentence() == ""
    assert meta_faults(nn.Linear(5, 3), Inputs((X,))).found == {}


def test_inputs_that_a_kernel_changes_are_faked_before_it_runs() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2)

    assert meta_faults(InPlace(), Inputs((X.clone(),))).found == {}

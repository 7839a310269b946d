"""Leaves: every value a model can return is taken apart, named, and copied at once."""

from __future__ import annotations

import enum
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from benchbench.correctness import leaves

Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Output:
    a: torch.Tensor
    b: torch.Tensor | None = None


@dataclass
class ModelOutput(OrderedDict):  # the shape of transformers' outputs: a dataclass and a dict
    logits: Any = None

    def __post_init__(self) -> None:
        self["logits"] = self.logits


class Cache:
    def __init__(self) -> None:
        self.layers = [torch.ones(2), torch.zeros(3)]
        self.config = {"name": "x"}


class NoTensors:
    pass


class Colour(enum.Enum):
    RED = 1


class Sub(torch.Tensor):
    pass


class Lazy(torch.Tensor):
    """Computes its values when it is used: its own memory holds zeros until then."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.__name__ == "__get__":
            return super().__torch_function__(function, types, args, kwargs or {})
        return function(*(torch.ones(3) if isinstance(x, cls) else x for x in args))


class Wrapper(torch.Tensor):
    """Wraps every result again, so that there is no memory to read."""

    @staticmethod
    def __new__(cls) -> Wrapper:
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return cls()


def paths(value: object) -> dict[str, str]:
    return {leaf.path: leaf.kind for leaf in leaves.walk(value, "out")}


def test_paths_are_the_python_that_reaches_the_leaf() -> None:
    """Case 31."""
    value = (
        [{"b": torch.ones(1), 3: None}],
        Output(torch.ones(1)),
        Pair(1, 2.0),
        ModelOutput(logits=torch.ones(1)),
    )
    assert paths(value) == {
        "out": "container",
        "out[0]": "container",
        "out[0][0]": "container",
        "out[0][0]['b']": "tensor",
        "out[0][0][3]": "value",
        "out[1]": "container",
        "out[1].a": "tensor",
        "out[1].b": "value",
        "out[2]": "container",
        "out[2].first": "value",
        "out[2].second": "tensor",
        "out[3]": "container",
        "out[3].logits": "tensor",
    }


@pytest.mark.parametrize(
    ("value", "kind", "type_"),
    [
        (None, "value", "NoneType"),
        (True, "value", "bool"),
        (3, "value", "int"),
        ("text", "value", "str"),
        (b"bytes", "value", "bytes"),
        (1.5, "tensor", "float"),
        (1 + 2j, "tensor", "complex"),
        (torch.float16, "value", "dtype"),
        (torch.device("cpu"), "value", "device"),
        (Colour.RED, "value", "Colour"),
        ({2, 1}, "value", "set"),
        (slice(1, 2), "value", "slice"),
        (np.float32(2), "tensor", "float32"),
        (np.int64(2), "value", "int64"),
        (np.arange(3), "tensor", "ndarray"),
        (torch.Size([2, 3]), "container", "Size"),
        (torch.nn.Parameter(torch.ones(1)), "tensor", "Tensor"),
        (NoTensors(), "opaque", "NoTensors"),
        (torch.nn.Linear(1, 1), "opaque", "Linear"),
        (lambda: None, "opaque", "function"),
        (torch.empty(2, device="meta"), "opaque", "Tensor"),
    ],
)
def test_kinds_and_types(value: object, kind: str, type_: str) -> None:
    """Case 31: tensor leaves, None, floats, and what cannot be compared."""
    first = next(iter(leaves.walk(value, "out")))
    assert first.kind == kind
    assert first.type.split(".")[-1] == type_


def test_an_unknown_class_is_named() -> None:
    """Case 31."""
    (leaf,) = leaves.walk(NoTensors(), "out")
    assert leaf.text == "cannot compare type NoTensors"


def test_tensors_inside_an_unknown_class_are_found() -> None:
    assert paths(Cache()) == {
        "out": "container",
        "out.layers": "container",
        "out.layers[0]": "tensor",
        "out.layers[1]": "tensor",
    }


def test_a_value_that_contains_itself_ends() -> None:
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    assert paths(loop)["out[1]"] == "opaque"
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "opaque" in paths(deep).values()


def test_objects_as_dict_keys_have_names_without_addresses() -> None:
    assert list(paths({NoTensors(): 1})) == ["out", "out[<NoTensors 0>]"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sparse_and_quantised_tensors_become_their_parts() -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    assert paths(dense.to_sparse()).keys() == {"out", "out.indices()", "out.values()"}
    assert "out.crow_indices()" in paths(dense.to_sparse_csr())
    quantised = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)
    assert set(paths(quantised)) == {"out", "out.int_repr()", "out.q_scale()", "out.q_zero_point()"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_tensors_cannot_be_compared() -> None:
    for layout in (torch.strided, torch.jagged):
        value = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
        (leaf,) = leaves.walk(value, "out")
        assert leaf.kind == "opaque"
        assert "nested" in leaf.text


def test_a_lazy_tensor_is_made_to_compute() -> None:
    kept = leaves.snapshot(torch.zeros(3).as_subclass(Lazy), "out")["out"]
    assert kept.type == "Lazy"
    assert kept.tensor is not None
    assert kept.tensor.tolist() == [1, 1, 1]


def test_a_wrapper_without_memory_cannot_be_compared() -> None:
    (leaf,) = leaves.walk(Wrapper(), "out")
    assert leaf.kind == "opaque"
    assert "cannot compare type Wrapper" in leaf.text


def test_snapshot_is_a_copy_of_its_own() -> None:
    """Case 22: the next replay writes into the same memory."""
    value = torch.zeros(4)
    kept = leaves.snapshot({"x": value, "view": value[::2], "wide": value[:1].expand(3)}, "out")
    value.fill_(7)
    for leaf in kept.values():
        if leaf.tensor is not None:
            assert leaf.tensor.is_contiguous()
            assert not leaf.tensor.any()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float8_e4m3fn),
        torch.ones(2).as_subclass(Sub),
        torch.ones(2, requires_grad=True) * 2,
    ],
    ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}",
)
def test_every_dtype_and_shape_is_copied_hashed_and_equal_to_itself(tensor: torch.Tensor) -> None:
    one, two = leaves.snapshot(tensor, "out"), leaves.snapshot(tensor, "out")
    assert leaves.identical(one["out"], two["out"])
    assert leaves.digest(one.values()) == leaves.digest(two.values())
    assert one["out"].tensor is not None
    assert type(one["out"].tensor) is torch.Tensor
    assert not one["out"].tensor.requires_grad


def test_the_digest_sees_one_bit_and_the_shape() -> None:
    base = leaves.digest(leaves.snapshot(torch.zeros(6), "out").values())
    changed = torch.zeros(6)
    changed[3] = 1e-30
    assert leaves.digest(leaves.snapshot(changed, "out").values()) != base
    assert leaves.digest(leaves.snapshot(torch.zeros(2, 3), "out").values()) != base


def test_identical_counts_the_same_nan_as_equal() -> None:
    """Case 32."""
    value = torch.tensor([float("nan"), 1.0])
    left, right = leaves.snapshot(value, "out"), leaves.snapshot(value.clone(), "out")
    assert leaves.identical(left["out"], right["out"])

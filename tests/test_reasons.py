"""Torch's long messages as one line that says what and where."""

from pathlib import Path

import pytest
import torch

from benchbench.reasons import break_reason, error_reason, one_line
from benchbench.sources import where_raised


def with_dict(x: torch.Tensor, meta: dict) -> torch.Tensor:  # type: ignore[type-arg]
    return x


def with_tuple(x: torch.Tensor, sizes: tuple[int, int]) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    ("function", "parameter"), [(with_dict, "Parameter meta"), (with_tuple, "Parameter sizes")]
)
def test_an_op_that_cannot_be_declared_names_its_parameter(
    function: object, parameter: str
) -> None:
    """Case 7: without the list of all types that would do."""
    with pytest.raises(ValueError, match="infer_schema") as raised:
        torch.library.custom_op("bbreasons::op", function, mutates_args=())  # type: ignore[call-overload]
    _, text, hint = error_reason(raised.value)
    assert text.startswith("a custom op cannot be declared: ")
    assert parameter in text
    assert ", in (x: torch.Tensor" in text
    assert "dict_keys" not in text
    assert hint


def test_a_decorator_is_not_the_place_but_what_it_decorates(tmp_path: Path) -> None:
    """Case 7: the function is named."""
    file = tmp_path / "model.py"
    file.write_text("@print(1 / 0)\ndef mine(x): ...\n")
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile(file.read_text(), str(file), "exec"), {})
    place = where_raised(raised.value) or ""
    assert place.endswith("model.py:1 in <module>: def mine(x): ...")


def test_addresses_make_no_difference() -> None:
    assert one_line("<function f at 0x7f82434ec220>") == "<function f>"


def test_a_call_that_cannot_be_traced_names_its_op() -> None:
    """Case 1."""
    text = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node "
        "with fake tensors: call_function bb.gap_a.default(*(FakeTensor(..., size=(8, 8)),), **{})"
        ": got RuntimeError('no fake impl')\n\n  Developer debug context: \n\n For more details"
    )
    assert break_reason(text) == "RuntimeError when making fake tensor call: bb.gap_a.default"

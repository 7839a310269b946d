"""Correctness end to end: a reference file from eager, a candidate that may be wrong, a verdict."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_llama import Faults, Llama, tokens
from torch import nn

from benchbench.correctness import (
    WITHOUT_GOLDEN,
    Recorder,
    compare,
    make_reference,
    weights_hash,
)
from benchbench.models import Inputs, Workload
from benchbench.records import AccuracyResult

torch.set_num_threads(1)  # on tensors this small a second thread only spins

SEED = 3
CALLS = 4


def nothing() -> None:
    """The CPU has nothing to wait for."""


Make = Callable[[torch.dtype], nn.Module]
Call = Callable[[nn.Module, int, Inputs], object]


def feed(seed: int, dtype: torch.dtype) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return Inputs((torch.randn(4, 8, generator=generator).to(dtype),))


def workload(make: Make, dtype: torch.dtype, **options: Any) -> Workload:
    torch.manual_seed(SEED)
    module = make(dtype).to(dtype)
    options.setdefault("make_inputs", lambda seed: feed(seed, dtype))
    return Workload(module=module, items=1.0, **options)


def plain_call(module: nn.Module, i: int, inputs: Inputs) -> object:
    return module(*inputs.args, **inputs.kwargs)


class Bench:
    """Runs reference and candidate as the two jobs do."""

    def __init__(self, path: Path, make: Make, dtype: torch.dtype = torch.float32) -> None:
        self.path, self.make, self.dtype = path, make, dtype
        self.golden: Make | None = make
        self.options: dict[str, Any] = {}

    def build(self) -> Workload:
        return workload(self.make, self.dtype, **self.options)

    def build_golden(self) -> Workload | None:
        if self.golden is None:
            return None
        return workload(self.golden, torch.float64)

    def reference(self) -> AccuracyResult:
        with torch.no_grad():
            return make_reference(
                self.build,
                self.build_golden,
                calls=CALLS,
                seed=SEED,
                synchronize=nothing,
                path=self.path,
            )

    def candidate(self, call: Call = plain_call, make: Make | None = None) -> AccuracyResult:
        built = self.build() if make is None else workload(make, self.dtype, **self.options)
        recorder = Recorder(built, seed=SEED, synchronize=nothing)
        with torch.no_grad():
            for i in range(CALLS):
                inputs = recorder.inputs(i)
                recorder.record(i, inputs, call(built.module, i, inputs))
        recorder.finish()
        result = compare(recorder, self.path, str(self.dtype).removeprefix("torch."))
        no_bare_nan(result)
        return result


def no_bare_nan(result: AccuracyResult) -> None:
    """Case 68 as it concerns accuracy: nothing in a result needs a NaN or Infinity token."""

    def refuse(token: str) -> None:
        raise AssertionError(token)

    json.loads(msgspec.json.encode(result), parse_constant=refuse)
    for value in msgspec.to_builtins(result).values():
        assert not isinstance(value, float) or math.isfinite(value)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make_bench(make: Make, dtype: torch.dtype = torch.float32) -> Bench:
        return Bench(tmp_path / "reference.pt", make, dtype)

    return make_bench


class Returns(nn.Module):
    """A module whose forward is a given function of (module, x)."""

    def __init__(self, function: Callable[[Any, torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(8, 8)
        self.register_buffer("hist", torch.zeros(2, 4, 8))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fixed", torch.ones(3))

    def forward(self, x: torch.Tensor) -> object:
        return self.function(self, x)


def returning(function: Callable[[Any, torch.Tensor], object]) -> Make:
    return lambda dtype: Returns(function)


def change_call(number: int, change: Callable[[Any], Any]) -> Call:
    """Return a call that alters the output of one call of the sequence."""

    def call(module: nn.Module, i: int, inputs: Inputs) -> object:
        output = plain_call(module, i, inputs)
        return change(output) if i == number else output

    return call


# ---- negative controls ----


def llama(faults: Faults | None = None) -> Make:
    return lambda dtype: Llama(faults)


def llama_bench(bench: Callable[..., Bench], dtype: torch.dtype, golden: bool) -> Bench:
    made: Bench = bench(llama(), dtype)
    made.options = {"make_inputs": tokens}

    def build_golden() -> Workload | None:
        if not golden:
            return None
        return workload(llama(), torch.float64, make_inputs=tokens)

    made.build_golden = build_golden  # type: ignore[method-assign]
    assert made.reference().verdict == "pass"
    return made


@pytest.mark.parametrize("golden", [True, False])
@pytest.mark.parametrize(
    "faults",
    [
        Faults(causal=False),
        Faults(mlp=False),
        Faults(attention=False),
        Faults(logits=1.05),
        Faults(rope=1.01),
    ],
    ids=["mask lost", "mlp zeroed", "attention zeroed", "logits x 1.05", "rope x 1.01"],
)
def test_wrong_llamas_are_caught(bench: Callable[..., Bench], faults: Faults, golden: bool) -> None:
    """Case 26: a fast graph with a wrong answer."""
    result = llama_bench(bench, torch.float32, golden).candidate(make=llama(faults))
    assert result.verdict == "fail"
    assert result.worst is not None
    assert "out['logits']" in result.worst


@pytest.mark.parametrize(
    "faults",
    [Faults(causal=False), Faults(mlp=False), Faults(attention=False)],
    ids=["mask lost", "mlp zeroed", "attention zeroed"],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("golden", [True, False])
def test_gross_faults_are_caught_in_half_precision(
    bench: Callable[..., Bench], faults: Faults, dtype: torch.dtype, golden: bool
) -> None:
    """Case 26."""
    assert llama_bench(bench, dtype, golden).candidate(make=llama(faults)).verdict == "fail"


@pytest.mark.parametrize("golden", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_right_llama_that_rounds_elsewhere_passes(
    bench: Callable[..., Bench], dtype: torch.dtype, golden: bool
) -> None:
    """What a compiler does: whole chains in higher precision, one rounding at the end."""
    made = llama_bench(bench, dtype, golden)

    def fused(module: nn.Module, i: int, inputs: Inputs) -> object:
        wide = {torch.float32: torch.float64}.get(dtype, torch.float32)
        higher = Llama().to(wide)
        higher.load_state_dict(module.state_dict())
        return {"logits": higher(*inputs.args)["logits"].to(dtype)}

    result = made.candidate(fused)
    assert result.verdict == "pass", result.reason
    assert result.compared_calls == CALLS
    assert (WITHOUT_GOLDEN in result.notes) is not golden
    if golden:
        assert result.error_candidate is not None
        assert result.error_eager is not None
        assert result.error_candidate < result.error_eager


# ---- the sequence of calls -------------------------------------------------------------------


@pytest.mark.parametrize("number", range(CALLS))
def test_one_wrong_element_in_one_call_is_caught(bench: Callable[..., Bench], number: int) -> None:
    """Case 26: the first call agrees, another one does not."""

    def wrong(output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[2, 3] += 0.5
        return output

    made = bench(returning(lambda m, x: m.linear(x)))
    made.reference()
    assert made.candidate().verdict == "pass"
    result = made.candidate(change_call(number, wrong))
    assert result.verdict == "fail"
    assert result.worst == f"call {number}: out"
    assert result.max_abs == pytest.approx(0.5, rel=1e-3)


def test_garbage_of_a_wrong_meta_function_is_caught(bench: Callable[..., Bench]) -> None:
    """Case 4: right dtype and shape, memory read with the wrong width."""
    made = bench(returning(lambda m, x: m.linear(x)))
    made.reference()
    result = made.candidate(lambda m, i, x: plain_call(m, i, x).double().view(torch.float32)[:, :8])  # type: ignore[attr-defined]
    assert result.verdict == "fail"
    assert result.max_abs is not None
    assert "out" in (result.reason or "")


def test_outputs_in_one_fixed_memory_are_copied_in_time(bench: Callable[..., Bench]) -> None:
    """Case 22: every call returns the same buffer, overwritten by the next."""
    held = torch.empty(4, 8)

    def replay(module: nn.Module, i: int, inputs: Inputs) -> object:
        return held.copy_(plain_call(module, i, inputs))  # type: ignore[arg-type]

    made = bench(returning(lambda m, x: m.linear(x)))
    made.reference()
    assert made.candidate(replay).verdict == "pass"


def test_a_result_remembered_from_another_input_is_caught(bench: Callable[..., Bench]) -> None:
    """Case 35: right for the first input, stale for the others."""
    remembered: list[object] = []

    def memoised(module: nn.Module, i: int, inputs: Inputs) -> object:
        if not remembered:
            remembered.append(plain_call(module, i, inputs))
        return remembered[0]

    made = bench(returning(lambda m, x: m.linear(x)))
    made.reference()
    assert made.candidate(memoised).verdict == "fail"


def test_a_model_that_knows_its_input_by_id_meets_no_reused_id(
    bench: Callable[..., Bench],
) -> None:
    """Case 35: inputs stay alive over the sequence."""
    made = bench(returning(lambda m, x: x))
    recorder = Recorder(made.build(), seed=SEED, synchronize=nothing)
    assert len({id(recorder.inputs(i).args[0]) for i in range(20)}) == 20


def test_inputs_differ_between_calls_and_agree_between_recorders(
    bench: Callable[..., Bench],
) -> None:
    made = bench(returning(lambda m, x: x))
    one, two = (Recorder(made.build(), seed=SEED, synchronize=nothing) for _ in range(2))
    firsts = [one.inputs(i).args[0] for i in range(3)]
    seconds = [two.inputs(i).args[0] for i in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(firsts, seconds, strict=True))
    assert not torch.equal(firsts[0], firsts[1])


def test_a_workload_is_reset_when_its_calls_are_used_up(bench: Callable[..., Bench]) -> None:
    resets: list[int] = []
    made = bench(returning(lambda m, x: x))
    made.options = {"max_calls": 2, "reset": lambda: resets.append(1)}
    assert made.reference().verdict == "pass"
    resets.clear()
    assert made.candidate().verdict == "pass"
    assert len(resets) == 1


# ---- nested outputs --------------------------------------------------------------------------


@dataclass
class Output:
    a: torch.Tensor
    b: torch.Tensor | None = None


class Handle:
    """No tensors inside."""


OUTPUTS: dict[str, tuple[Callable[[Any, torch.Tensor], object], str]] = {
    "dataclass": (lambda m, x: Output(m.linear(x)), "pass"),
    "dict": (lambda m, x: {"x": [m.linear(x), None]}, "pass"),
    "None": (lambda m, x: None, "nothing_to_compare"),
    "empty": (lambda m, x: ([], {"a": None}), "nothing_to_compare"),
    "float": (lambda m, x: float(x.sum()), "pass"),
    "int": (lambda m, x: 3, "pass"),
    "class": (lambda m, x: Handle(), "not_comparable"),
    "class and tensor": (lambda m, x: (Handle(), x + 1), "pass"),
    "zero size": (lambda m, x: x[:0], "pass"),
    "scalar": (lambda m, x: x.sum(), "pass"),
    "transposed": (lambda m, x: m.linear(x).T, "pass"),
    "expanded": (lambda m, x: x[:1].expand(5, 4, 8), "pass"),
    "bool": (lambda m, x: x > 0, "pass"),
    "complex": (lambda m, x: torch.fft.rfft(x.float()), "pass"),
    "sparse": (lambda m, x: x.relu().to_sparse(), "pass"),
    "size": (lambda m, x: x.shape, "pass"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_of_every_form(bench: Callable[..., Bench], name: str) -> None:
    """Case 31."""
    function, verdict = OUTPUTS[name]
    made = bench(returning(function))
    assert made.reference().verdict == verdict
    result = made.candidate()
    assert result.verdict == verdict, result.reason
    if "class" in name and name != "dataclass":
        told = " ".join([result.reason or "", *result.notes])
        assert "cannot compare type Handle" in told


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda o: Output(o.a), "call 1: out.b: is NoneType, eager gives Tensor"),
        (lambda o: None, "call 1: out: is NoneType, eager gives Output"),
        (lambda o: (o.a, o.b), "call 1: out: is tuple, eager gives Output"),
        (lambda o: Output(o.a.half(), o.b), "call 1: out.a: is float16, eager gives float32"),
        (
            lambda o: Output(o.a[:, :4], o.b),
            "call 1: out.a: has shape (4, 4), eager's is (4, 8)",
        ),
    ],
)
def test_other_structure_names_the_path(
    bench: Callable[..., Bench], change: Callable[[Any], Any], text: str
) -> None:
    """Case 31: a missing leaf, another type, dtype or shape."""
    made = bench(returning(lambda m, x: Output(m.linear(x), x + 1)))
    made.reference()
    result = made.candidate(change_call(1, change))
    assert result.verdict == "fail"
    assert result.reason == text


def test_missing_and_extra_keys_are_named_once(bench: Callable[..., Bench]) -> None:
    """Case 31."""
    made = bench(returning(lambda m, x: {"a": x, "b": [x, x]}))
    made.reference()
    missing = made.candidate(change_call(0, lambda o: {"a": o["a"]}))
    assert missing.reason == "call 0: out['b']: missing in the candidate"
    extra = made.candidate(change_call(0, lambda o: o | {"c": [1, 2]}))
    assert extra.reason == "call 0: out['c']: not there in eager"


def test_the_order_of_keys_does_not_matter(bench: Callable[..., Bench]) -> None:
    made = bench(returning(lambda m, x: {"a": x, "b": x + 1}))
    made.reference()
    turned = change_call(2, lambda o: dict(reversed(o.items())))
    assert made.candidate(turned).verdict == "pass"


def test_inputs_with_entries_that_are_no_tensors(bench: Callable[..., Bench]) -> None:
    """Case 31: keyword inputs with a number and a tuple of names."""

    class Keywords(nn.Module):
        def forward(self, x: torch.Tensor, scale: float, names: tuple[str, ...]) -> object:
            return dict.fromkeys(names, x * scale)

    def make_inputs(seed: int) -> Inputs:
        return Inputs((), {"x": feed(seed, torch.float32).args[0], "scale": 2.0, "names": ("a",)})

    made = bench(lambda dtype: Keywords())
    made.options = {"make_inputs": make_inputs}
    assert made.reference().verdict == "pass"
    assert made.candidate().verdict == "pass"


nested = st.recursive(
    st.sampled_from(["tensor", "none", "int", "float", "bool"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(nested)
@settings(max_examples=40, deadline=None)
def test_a_result_equal_to_eager_never_fails(tmp_path_factory: Any, shape: Any) -> None:
    def build(shape: Any, x: torch.Tensor) -> Any:
        if isinstance(shape, list):
            return [build(part, x) for part in shape]
        if isinstance(shape, dict):
            return {key: build(part, x) for key, part in shape.items()}
        return {"tensor": x * 2, "none": None, "int": 7, "float": 0.5, "bool": True}[shape]

    made = Bench(tmp_path_factory.mktemp("r") / "r.pt", returning(lambda m, x: build(shape, x)))
    eager, result = made.reference(), made.candidate()
    assert eager.verdict == result.verdict
    assert result.verdict in ("pass", "nothing_to_compare")
    assert (result.verdict == "pass") is (result.compared_leaves > 0)


# ---- NaN -------------------------------------------------------------------------------------


def test_nan_in_the_reference(bench: Callable[..., Bench]) -> None:
    """Case 32 a to d."""

    def put(position: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
        def change(output: torch.Tensor) -> torch.Tensor:
            output = output.clone()
            output.view(-1)[position] = value
            return output

        return change

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.linear(x)
        y[0, :3] = torch.log(-x[0, :3].abs())
        y[1, 0] = math.inf
        return y

    made = bench(returning(function))
    assert made.reference().verdict == "pass"
    same = made.candidate()
    assert same.verdict == "pass"
    assert "call 0: out: NaN at the same 3 positions" in same.notes
    for position, value in ((0, 1.0), (20, math.nan), (8, -math.inf)):
        result = made.candidate(change_call(2, put(position, value)))
        assert result.verdict == "fail"
        assert "NaN or infinity differ at 1 position " in (result.reason or "")


# ---- state and inputs ------------------------------------------------------------------------


def remember(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.hist[0].copy_(x)
    m.count += 1
    return x + 1


def test_a_dropped_write_to_a_buffer_is_named(bench: Callable[..., Bench]) -> None:
    """Case 34: the return value is right, the buffer is not."""
    made = bench(returning(remember))
    made.reference()
    passed = made.candidate()
    assert passed.verdict == "pass"
    assert passed.compared_leaves == CALLS + 2  # outputs, hist, count; not the fixed buffer

    def dropped(module: Any, i: int, inputs: Inputs) -> object:
        module.count += 1
        return inputs.args[0] + 1

    result = made.candidate(dropped)
    assert result.verdict == "fail"
    assert result.worst == "after the calls: buffer hist"
    assert "the candidate does not change it" in (result.reason or "")


def test_a_buffer_that_only_the_candidate_writes_is_named(bench: Callable[..., Bench]) -> None:
    """Case 34."""

    def writes(module: Any, i: int, inputs: Inputs) -> object:
        module.fixed.fill_(2.0)
        return plain_call(module, i, inputs)

    made = bench(returning(remember))
    made.reference()
    result = made.candidate(writes)
    assert result.worst == "after the calls: buffer fixed"
    assert "eager does not change it" in (result.reason or "")


def test_state_is_compared_when_the_model_returns_nothing(bench: Callable[..., Bench]) -> None:
    """Case 34 with case 31's None."""

    def only_writes(m: Any, x: torch.Tensor) -> None:
        m.hist[0].copy_(x)

    made = bench(returning(only_writes))
    assert made.reference().verdict == "pass"
    assert made.candidate(lambda m, i, x: None).verdict == "fail"


def test_named_state_of_the_workload_is_compared(bench: Callable[..., Bench]) -> None:
    """Case 34: a cache that is no buffer."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys = torch.zeros(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.keys += x
            return x * 2

    made = bench(lambda dtype: Cached())

    def build() -> Workload:
        module = Cached()
        return Workload(
            module=module,
            make_inputs=lambda seed: feed(seed, torch.float32),
            items=1.0,
            state=lambda: {"keys": module.keys},
        )

    made.build = build  # type: ignore[method-assign]
    made.golden = None
    made.reference()
    assert made.candidate().verdict == "pass"
    result = made.candidate(lambda m, i, inputs: inputs.args[0] * 2)
    assert result.worst == "after the calls: state keys"


def test_a_written_parameter_is_noticed(bench: Callable[..., Bench]) -> None:
    """Case 34."""

    def writes(module: Any, i: int, inputs: Inputs) -> object:
        output = plain_call(module, i, inputs)
        module.linear.weight.mul_(1.5)
        return output

    made = bench(returning(lambda m, x: x + 1))
    made.reference()
    result = made.candidate(writes)
    assert result.verdict == "fail"
    assert "parameter linear.weight" in (result.reason or "")


def test_inputs_changed_in_place_are_compared(bench: Callable[..., Bench]) -> None:
    """Case 34: in-place work on the arguments belongs to the result."""
    made = bench(returning(lambda m, x: x.mul_(2).sum()))
    made.reference()
    assert made.candidate().verdict == "pass"
    result = made.candidate(lambda m, i, inputs: (inputs.args[0] * 2).sum())
    assert result.verdict == "fail"
    assert "input [0]" in (result.worst or "")
    assert "first at call 0" in (result.reason or "")
    other = bench(returning(lambda m, x: x.sum()))
    other.reference()
    donated = other.candidate(
        lambda m, i, inputs: (inputs.args[0].sum(), inputs.args[0].zero_())[0]
    )
    assert "input [0]" in (donated.reason or "")
    assert "eager does not change it" in (donated.reason or "")


@pytest.mark.parametrize("kind", ["batch norm", "counter"])
def test_stateful_models_agree_from_fresh_state(bench: Callable[..., Bench], kind: str) -> None:
    """Case 29: each side starts from the same fresh state; step counters agree."""

    def counted(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.count += 1
        return x * m.count

    makes: dict[str, Make] = {
        "batch norm": lambda dtype: nn.BatchNorm1d(8).train(),
        "counter": returning(counted),
    }
    made = bench(makes[kind])
    assert made.reference().verdict == "pass"
    result = made.candidate()
    assert result.verdict == "pass", result.reason
    used = made.build()
    for i in range(2):
        plain_call(used.module, i, feed(i, torch.float32))
    made.build = lambda: used  # type: ignore[method-assign]
    assert made.candidate().verdict == "not_comparable"


# ---- randomness ------------------------------------------------------------------------------


def test_dropout_is_random_and_not_wrong(bench: Callable[..., Bench]) -> None:
    """Case 28, first model: eager repeats itself, another generator order does not."""
    made = bench(lambda dtype: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train())
    eager = made.reference()
    assert eager.verdict == "pass"
    assert "the model draws random numbers" in eager.notes
    assert made.candidate().verdict == "pass"

    def other_order(module: nn.Module, i: int, inputs: Inputs) -> object:
        torch.rand(3)
        return plain_call(module, i, inputs)

    result = made.candidate(other_order)
    assert result.verdict == "random"
    assert (result.reason or "").startswith("random: not comparable")


def test_randomness_does_not_excuse_another_structure(bench: Callable[..., Bench]) -> None:
    """Case 28."""
    made = bench(lambda dtype: nn.Dropout(0.5).train())
    made.reference()
    assert made.candidate(change_call(0, lambda o: o.double())).verdict == "fail"


@pytest.mark.parametrize("source", ["torch", "python", "numpy"])
def test_seeded_generators_are_repeatable(bench: Callable[..., Bench], source: str) -> None:
    """Case 28: Python's and numpy's generators are seeded for each call as well."""
    draw: dict[str, Callable[[], float]] = {
        "torch": lambda: float(torch.rand(())),
        "python": random.random,
        "numpy": lambda: float(np.random.rand()),
    }
    made = bench(returning(lambda m, x: x * draw[source]()))
    assert made.reference().verdict == "pass"
    assert made.candidate().verdict == "pass"
    doubled = change_call(1, lambda o: o * 2)
    assert made.candidate(doubled).verdict == "random"


def unseeded() -> Iterator[float]:
    while True:
        yield int.from_bytes(os.urandom(4), "big") / 2**32


def test_an_unseeded_generator_is_not_repeatable(bench: Callable[..., Bench]) -> None:
    """Case 28, second model."""
    draws = unseeded()
    made = bench(returning(lambda m, x: x + next(draws)))
    eager = made.reference()
    assert eager.verdict == "random"
    assert (eager.reason or "").startswith("eager not repeatable: call 0: out differs from itself")
    assert made.candidate().verdict == "random"


def test_inputs_that_ignore_their_seed_are_not_repeatable(bench: Callable[..., Bench]) -> None:
    """Case 28."""
    made = bench(returning(lambda m, x: x))
    made.options = {"make_inputs": lambda seed: Inputs((torch.tensor(next(unseeded())),))}
    eager = made.reference()
    assert eager.verdict == "random"
    assert "make_inputs gives other values for the same seed" in (eager.reason or "")


# ---- the float64 copy ------------------------------------------------------------------------


def test_the_golden_run_uses_eagers_weights_inputs_and_state(bench: Callable[..., Bench]) -> None:
    """A copy built in float64 draws other numbers than eager's; it must not matter."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))
            self.register_buffer("table", torch.randn(8), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight + self.table

    made = bench(lambda dtype: Stateful())

    def build_golden() -> Workload:
        torch.manual_seed(99)
        return Workload(
            module=Stateful().double(),
            make_inputs=lambda seed: Inputs((torch.randn(4, 8, dtype=torch.float64),)),
            items=1.0,
        )

    made.build_golden = build_golden  # type: ignore[method-assign]
    eager = made.reference()
    assert eager.error_eager is not None
    assert 0 < eager.error_eager < 1e-6


def test_without_a_golden_run_the_other_rule_judges(bench: Callable[..., Bench]) -> None:
    made = bench(returning(lambda m, x: m.linear(x)))

    def fails() -> Workload:
        raise NotImplementedError("\"grouped_mm\" not implemented for 'Double'\nmore")

    slightly = change_call(1, lambda o: o * (1 + 1e-6))
    for build_golden in (
        fails,
        lambda: None,
        lambda: workload(lambda d: nn.Linear(9, 9), torch.float64),
    ):
        made.build_golden = build_golden  # type: ignore[method-assign, assignment]
        assert made.reference().verdict == "pass"
        result = made.candidate(slightly)
        assert result.verdict == "pass"
        assert result.notes[0] == WITHOUT_GOLDEN
        assert result.notes[1].startswith("no higher-precision reference: ")
        assert made.candidate(change_call(1, lambda o: o * 1.001)).verdict == "fail"


def test_a_golden_forward_that_fails_is_told(bench: Callable[..., Bench]) -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            raise NotImplementedError("no double kernel")
        return m.linear(x)

    made = bench(returning(function))
    assert made.reference().verdict == "pass"
    result = made.candidate(change_call(0, lambda o: o * (1 + 1e-6)))
    assert "the float64 copy failed: NotImplementedError: no double kernel" in result.notes[1]


# ---- the file --------------------------------------------------------------------------------


def test_unusable_references_are_told(bench: Callable[..., Bench], tmp_path: Path) -> None:
    made = bench(returning(lambda m, x: m.linear(x)))
    missing = made.candidate()
    assert missing.verdict == "not_comparable"
    assert missing.reason == "there is no reference file reference.pt"
    made.reference()
    whole = made.path.read_bytes()
    for damaged in (b"", b"not a reference", whole[: len(whole) // 2]):
        made.path.write_bytes(damaged)
        result = made.candidate()
        assert result.verdict == "not_comparable"
        assert "cannot be read" in (result.reason or "")
    for content, text in (
        ({"format": 99}, "format 99"),
        ({"format": 1}, "damaged"),
        ([1], "format"),
    ):
        torch.save(content, made.path)
        result = made.candidate()
        assert result.verdict == "not_comparable"
        assert text in (result.reason or "")


def test_nothing_in_the_file_is_executed(bench: Callable[..., Bench], tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "boom"),)

    made = bench(returning(lambda m, x: x))
    torch.save({"format": 1, "bomb": Bomb()}, made.path)
    assert made.candidate().verdict == "not_comparable"
    assert not (tmp_path / "boom").exists()


def test_another_model_is_not_compared(bench: Callable[..., Bench]) -> None:
    made = bench(returning(lambda m, x: m.linear(x)))
    made.reference()

    def other(dtype: torch.dtype) -> nn.Module:
        torch.manual_seed(12345)
        return Returns(lambda m, x: m.linear(x))

    result = made.candidate(make=other)
    assert result.verdict == "not_comparable"
    assert result.reason == "the reference was made from other weights"


def test_the_file_is_replaced_as_a_whole(bench: Callable[..., Bench]) -> None:
    made = bench(returning(lambda m, x: x))
    made.reference()
    made.reference()
    assert [path.name for path in made.path.parent.iterdir()] == ["reference.pt"]


def test_unchanged_inputs_and_buffers_are_not_stored(bench: Callable[..., Bench]) -> None:
    made = bench(returning(lambda m, x: x.sum()))
    made.options = {"make_inputs": lambda seed: Inputs((torch.ones(250_000) * seed,))}
    made.golden = None
    made.reference()
    assert made.path.stat().st_size < 100_000


def test_the_weights_hash_sees_names_shapes_and_values() -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    first = weights_hash(module)
    assert weights_hash(module) == first
    module.weight.data = module.weight.data.T.contiguous()
    assert weights_hash(module) != first
    assert weights_hash(nn.Sequential(module)) != weights_hash(module)


def test_works_under_inference_mode(bench: Callable[..., Bench]) -> None:
    made = bench(returning(remember))
    with torch.inference_mode():
        assert made.reference().verdict == "pass"
        assert made.candidate().verdict == "pass"
    grad = Bench(made.path, returning(lambda m, x: m.linear(x)))
    with torch.enable_grad():
        assert grad.reference().verdict == "pass"
        assert grad.candidate().verdict == "pass"


def test_a_compiled_module_passes(bench: Callable[..., Bench]) -> None:
    """The buffers of the module are the ones a compiled call writes to (case 34)."""
    made = bench(returning(remember))
    made.reference()
    torch.compiler.reset()
    built: dict[int, Any] = {}

    def compiled(module: nn.Module, i: int, inputs: Inputs) -> object:
        run = built.setdefault(id(module), torch.compile(module, backend="aot_eager"))
        return run(*inputs.args)

    result = made.candidate(compiled)
    assert result.verdict == "pass", result.reason

"""The tolerance rule on single leaves: what has to pass, what has to be caught."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchbench.correctness.rules import Judged, judge, tolerance

torch.set_num_threads(1)  # on tensors this small a second thread only spins

NAN, INF = math.nan, math.inf
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def run(
    reference: torch.Tensor, candidate: torch.Tensor, golden: torch.Tensor | None = None
) -> Judged:
    return judge(reference, candidate, golden, tolerance(None, reference.dtype))


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
modest = st.floats(min_value=-100, max_value=100, width=32)


@given(st.lists(st.floats(width=32), max_size=40), st.booleans(), st.sampled_from(FLOATS))
@settings(max_examples=150, deadline=None)
def test_what_equals_eager_always_passes(
    values: list[float], with_golden: bool, dtype: torch.dtype
) -> None:
    """Case 32 among others: NaN, infinities, zeros, denormals, extremes, empty leaves."""
    reference = torch.tensor(values, dtype=torch.float64).to(dtype)
    golden = torch.tensor(values, dtype=torch.float64) if with_golden else None
    judged = run(reference, reference.clone(), golden)
    assert judged.ok, judged.reason
    _all_finite(judged)


@given(st.lists(modest, min_size=1, max_size=3000), st.data(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_one_wrong_element_is_caught_in_float32(
    values: list[float], data: st.DataObject, with_golden: bool
) -> None:
    """Case 26: one element, however large the leaf."""
    reference = torch.tensor(values, dtype=torch.float32)
    candidate = reference.clone()
    index = data.draw(st.integers(0, len(values) - 1))
    allowed = tolerance(None, torch.float32)
    # Outside the band that the rule states: relative to the element and to the largest one.
    step = 2.1 * allowed.tol * max(1.0, float(reference.abs().max()))
    candidate[index] += step * data.draw(st.floats(1.1, 100))
    judged = run(reference, candidate, reference.double() if with_golden else None)
    assert not judged.ok
    assert judged.reason
    _all_finite(judged)


@given(
    st.lists(finite, min_size=1, max_size=30),
    st.sampled_from([NAN, INF, -INF]),
    st.data(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_nan_never_slips_through(
    values: list[float], bad: float, data: st.DataObject, swap: bool, with_golden: bool
) -> None:
    """Case 32 b, c, d: NaN for a number, a number for NaN, infinity."""
    reference = torch.tensor(values, dtype=torch.float32)
    candidate = reference.clone()
    candidate[data.draw(st.integers(0, len(values) - 1))] = bad
    if swap:
        reference, candidate = candidate, reference
    judged = run(reference, candidate, reference.double() if with_golden else None)
    assert not judged.ok
    assert judged.reason is not None
    assert "at 1 position (" in judged.reason
    _all_finite(judged)


def _all_finite(judged: Judged) -> None:
    for name in ("max_abs", "max_rel", "cosine", "error_eager", "error_candidate", "tolerance"):
        value = getattr(judged, name)
        assert value is None or math.isfinite(value), name


def test_the_same_nan_and_infinity_pass_with_a_note() -> None:
    """Case 32 a."""
    reference = torch.tensor([NAN, 1.0, NAN, INF, -INF])
    judged = run(reference, reference.clone())
    assert judged.ok
    assert judged.notes == [
        "NaN at the same 2 positions",
        "infinity at the same 2 positions",
    ]


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ([NAN, 1.0], [1.0, 1.0], "1 NaN only in eager"),
        ([2.0, 1.0], [NAN, NAN], "2 NaN only in the candidate"),
        ([INF, 1.0], [-INF, 1.0], "1 infinity in one of the two or with the other sign"),
        ([INF, NAN], [NAN, INF], "at 2 positions"),
    ],
)
def test_misplaced_nan_is_counted(left: list[float], right: list[float], text: str) -> None:
    """Case 32 b, c, d."""
    judged = run(torch.tensor(left), torch.tensor(right))
    assert not judged.ok
    assert text in (judged.reason or "")


def test_nan_next_to_a_wrong_number_does_not_hide_it() -> None:
    judged = run(torch.tensor([NAN, 1.0]), torch.tensor([NAN, 2.0]))
    assert not judged.ok
    assert judged.max_abs == 1.0


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.uint16])
def test_integers_and_booleans_must_be_equal(dtype: torch.dtype) -> None:
    """Case 26: a token that differs is a difference; the share of equal ones is told."""
    reference = torch.tensor([0, 1, 1, 0]).to(dtype)
    candidate = torch.tensor([0, 1, 1, 1]).to(dtype)
    judged = run(reference, candidate)
    assert run(reference, reference.clone()).ok
    assert not judged.ok
    assert "1 of 4" in (judged.reason or "")
    assert "75 % equal" in (judged.reason or "")


def test_one_wrong_element_in_a_large_half_leaf_is_caught() -> None:
    """Case 26: the mean error of a million elements does not move, the largest does."""
    torch.manual_seed(0)
    golden = torch.randn(1 << 20, dtype=torch.float64)
    reference = golden.to(torch.bfloat16)
    candidate = (golden * (1 + 3e-4)).to(torch.bfloat16)
    assert run(reference, candidate, golden.float()).ok
    candidate[777] += 3.0
    judged = run(reference, candidate, golden.float())
    assert not judged.ok
    assert "an element is off" in (judged.reason or "")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_compute_that_rounds_less_often_than_eager_passes(dtype: torch.dtype) -> None:
    """A compiled chain stays in float32; it is nearer to the truth than eager, and passes."""
    torch.manual_seed(1)
    x, w = torch.randn(64, 96), torch.randn(96, 96) / 96**0.5
    x, w = x.to(dtype), w.to(dtype)

    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.nn.functional.gelu(x @ w) * 1.5 + x
        return x

    eager, golden = chain(x, w), chain(x.double(), w.double())
    fused = chain(x.float(), w.float()).to(dtype)
    judged = run(eager, fused, golden.float())
    assert judged.ok
    assert judged.error_candidate is not None
    assert judged.error_eager is not None
    assert judged.error_candidate < judged.error_eager
    assert run(eager, fused).ok


def test_one_ulp_passes_although_eager_was_exact_by_luck() -> None:
    golden = torch.tensor([0.9], dtype=torch.float64)
    eager = golden.to(torch.bfloat16)
    candidate = torch.nextafter(eager, torch.tensor([1.0], dtype=torch.bfloat16))
    assert run(eager, candidate, golden).ok


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("with_golden", [True, False])
def test_tiny_values_have_no_free_pass(dtype: torch.dtype, with_golden: bool) -> None:
    """Probabilities over a large vocabulary are all smaller than an absolute tolerance."""
    torch.manual_seed(2)
    logits = torch.randn(4, 20_000, dtype=torch.float64)
    golden = logits.softmax(-1)
    reference = golden.to(dtype)
    wrong = logits.roll(1, -1).softmax(-1).to(dtype)
    truth = golden if with_golden else None
    assert run(reference, reference.clone(), truth).ok
    assert not run(reference, wrong, truth).ok


def test_what_is_left_after_cancellation_passes() -> None:
    golden = torch.zeros(50, dtype=torch.float64)
    torch.manual_seed(3)
    eager, candidate = torch.randn(50) * 1e-8, torch.randn(50) * 4e-8
    assert run(eager, candidate, golden).ok
    assert not run(eager, torch.full((50,), 1e-2), golden).ok


def test_zeros_have_an_absolute_tolerance() -> None:
    assert run(torch.zeros(3), torch.full((3,), 1e-7)).ok
    judged = run(torch.zeros(3), torch.full((3,), 1e-2))
    assert not judged.ok
    assert judged.max_rel is None


def test_a_golden_run_far_from_eager_is_no_reference() -> None:
    """A float64 copy that went another way would otherwise let everything pass."""
    torch.manual_seed(4)
    eager = torch.randn(2000)
    judged = run(eager, eager + 0.1, torch.randn(2000, dtype=torch.float64))
    assert not judged.ok
    assert not judged.golden
    assert any("too far" in note for note in judged.notes)
    for broken in (torch.full((2000,), NAN), torch.full((2000,), INF), torch.zeros(2000)):
        assert not run(eager, eager + 0.1, broken.double()).ok


@pytest.mark.parametrize(
    ("factor", "with_golden", "ok"),
    [(1.05, True, False), (1.05, False, False), (1 + 1e-6, True, True), (1 + 1e-6, False, True)],
)
def test_a_scaled_output_is_caught_in_float32(factor: float, with_golden: bool, ok: bool) -> None:
    """The cosine of x and 1.05 x is one, so cosine alone is no check."""
    torch.manual_seed(5)
    golden = torch.randn(3000, dtype=torch.float64)
    eager = golden.float()
    assert run(eager, eager * factor, golden if with_golden else None).ok is ok


def test_complex_values_are_compared() -> None:
    reference = torch.tensor([1 + 2j, 3 - 1j])
    assert run(reference, reference.clone(), reference.to(torch.complex128)).ok
    assert not run(reference, reference.conj().resolve_conj()).ok


@pytest.mark.parametrize("size", [1e-200, 1e200, 1e-320, 1.7e308])
def test_extreme_float64_values_keep_their_verdict(size: float) -> None:
    reference = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64) * size
    judged = run(reference, reference.clone())
    assert judged.ok
    wrong = run(reference, -reference)
    assert not wrong.ok
    _all_finite(judged)
    _all_finite(wrong)


def test_the_coarser_dtype_sets_the_tolerance() -> None:
    """Logits cast to float32 at the end of a bfloat16 model are bfloat16 logits."""
    assert tolerance(torch.bfloat16, torch.float32) == tolerance(None, torch.bfloat16)
    assert tolerance(torch.float32, torch.float16) == tolerance(None, torch.float16)
    assert tolerance(torch.float32, torch.float64) == tolerance(None, torch.float32)
    assert tolerance(torch.float32, torch.complex64) == tolerance(None, torch.float32)


def test_blocks_do_not_change_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(6)
    golden = torch.randn(1000, dtype=torch.float64)
    eager = golden.bfloat16()
    candidate = (golden * 1.001).bfloat16()
    whole = run(eager, candidate, golden)
    monkeypatch.setattr("benchbench.correctness.rules.BLOCK_ELEMENTS", 7)
    parts = run(eager, candidate, golden)
    assert parts.max_abs == whole.max_abs
    assert parts.error_candidate == pytest.approx(whole.error_candidate)
    assert parts.cosine == pytest.approx(whole.cosine)

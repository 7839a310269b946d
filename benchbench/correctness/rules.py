"""The tolerance rule for one leaf: pure numbers in, a verdict with its figures out.

It is the rule of PyTorch's own model checks (close to eager, or not much farther from a float64
copy than eager is), made stricter where that rule is known to let faults through; see
docs/accuracy.md for each constant. Tensors are read in blocks, so that a comparison needs a few
megabytes beside the tensors themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from benchbench.correctness import leaves

BLOCK_ELEMENTS = 1 << 18

EXTREME = 1e-100
"""Beyond this (and one over it) squares leave float64's range."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is allowed in one dtype."""

    tol: float
    """Absolute (for values of size one) and relative tolerance of the direct comparison."""
    factor: float
    """How many times eager's own error the candidate may have."""
    max_rel: float
    """Without a higher-precision reference: bound on max|d| / max|reference|."""
    cosine: float
    """Without a higher-precision reference: smallest cosine."""
    far: float
    """A reference from which eager is this far (relative RMSE) says nothing about the candidate."""
    epsilon: float


# Coarsest last: of the case's dtype and the leaf's own the coarser counts, because logits that
# are cast to float32 at the end are still bfloat16 logits.
_TABLE: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(1e-9, 2.0, 1e-9, 0.999999999, 1e-6, 2.3e-16),
    torch.float32: Tolerance(1e-4, 2.0, 1e-4, 0.99999, 1e-2, 1.2e-7),
    torch.float16: Tolerance(1e-3, 3.0, 1e-2, 0.9999, 0.1, 9.8e-4),
    torch.bfloat16: Tolerance(1e-3, 3.0, 5e-2, 0.999, 0.2, 7.9e-3),
    torch.float8_e4m3fn: Tolerance(5e-2, 3.0, 0.15, 0.99, 0.3, 0.125),
    torch.float8_e5m2: Tolerance(5e-2, 3.0, 0.3, 0.98, 0.5, 0.25),
}
_ORDER = list(_TABLE)

SMALL_NUMEL = 1000
SMALL_FACTOR = 3.0
MAX_FACTOR = 2.0
"""The largest single error may be this many times more than ``factor`` times eager's largest."""


def tolerance(case_dtype: torch.dtype | None, leaf_dtype: torch.dtype) -> Tolerance:
    """Return the tolerance of the coarser of the two dtypes; others count as float32."""
    real = leaf_dtype.to_real() if leaf_dtype.is_complex else leaf_dtype
    known = [_ORDER.index(dtype) for dtype in (case_dtype, real) if dtype in _TABLE]
    return _TABLE[_ORDER[max(known)]] if known else _TABLE[torch.float32]


def is_fraction(dtype: torch.dtype) -> bool:
    """Say whether values of this dtype are rounded, so that a tolerance makes sense."""
    return dtype.is_floating_point or dtype.is_complex


@dataclass(slots=True)
class Judged:
    """How one leaf came out. Figures are absent where they are not finite or not defined."""

    ok: bool
    severity: float
    """Error over allowed error; infinite for a fault that no tolerance applies to."""
    reason: str | None = None
    by_value: bool = True
    """False when the structure differs, which random numbers cannot explain."""
    golden: bool = False
    """Whether the higher-precision reference was there to be used."""
    max_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    error_eager: float | None = None
    error_candidate: float | None = None
    tolerance: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Sums:
    """Accumulated over the blocks of one leaf."""

    unit: float = 1.0
    """Values are divided by this before they are squared, lest float64 over- or underflows."""
    peak: float = 0.0
    max_abs: float = 0.0
    far_from_close: bool = False
    dot: float = 0.0
    reference_squares: float = 0.0
    candidate_squares: float = 0.0
    golden_squares: float = 0.0
    golden_peak: float = 0.0
    eager_errors: float = 0.0
    candidate_errors: float = 0.0
    eager_worst: float = 0.0
    candidate_worst: float = 0.0
    finite: int = 0
    nan_both: int = 0
    infinite_both: int = 0
    nan_lost: int = 0
    nan_new: int = 0
    infinity: int = 0

    @property
    def misplaced(self) -> int:
        return self.nan_lost + self.nan_new + self.infinity


def judge(
    reference: torch.Tensor,
    candidate: torch.Tensor,
    golden: torch.Tensor | None,
    allowed: Tolerance,
) -> Judged:
    """Compare two CPU tensors of equal shape and dtype.

    ``golden`` is the same leaf in higher precision, or ``None``.
    """
    if not is_fraction(reference.dtype):
        return _judge_exact(reference, candidate)
    if golden is not None and (
        golden.shape != reference.shape or golden.is_complex() != reference.is_complex()
    ):
        golden = None
    sums = _measure(_flat(reference), _flat(candidate), golden, allowed)
    notes = []
    if sums.nan_both:
        notes.append(f"NaN at the same {sums.nan_both} positions")
    if sums.infinite_both:
        notes.append(f"infinity at the same {sums.infinite_both} positions")
    if sums.misplaced:
        judged = Judged(False, math.inf, _misplaced_text(sums))
    elif golden is not None and (trusted := _judge_golden(sums, allowed, reference)) is not None:
        judged = trusted
    else:
        if golden is not None and sums.max_abs:
            notes.append("eager is too far from its float64 copy for that to be a reference")
        judged = _judge_direct(sums, allowed)
    judged.notes = notes
    judged.max_abs = _known(sums.max_abs)
    judged.max_rel = _known(_ratio(sums.max_abs, sums.peak))
    judged.cosine = _known(_cosine(sums))
    return judged


def _judge_exact(reference: torch.Tensor, candidate: torch.Tensor) -> Judged:
    left, right = leaves.bits(reference), leaves.bits(candidate)
    differ = 0
    for start in range(0, left.numel(), BLOCK_ELEMENTS):
        stop = start + BLOCK_ELEMENTS
        differ += int((left[start:stop] != right[start:stop]).sum())
    if not differ:
        return Judged(True, 0.0, max_abs=0.0, max_rel=0.0)
    total = left.numel()
    share = 100 * (total - differ) / total
    kind = str(reference.dtype).removeprefix("torch.")
    return Judged(
        False,
        math.inf,
        f"{differ} of {total} {kind} elements differ ({share:.4g} % equal; these must be equal)",
    )


def _measure(
    reference: torch.Tensor,
    candidate: torch.Tensor,
    golden: torch.Tensor | None,
    allowed: Tolerance,
) -> _Sums:
    sums = _Sums()
    sums.peak = max((_peak(block) for (block,) in _blocks(reference)), default=0.0)
    if sums.peak and not EXTREME < sums.peak < 1 / EXTREME:
        sums.unit = sums.peak
    scale = _scale(sums.peak)
    if golden is None:
        for left, right in _blocks(reference, candidate):
            _add(sums, left, right, None, allowed.tol, scale)
    else:
        for left, right, truth in _blocks(reference, candidate, _flat(golden)):
            _add(sums, left, right, truth, allowed.tol, scale)
    return sums


def _add(
    sums: _Sums,
    left: torch.Tensor,
    right: torch.Tensor,
    truth: torch.Tensor | None,
    tol: float,
    scale: float,
) -> None:
    finite = left.isfinite() & right.isfinite()
    if not finite.all():
        _count_special(sums, left, right)
        left, right = left[finite], right[finite]
        truth = None if truth is None else truth[finite]
    if not left.numel():
        return
    sums.finite += left.numel()
    difference = (right - left).abs_()
    sums.max_abs = max(sums.max_abs, float(difference.max()))
    close = difference <= left.abs().mul_(tol).add_(tol * scale)
    sums.far_from_close |= not bool(close.all())
    _add_products(sums, left, right)
    if truth is None:
        return
    # A golden value that is not finite makes these sums NaN, and a NaN sum is never trusted.
    sums.golden_squares += float(truth @ truth)
    sums.golden_peak = max(sums.golden_peak, float(truth.abs().max()))
    error = left - truth
    sums.eager_errors += float(error @ error)
    sums.eager_worst = max(sums.eager_worst, float(error.abs_().max()))
    error = right - truth
    sums.candidate_errors += float(error @ error)
    sums.candidate_worst = max(sums.candidate_worst, float(error.abs_().max()))


def _add_products(sums: _Sums, left: torch.Tensor, right: torch.Tensor) -> None:
    if sums.unit != 1.0:
        left, right = left / sums.unit, right / sums.unit
    sums.dot += float(left @ right)
    sums.reference_squares += float(left @ left)
    sums.candidate_squares += float(right @ right)


def _count_special(sums: _Sums, left: torch.Tensor, right: torch.Tensor) -> None:
    """Count NaN and infinity, which must be at the same places on both sides."""
    nan_left, nan_right = left.isnan(), right.isnan()
    sums.nan_both += int((nan_left & nan_right).sum())
    sums.nan_lost += int((nan_left & ~nan_right).sum())
    sums.nan_new += int((~nan_left & nan_right).sum())
    infinite = (left.isinf() | right.isinf()) & ~nan_left & ~nan_right
    sums.infinite_both += int((infinite & (left == right)).sum())
    sums.infinity += int((infinite & (left != right)).sum())


def _judge_golden(sums: _Sums, allowed: Tolerance, reference: torch.Tensor) -> Judged | None:
    """Judge by the higher-precision reference; ``None`` when it is no reference for this leaf."""
    count = max(1, sums.finite)
    eager = math.sqrt(sums.eager_errors / count)
    candidate = math.sqrt(sums.candidate_errors / count)
    golden_rms = math.sqrt(sums.golden_squares / count)
    if not math.isfinite(eager) or not math.isfinite(golden_rms):
        return None
    scale = _scale(sums.peak)
    rounding_noise = sums.peak <= allowed.tol and golden_rms <= eager
    if rounding_noise and sums.max_abs <= allowed.tol:
        # The true value is zero, and both sides give what is left after cancellation.
        return Judged(
            True,
            sums.max_abs / allowed.tol,
            golden=True,
            error_eager=eager,
            error_candidate=_known(candidate),
            tolerance=allowed.tol,
        )
    if eager > allowed.far * golden_rms:
        return None
    # Nobody can do better than to round the true value to the leaf's dtype.
    half_ulp = allowed.epsilon / 2
    factor = _factor(allowed, reference)
    limit = factor * max(eager, half_ulp * golden_rms) + allowed.tol / 10 * scale
    single = MAX_FACTOR * factor * max(sums.eager_worst, half_ulp * sums.golden_peak)
    single += allowed.tol * scale
    judged = Judged(
        True,
        _severity(_ratio(candidate, limit), _ratio(sums.candidate_worst, single)),
        golden=True,
        error_eager=eager,
        error_candidate=_known(candidate),
        tolerance=limit,
    )
    if not sums.far_from_close:
        judged.severity = min(judged.severity, 1.0)
    elif not candidate <= limit:
        judged.ok = False
        judged.reason = (
            f"error {candidate:.2g} against the higher-precision reference; "
            f"eager's is {eager:.2g}, allowed {limit:.2g}"
        )
    elif not sums.candidate_worst <= single:
        judged.ok = False
        judged.reason = (
            f"an element is off by {sums.candidate_worst:.2g}; "
            f"eager's largest error is {sums.eager_worst:.2g}, allowed {single:.2g}"
        )
    return judged


def _judge_direct(sums: _Sums, allowed: Tolerance) -> Judged:
    """Judge without a reference: nothing far out, and the direction right."""
    if not sums.peak:
        # All zeros (or nothing finite) have no size to compare with: the tolerance is absolute.
        ok = sums.max_abs <= allowed.tol
        reason = None if ok else f"off by {sums.max_abs:.2g} where eager gives only zeros"
        severity = _ratio(sums.max_abs, allowed.tol)
        return Judged(ok, severity, reason, tolerance=allowed.tol)
    relative, cosine = _ratio(sums.max_abs, sums.peak), _cosine(sums)
    ok = relative <= allowed.max_rel and cosine >= allowed.cosine
    severity = _severity(relative / allowed.max_rel, (1 - cosine) / (1 - allowed.cosine))
    reason = None
    if not ok:
        reason = (
            f"off by {sums.max_abs:.2g}, {relative:.2g} times eager's largest value "
            f"(allowed {allowed.max_rel:g}), cosine {cosine:.6f} (at least {allowed.cosine:g})"
        )
    return Judged(ok, severity, reason, tolerance=allowed.max_rel)


def _factor(allowed: Tolerance, reference: torch.Tensor) -> float:
    """Return how many times eager's error is allowed; small leaves scatter more."""
    pooled = reference.dim() == 4 and tuple(reference.shape[-2:]) == (1, 1)
    if reference.numel() < SMALL_NUMEL or pooled:
        return max(allowed.factor, SMALL_FACTOR)
    return allowed.factor


def _scale(peak: float) -> float:
    """Return the size that an absolute tolerance is relative to: never more than one.

    Without this, probabilities over a vocabulary (about 1e-5 each) would pass whatever they are.
    """
    return min(1.0, peak) if peak else 1.0


def _misplaced_text(sums: _Sums) -> str:
    parts = (
        (sums.nan_lost, "NaN only in eager"),
        (sums.nan_new, "NaN only in the candidate"),
        (sums.infinity, "infinity in one of the two or with the other sign"),
    )
    listed = ", ".join(f"{count} {text}" for count, text in parts if count)
    where = "1 position" if sums.misplaced == 1 else f"{sums.misplaced} positions"
    return f"NaN or infinity differ at {where} ({listed})"


def _blocks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    for start in range(0, tensors[0].numel(), BLOCK_ELEMENTS):
        stop = start + BLOCK_ELEMENTS
        yield tuple(tensor[start:stop].to(torch.float64) for tensor in tensors)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat


def _peak(block: torch.Tensor) -> float:
    block = block.abs()
    return float(block[block.isfinite()].max()) if block.isfinite().any() else 0.0


def _cosine(sums: _Sums) -> float:
    norm = math.sqrt(sums.reference_squares) * math.sqrt(sums.candidate_squares)
    if norm:
        return min(1.0, sums.dot / norm)
    return 1.0 if sums.reference_squares == sums.candidate_squares else 0.0


def _ratio(part: float, whole: float) -> float:
    if whole:
        return part / whole
    return math.inf if part else 0.0


def _severity(*ratios: float) -> float:
    """Return the largest; what is not a number counts as infinitely bad."""
    return max(ratio if math.isfinite(ratio) else math.inf for ratio in ratios)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None

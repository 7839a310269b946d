"""Verdicts: what a set of paired log ratios, one per process, allows one to say.

The unit of inference is the process (block), never the iteration: the thousand iterations of one
process share its memory layout, allocator state and minute, and rules that take them for
independent observations cry wolf on identical code (docs/method.md has the measured rates). So
every function here takes one number per process, ``log(baseline latency / candidate latency)``,
which is positive when the candidate is faster.

Pure: floats in, a frozen :class:`Decision` out; no torch, no clock, no files.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import msgspec


class Verdict(enum.Enum):
    """What may be said of a candidate against its baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"
    NOISY = "noisy"
    NOT_COMPARABLE = "not comparable"


MARGIN = 0.02
"""Smallest ratio that matters, as a fraction: layout and cache effects of one build reach 2 %."""

SINGLE_PROCESS_MARGIN = 0.05
"""One process a side: nothing below 5 % (or 3 sd of the series) is called a difference."""

MAX_FLAGGED_SHARE = 1 / 3
"""More flagged processes than this and the comparison is noisy, whatever its interval says."""

CONFIDENCE = 0.95
LOOKS = (5, 9, 15)
"""Blocks after which a sequential comparison may stop."""

LOOK_CONFIDENCE = 0.978
"""Level of each of three looks that keeps 95 % overall (Pocock 1977, alpha = 0.0221 for K = 3)."""

MDE_POWER = 0.95


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verdict with everything that it was read from."""

    verdict: Verdict
    n: int
    """Processes that the interval is over."""
    speedup: float | None = None
    """Geometric mean of baseline / candidate; above 1 the candidate is faster."""
    ci_low: float | None = None
    ci_high: float | None = None
    confidence: float = CONFIDENCE
    margin: float = MARGIN
    sd: float | None = None
    """Standard deviation of the log ratios between processes."""
    mde: float | None = None
    """Smallest change, as a fraction, that would have been seen in 95 % of such comparisons."""
    flagged: int = 0
    """Processes left out by the pre-declared rule (starved, throttled, foreign device user)."""
    advisory: bool = False
    """One process a side: the interval, if any, is not over processes."""
    reason: str = ""


def decide(
    log_ratios: Sequence[float],
    *,
    flagged: int = 0,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
    usual_sd: float | None = None,
) -> Decision:
    """Judge one comparison from the log ratios of its unflagged processes.

    The interval is the paired t interval over processes. ``faster`` and ``slower`` need an interval
    that excludes 1 *and* an estimate beyond ``margin``; ``same`` needs the whole interval inside
    the margin (two one-sided tests); what is neither is ``unclear``. ``usual_sd`` is the
    between-process standard deviation of this series' history (log scale), where there is one.
    """
    values = [float(value) for value in log_ratios]
    if any(not math.isfinite(value) for value in values):
        raise ValueError("log ratios must be finite")
    n, total = len(values), len(values) + flagged
    if n == 0:
        return Decision(
            verdict=Verdict.NOISY if flagged else Verdict.NOT_COMPARABLE,
            n=0,
            flagged=flagged,
            margin=margin,
            confidence=confidence,
            reason=f"all {flagged} processes were flagged" if flagged else "no process",
        )
    if n == 1:
        return _single(values[0], flagged, margin, usual_sd)
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = _t_quantile((1 + confidence) / 2, n - 1) * sd / math.sqrt(n)
    low, high = mean - half, mean + half
    verdict, reason = _classify(mean, low, high, margin)
    if flagged > MAX_FLAGGED_SHARE * total:
        verdict, reason = Verdict.NOISY, f"{flagged} of {total} processes were flagged"
    elif usual_sd is not None and sd > 3 * max(usual_sd, 0.002):
        verdict = Verdict.NOISY
        reason = f"processes spread {sd:.1%}, three times the usual {usual_sd:.1%}"
    return Decision(
        verdict=verdict,
        n=n,
        speedup=math.exp(mean),
        ci_low=math.exp(low),
        ci_high=math.exp(high),
        confidence=confidence,
        margin=margin,
        sd=sd,
        mde=smallest_effect(sd, n, alpha=1 - confidence),
        flagged=flagged,
        reason=reason,
    )


def decided(decision: Decision, *, half_width: float = 0.01) -> bool:
    """Say whether a sequential comparison may stop at this look.

    It stops when it has a verdict, or when its interval is so narrow that more blocks would not
    help (``unclear`` then means: right at the margin).
    """
    if decision.verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME):
        return True
    if decision.ci_low is None or decision.ci_high is None:
        return False
    return math.log(decision.ci_high / decision.ci_low) / 2 <= half_width


def smallest_effect(
    sd: float, n: int, *, alpha: float = 1 - CONFIDENCE, power: float = MDE_POWER
) -> float | None:
    """Return the smallest change (fraction) that ``n`` processes with this spread would show.

    ``exp((t_alpha/2 + t_power) * sd / sqrt(n)) - 1``, the usual approximation by two central t
    quantiles; ``None`` for fewer than two processes.
    """
    if n < 2:
        return None
    quantiles = _t_quantile(1 - alpha / 2, n - 1) + _t_quantile(power, n - 1)
    return math.expm1(quantiles * sd / math.sqrt(n))


def processes_needed(sd: float, effect: float, *, limit: int = 1000) -> int | None:
    """Return how many processes would show ``effect`` (a fraction), or ``None`` above ``limit``."""
    for n in range(2, limit + 1):
        seen = smallest_effect(sd, n)
        if seen is not None and seen <= effect:
            return n
    return None


def _classify(mean: float, low: float, high: float, margin: float) -> tuple[Verdict, str]:
    edge = math.log1p(margin)
    if low > 0 and mean >= edge:
        return Verdict.FASTER, ""
    if high < 0 and mean <= -edge:
        return Verdict.SLOWER, ""
    if -edge < low and high < edge:
        return Verdict.SAME, f"the interval lies within {margin:.0%}"
    if low <= 0 <= high:
        return Verdict.UNCLEAR, "the interval contains 1"
    return Verdict.UNCLEAR, f"a difference below the margin of {margin:.0%} cannot be excluded"


def _single(value: float, flagged: int, margin: float, usual_sd: float | None) -> Decision:
    edge = math.log1p(max(SINGLE_PROCESS_MARGIN, 3 * usual_sd if usual_sd else 0.0, margin))
    verdict = Verdict.UNCLEAR
    reason = f"one process a side: nothing below {math.expm1(edge):.0%} is called a difference"
    if abs(value) >= edge:
        verdict = Verdict.FASTER if value > 0 else Verdict.SLOWER
        reason = "one process a side: advisory"
    return Decision(
        verdict=verdict,
        n=1,
        speedup=math.exp(value),
        margin=math.expm1(edge),
        flagged=flagged,
        advisory=True,
        reason=reason,
    )


def _t_quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))

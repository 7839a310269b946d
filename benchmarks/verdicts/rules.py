"""Decision rules: ours, and those that other tools use, on the same recorded processes.

A rule of one process a side gets the iterations of two processes (nanoseconds, arrays) and answers
``faster``, ``slower`` or ``none`` for the second against the first. They are written from the
tools' documented rules; each names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

from benchbench.verdicts import Verdict, decide

Samples = npt.NDArray[np.float64]
PairRule = Callable[[Samples, Samples], str]


def ours(log_ratios: Sequence[float]) -> str:
    """Return the product's own verdict over duet processes."""
    verdict = decide(list(log_ratios)).verdict
    return verdict.value if verdict in (Verdict.FASTER, Verdict.SLOWER) else "none"


def _by(ratio: float, significant: bool = True) -> str:
    if not significant or ratio == 1:
        return "none"
    return "slower" if ratio > 1 else "faster"


def threshold(statistic: Callable[[Samples], float], limit: float) -> PairRule:
    """A fixed percentage on one statistic of either side."""

    def rule(a: Samples, b: Samples) -> str:
        ratio = float(statistic(b) / statistic(a))
        return _by(ratio, abs(ratio - 1) > limit)

    return rule


def welch(a: Samples, b: Samples) -> str:
    """Welch's t on iterations, p < 0.05 (hyperfine's comparison script)."""
    p = float(scipy_stats.ttest_ind(a, b, equal_var=False).pvalue)
    return _by(float(b.mean() / a.mean()), p < 0.05)


def mann_whitney(a: Samples, b: Samples) -> str:
    """Mann-Whitney U on iterations, p < 0.05 (Google benchmark's compare.py)."""
    p = float(scipy_stats.mannwhitneyu(a, b).pvalue)
    return _by(float(np.median(b) / np.median(a)), p < 0.05)


def bootstrap(a: Samples, b: Samples, margin: float = 0.0) -> str:
    """Bootstrap interval of the ratio of medians over iterations, 95 %."""
    rng = np.random.default_rng(0)
    pick = [rng.choice(x, (400, min(len(x), 300))) for x in (a, b)]
    ratios = np.median(pick[1], axis=1) / np.median(pick[0], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    ratio = float(np.median(b) / np.median(a))
    return _by(ratio, (low > 1 + margin) or (high < 1 - margin))


def criterion(a: Samples, b: Samples) -> str:
    """Bootstrapped t test, p < 0.05, and the interval of the mean's change beyond 1 %
    (criterion.rs' ``noise_threshold``)."""
    rng = np.random.default_rng(0)
    means = [rng.choice(x, (400, min(len(x), 300))).mean(axis=1) for x in (a, b)]
    change = means[1] / means[0] - 1
    low, high = np.quantile(change, [0.025, 0.975])
    return _by(float(b.mean() / a.mean()), low > 0.01 or high < -0.01)


def nvbench_robust(a: Samples, b: Samples) -> str:
    """Intervals from the minimum to the third quartile must be 0.5 % apart
    (nvbench's nvbench-compare-robust, without the cycle space)."""
    (low_a, high_a), (low_b, high_b) = ((x.min(), np.quantile(x, 0.75)) for x in (a, b))
    if low_b > high_a * 1.005:
        return "slower"
    return "faster" if high_b < low_a / 1.005 else "none"


PEERS: dict[str, PairRule] = {
    "mean +-5 %": threshold(np.mean, 0.05),
    "median +-5 %": threshold(np.median, 0.05),
    "TorchBench, median +-7 %": threshold(np.median, 0.07),
    "pytest-benchmark, min +-5 %": threshold(np.min, 0.05),
    "min +-2 %": threshold(np.min, 0.02),
    "Welch t on iterations": welch,
    "Mann-Whitney on iterations": mann_whitney,
    "bootstrap of iterations": bootstrap,
    "criterion.rs": criterion,
    "nvbench robust": nvbench_robust,
}

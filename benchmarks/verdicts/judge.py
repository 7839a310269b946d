"""Judge recorded pools: false alarms, power and coverage of our rule beside the peers' rules.

    python benchmarks/verdicts/judge.py POOL_DIR [POOL_DIR ...]

Ours: five duet processes drawn from a pool make one comparison. Draws share processes, so their
rates are indicative; the disjoint groups of five beside them do not. A false alarm is a verdict
*faster* or *slower* for a workload against itself; power is the share of the right direction.
Peers' rules of one process a side judge pairs of single processes of one block. The upper limit
is Wilson's, 95 %. Prints Markdown. The pool must have been recorded under the rule that judges it:
the hashes are compared and printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from record import rule_hash
from rules import PEERS, ours
from scipy import stats as scipy_stats

from benchbench.verdicts import Verdict, decide

DRAWS = 400
PROCESSES = 5
EFFECTS = (2, 5, 10)


def wilson_upper(hits: int, total: int) -> float:
    """Return the upper end of Wilson's 95 % interval of a rate."""
    if total == 0:
        return 1.0
    interval = scipy_stats.binomtest(hits, total).proportion_ci(0.95, method="wilson")
    return float(interval.high)


def load(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pool's rule, its duet processes and its single processes."""
    rule = json.loads((folder / "rule.json").read_text(encoding="utf-8"))
    duets = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("duet_*"))]
    singles = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("single_*"))]
    return rule, duets, singles


Ratios = list[tuple[int, float]]
"""(which side began, log ratio) of the processes of a pool."""


def usable(duets: Iterable[dict[str, Any]]) -> tuple[dict[tuple[str, int], Ratios], int, int]:
    """Return log ratios of unflagged processes by workload and effect; flagged and all counted."""
    found: dict[tuple[str, int], Ratios] = defaultdict(list)
    flagged = total = 0
    for one in duets:
        total += 1
        if one["paired"].get("flags"):
            flagged += 1
            continue
        began = one["paired"]["round"] % 2
        found[one["workload"], one["effect"]].append((began, one["paired"]["log_ratio"]))
    return found, flagged, total


def draw(values: Ratios, rng: random.Random) -> list[float]:
    """Return five processes, begun by the baseline and by the candidate in turn as in a run."""
    sides = [[value for began, value in values if began == side] for side in (0, 1)]
    return [
        *rng.sample(sides[0], (PROCESSES + 1) // 2),
        *rng.sample(sides[1], PROCESSES // 2),
    ]


def disjoint(values: Ratios, rng: random.Random) -> Iterator[list[float]]:
    """Yield groups of five that share no process, of the same make-up."""
    sides = [[value for began, value in values if began == side] for side in (0, 1)]
    for side in sides:
        rng.shuffle(side)
    more, fewer = (PROCESSES + 1) // 2, PROCESSES // 2
    while len(sides[0]) >= more and len(sides[1]) >= fewer:
        yield [sides[0].pop() for _ in range(more)] + [sides[1].pop() for _ in range(fewer)]


def ours_row(found: dict[tuple[str, int], Ratios]) -> dict[str, Any]:
    """Return rates of our rule over draws and over disjoint groups."""
    rng = random.Random(1)
    rates: dict[str, Any] = {}
    for effect in (0, *EFFECTS):
        hits = total = covered = groups = group_hits = clear = 0
        for (_, this), values in found.items():
            if this != effect or len(values) < 2 * PROCESSES:
                continue
            for _ in range(DRAWS):
                chosen = draw(values, rng)
                answer = ours(chosen)
                decision = decide(chosen)
                total += 1
                hits += answer != "none" if effect == 0 else answer == "slower"
                clear += decision.verdict in (Verdict.SAME, Verdict.FASTER, Verdict.SLOWER)
                covered += bool((decision.ci_low or 0) <= 1 <= (decision.ci_high or 0))
            for group in disjoint(values, rng):
                groups += 1
                answer = ours(group)
                group_hits += answer != "none" if effect == 0 else answer == "slower"
        rates[str(effect)] = {
            "rate": hits / total if total else math.nan,
            "groups": f"{group_hits} of {groups}",
            "upper": wilson_upper(group_hits, groups),
            "covered": covered / total if total else math.nan,
            "clear": clear / total if total else math.nan,
        }
    return rates


def peer_rows(singles: Iterable[dict[str, Any]]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return (right or false, trials) per rule and effect, from pairs of one block."""
    blocks: dict[tuple[str, int], dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for one in singles:
        values = np.asarray(one["ns"], dtype=np.float64)
        blocks[one["workload"], one["block"]][one["effect"]].append(values)
    table: dict[str, dict[int, tuple[int, int]]] = {}
    for name, rule in PEERS.items():
        counts: dict[int, tuple[int, int]] = {}
        for effect in (0, 5, 10):
            answers = list(_answers(rule, blocks.values(), effect))
            wanted = ("slower",) if effect else ("slower", "faster")
            counts[effect] = (sum(a in wanted for a in answers), len(answers))
        table[name] = counts
    return table


def _answers(
    rule: Callable[[Any, Any], str], blocks: Iterable[dict[int, list[Any]]], effect: int
) -> Iterable[str]:
    for block in blocks:
        base = block[0]
        if effect == 0:
            yield from (rule(a, b) for a, b in itertools.combinations(base, 2))
        else:
            yield from (rule(a, b) for a in base for b in block[effect])


def report(folder: Path) -> None:
    """Print the tables of one pool."""
    rule, duets, singles = load(folder)
    found, flagged, total = usable(duets)
    same = "the rule that judges it" if rule["rule"] == rule_hash() else "ANOTHER RULE"
    print(f"\n### Pool {folder.name}: recorded under {same} ({rule['rule']})\n")
    walls = [one["wall_s"] for one in duets]
    print(
        f"{total} duet processes, {flagged} flagged; {np.median(walls):.1f} s each (median), "
        f"{PROCESSES * float(np.median(walls)):.0f} s per pair of modes; "
        f"load: {'two busy neighbours' if rule['load'] else 'whatever the host did'}\n"
    )
    for (name, effect), values in sorted(found.items()):
        if effect == 0:
            ratios = [value for _, value in values]
            spread = float(np.std(ratios, ddof=1)) if len(ratios) > 1 else math.nan
            print(f"- {name}: sd of the A/A log ratio between processes {spread:.2%}")
    rates = ours_row(found)
    print("\n| rule | false alarms | found +2 % | found +5 % | found +10 % |")
    print("|---|---|---|---|---|")
    cells = [
        f"{rates[str(e)]['rate']:.1%} of draws, {rates[str(e)]['groups']} groups"
        for e in (0, *EFFECTS)
    ]
    cells[0] += f" (upper limit {rates['0']['upper']:.0%})"
    print(f"| **ours: 5 duet processes** | {' | '.join(cells)} |")
    for name, counts in peer_rows(singles).items():
        parts = [f"{hits} of {n} ({hits / n:.0%})" if n else "none" for hits, n in counts.values()]
        print(f"| {name}, one process a side | {parts[0]} | not tried | {parts[1]} | {parts[2]} |")
    print(
        f"\nThe 95 % interval contains 1 in {rates['0']['covered']:.1%} of the A/A draws; "
        f"{rates['0']['clear']:.0%} of them end in a clear verdict (same)."
    )


def main() -> None:
    """Judge the pools that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        report(folder)


if __name__ == "__main__":
    main()

"""How often the accuracy rule passes a right candidate and a wrong one, over held-out seeds.

Prints, per dtype and with or without the float64 reference, how many of N seeds pass. The right
candidate rounds once at the end, as a fused kernel would; each wrong one has a single fault. The
figures in docs/accuracy.md come from here: ``python benchmarks/accuracy_controls.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from small_llama import Faults, Llama, tokens

from benchbench.correctness.rules import judge, tolerance

SEEDS = range(100, 130)
CONTROLS: dict[str, Faults | None] = {
    "right": None,
    "mask lost": Faults(causal=False),
    "mlp zeroed": Faults(mlp=False),
    "attention zeroed": Faults(attention=False),
    "logits x1.05": Faults(logits=1.05),
    "logits x1.02": Faults(logits=1.02),
    "rope x1.01": Faults(rope=1.01),
}


def passes(dtype: torch.dtype, faults: Faults | None, seed: int, golden: bool) -> bool:
    """Say whether one candidate passes."""
    torch.manual_seed(seed)
    weights = Llama().to(dtype).state_dict()
    inputs = tokens(seed).args

    def logits(dtype: torch.dtype, faults: Faults | None = None) -> torch.Tensor:
        model = Llama(faults).to(dtype)
        model.load_state_dict(weights)
        with torch.no_grad():
            return model(*inputs)["logits"]

    wide = torch.float64 if dtype == torch.float32 else torch.float32
    candidate = logits(wide).to(dtype) if faults is None else logits(dtype, faults)
    truth = logits(torch.float64) if golden else None
    return judge(logits(dtype), candidate, truth, tolerance(dtype, dtype)).ok


def main() -> None:
    """Print one line per dtype and rule."""
    torch.set_num_threads(1)
    print(f"passed of {len(SEEDS)} seeds: {', '.join(CONTROLS)}")
    for golden in (True, False):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            counts = [
                sum(passes(dtype, faults, seed, golden) for seed in SEEDS)
                for faults in CONTROLS.values()
            ]
            rule = "with float64" if golden else "without"
            print(f"{rule:>12} {dtype!s:>15} {counts}")


if __name__ == "__main__":
    main()

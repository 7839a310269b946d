"""How long until something is measured, and until the commands that do not measure answer.

``python benchmarks/startup.py [ROUNDS]``. Times of the harness and of a hand-written script with
the same model are taken in turns, so that both see the same machine. Both begin when the command
is started and end when the loop over the model begins, after the model's first call.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

MODEL = "llama"
HAND = """
import sys, torch
torch.set_num_threads(1)
from benchbench.models.llama import build
torch.manual_seed(0)
workload = build(device=torch.device("cpu"), dtype=torch.float32, batch_size=1, seq_len=64,
                 workload="prefill", **{options})
inputs = workload.make_inputs(0)
module = {wrapped}
with torch.no_grad():
    module(*inputs.args, **inputs.kwargs)
    print("measuring", flush=True)
    module(*inputs.args, **inputs.kwargs)
"""
WRAPPED = {
    "eager": "workload.module",
    "aot_eager": "torch.compile(workload.module, backend='aot_eager')",
}
GOAL_RATIO = 1.3
GOAL_ANSWER_S = 0.6
ANSWERS = (["--help"], ["list", "modes"], ["list", "models"], ["mode=egaer"])


def main(argv: list[str]) -> int:
    rounds = int(argv[0]) if argv else 5
    missed = 0
    for mode in WRAPPED:
        ratio = first_iteration(mode, rounds)
        missed += ratio > GOAL_RATIO
    for words in ANSWERS:
        seconds = statistics.median(answer_s(words) for _ in range(rounds))
        missed += seconds > GOAL_ANSWER_S
        print(f"benchbench {' '.join(words):<12} {seconds:.2f} s (goal: {GOAL_ANSWER_S} s)")
    return 1 if missed else 0


def first_iteration(mode: str, rounds: int) -> float:
    """Print and return the median ratio of harness to hand-written script."""
    ours, by_hand = [], []
    for _ in range(rounds):
        by_hand.append(until_measuring([sys.executable, "-c", hand_script(mode)]))
        with tempfile.TemporaryDirectory() as folder:
            words = [f"model={MODEL}", f"mode={mode}", "baseline=null", "accuracy=false"]
            ours.append(until_measuring(
                [sys.executable, "-m", "benchbench", *words, f"results_dir={folder}"]
            ))  # fmt: skip
    ratio = statistics.median(a / b for a, b in zip(ours, by_hand, strict=True))
    print(
        f"first iteration, {MODEL} {mode}: benchbench {statistics.median(ours):.2f} s, "
        f"by hand {statistics.median(by_hand):.2f} s, median ratio {ratio:.2f} "
        f"(goal: {GOAL_RATIO})"
    )
    return ratio


def hand_script(mode: str) -> str:
    from benchbench.config import compose
    from benchbench.plan import build_plan

    plan = build_plan(compose([f"model={MODEL}", "mode=eager"]), overrides=[], run_id="x")
    return HAND.format(options=plan.cases[0].model_target.options, wrapped=WRAPPED[mode])


def until_measuring(command: list[str]) -> float:
    """Return the seconds until a command says that it is measuring, then let it end."""
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.rstrip().endswith("measuring"):
                seconds = time.perf_counter() - started
                process.stdout.read()
                return seconds
    raise SystemExit(f"{' '.join(command[:4])} never got to measuring (exit {process.returncode})")


def answer_s(words: list[str]) -> float:
    """Return the seconds that a command takes to answer."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "benchbench", *words], capture_output=True, check=False)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

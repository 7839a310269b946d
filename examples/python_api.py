"""The same run from Python: compose, plan, run, compare, print.

    python examples/python_api.py [KEY=VALUE ...]

Each step is plain data, so that you can stop in between: change a plan before it runs, or compare
records that a run of last week has left.
"""

import sys

from benchbench import compare
from benchbench.cli import results_folder
from benchbench.config import compose
from benchbench.plan import build_plan, new_run_id
from benchbench.progress import Progress
from benchbench.reporters import markdown
from benchbench.runner import run_plan


def main(overrides: list[str]) -> int:
    """Run what the overrides ask for and print the table as Markdown."""
    conf = compose(overrides)
    plan = build_plan(conf, overrides=overrides, run_id=new_run_id())
    for case in plan.cases:
        print(case.key, plan.skipped.get(case.key, ""), file=sys.stderr)

    result = run_plan(plan, results_dir=results_folder(conf.results_dir), progress=Progress())

    view = compare.view(result.records, baseline=plan.baseline, plan=plan)
    print(markdown.render(view))
    for row in view.rows:
        if row.record.latency is not None:
            milliseconds = row.record.latency.median_s * 1e3
            print(f"{row.mode}: {milliseconds:.3f} ms, speedup {row.speedup or 'none'}")
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["model=mlp", "mode=[eager,aot_eager]"]))

"""Record process medians for benchmarks/history_alarms.py: `record_processes.py OUT.json [N]`.

Each process is fresh, imports torch, warms a small encoder layer up and samples it for 0.65 s. What
is kept of a process is its median latency and how much of a core it got.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_CHILD = """
import json, time, torch
torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True).eval()
x = torch.randn(2, 64, 256)
with torch.inference_mode():
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end:
        layer(x)
    walls, cpu0, start = [], time.thread_time_ns(), time.perf_counter_ns()
    while time.perf_counter_ns() - start < 650_000_000:
        before = time.perf_counter_ns()
        layer(x)
        walls.append(time.perf_counter_ns() - before)
    wall = time.perf_counter_ns() - start
    share = (time.thread_time_ns() - cpu0) / wall
walls.sort()
print(json.dumps({"median_s": walls[len(walls) // 2] / 1e9, "core_share": round(share, 4)}))
"""


def main() -> None:
    """Append processes to the file until it holds N of them."""
    out, number = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60
    found = json.loads(out.read_text()) if out.exists() else []
    while len(found) < number:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD], capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout))
        out.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()

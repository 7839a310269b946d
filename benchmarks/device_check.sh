#!/usr/bin/env bash
# All modes that a CUDA machine has, on three models, in one table; made to end within 5 minutes.
#
#   benchmarks/device_check.sh [overrides ...]       e.g. benchmarks/device_check.sh size=full
#
# Runs from a checkout, with PYTHON (default: python3) having torch and transformers. Results go to
# $OUT/results when OUT is set (a machine that only returns that folder), else to results/.
# The exit code is the run's: 1 means that a row failed, and the table says which.
set -u
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
RESULTS=${OUT:+$OUT/}results
LIMIT_S=${LIMIT_S:-280}

"$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "device_check: this Python sees no CUDA device; on a CPU use: make bench" >&2
    exit 4
}
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,temperature.gpu --format=csv || true

# The limits keep one bad row from eating the time of the others; SIGINT lets the run end in order,
# with the finished rows in the table.
timeout --signal=INT --kill-after=20 "$LIMIT_S" \
    "$PYTHON" -m benchbench \
    'model=[llama,bert,resnet]' \
    'mode=[eager,aot_eager,inductor,cudagraphs,max-autotune]' \
    device=cuda \
    limits.compile_s=90 limits.sample_s=30 limits.warmup_s=20 \
    measure.max_time_s=1 measure.warmup_max_time_s=3 measure.warm_compile=false \
    "results_dir=$RESULTS" \
    "$@"
code=$?
[ "$code" -eq 124 ] && echo "device_check: stopped after $LIMIT_S s; the rows above it are complete" >&2
exit "$code"

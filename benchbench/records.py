"""The types that carry everything: what was asked, what happened, the two joined and stamped.

``Case`` is what was asked, ``Measurement`` or ``Failure`` is what happened, ``Record`` joins them
with the environment. They are plain frozen data: JSON in, JSON out, by msgspec. Absent means "not
known" and is never written as NaN, zero or null. Names carry their unit; seconds are ``float``,
raw samples are ``int`` nanoseconds.

This module imports nothing of ours and never torch.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

# History of the results format. Every version listed here is read for ever (store.py upgrades).
#   1  first version
SCHEMA_VERSION = 1

Json: TypeAlias = Any  # a plain JSON value: None, bool, int, float, str, list, dict

DeviceKind: TypeAlias = str  # one of devices.KINDS, which is the folder of device modules
Workload = Literal["forward", "prefill", "decode"]
Status = Literal["ok", "skipped", "failed", "oom", "timeout", "crashed", "interrupted", "not_run"]
Phase = Literal["load", "inputs", "converters", "compile", "check", "warmup", "sample", "finish"]
Accuracy = Literal["pass", "fail", "random", "not_comparable", "nothing_to_compare", "off"]
StopReason = Literal["precise", "max_time", "max_samples", "not_steady"]

PHASES: tuple[Phase, ...] = (
    "load",
    "inputs",
    "converters",
    "compile",
    "check",
    "warmup",
    "sample",
    "finish",
)

# Statuses that make a run exit with 1; the others are fine or were known beforehand.
FAILED_STATUSES: frozenset[Status] = frozenset(
    {"failed", "oom", "timeout", "crashed", "interrupted", "not_run"}
)


class _Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all stored types: immutable, keyword-only, defaults are not written."""


class Target(_Data, frozen=True):
    """A name that only a worker resolves: ``package.module.attribute`` or ``file.py:attribute``."""

    path: str
    options: dict[str, Json] = {}


class Case(_Data, frozen=True):
    """One model, workload, shape, dtype, mode and device: the unit of isolation and comparison."""

    key: str
    """Readable identity, ``model[size]/workload/shape/dtype/device/mode{options}``; two rows with
    equal keys are the same thing to compare."""
    group: str
    """The key without its mode: rows of one group are compared with one another."""
    model: str
    model_target: Target
    mode: str
    mode_target: Target
    device: DeviceKind
    workload: Workload
    dtype: str
    batch_size: int
    seq_len: int | None = None
    device_index: int = 0
    """Which of several devices; not in the key, it is in the environment."""
    size: str | None = None
    """Name of the model's size preset (``tiny``, ``full``), when it has presets."""
    mode_typed: str | None = None
    """What the user typed for the mode, when it was an alias."""
    options: dict[str, Json] = {}
    """Mode options that differ from the mode's defaults (they are part of the key)."""
    model_options: dict[str, Json] = {}
    """Model options that differ from the preset (they are part of the key)."""
    converters: Json = "auto"
    seed: int = 0


class Limits(_Data, frozen=True):
    """Seconds each phase may take before its worker is killed."""

    load_s: float = 600.0
    inputs_s: float = 120.0
    converters_s: float = 600.0
    compile_s: float = 3600.0
    check_s: float = 600.0
    warmup_s: float = 300.0
    sample_s: float = 300.0
    finish_s: float = 120.0

    def of(self, phase: Phase) -> float:
        """Return the limit of ``phase`` in seconds."""
        return float(getattr(self, f"{phase}_s"))


class TimingPolicy(_Data, frozen=True):
    """How a worker warms up, samples and stops (see docs/method.md for the reasons)."""

    min_sample_s: float = 200e-6
    """A sample covers as many calls as are needed to last this long."""
    min_samples: int = 20
    max_samples: int = 100_000
    min_time_s: float = 0.3
    max_time_s: float = 2.0
    relative_half_width: float = 0.0025
    """Stop when the 95 % interval of the median is this narrow on either side."""
    warmup_min_calls: int = 5
    warmup_min_time_s: float = 0.3
    warmup_max_time_s: float = 10.0
    steady_tolerance: float = 0.01
    check_calls: int = 3
    """Calls with different inputs that are compared with eager, after the first one."""
    warm_compile: bool = True
    """Compile once more in a second process on the filled cache, to know the warm cost."""


class ComparisonPolicy(_Data, frozen=True):
    """How many processes a comparison with the baseline takes (see docs/method.md)."""

    name: Literal["quick", "standard", "thorough"] = "standard"
    looks: tuple[int, ...] = (5,)
    """Processes after which a verdict is looked for; empty compares one process a side."""
    turn_s: float = 0.03
    """In a duet process baseline and candidate alternate in turns of this length."""
    rounds: int = 25
    """Fewest rounds (one turn of each) in a duet process that counts."""
    process_max_time_s: float = 10.0
    """A duet process of slow calls stops after this, with fewer rounds."""
    max_time_s: float | None = 60.0
    """Wall seconds that one comparison may take; no process is begun that would not fit."""
    margin: float = 0.02
    """Smallest difference that counts, as a fraction."""


class Settings(_Data, frozen=True):
    """Everything of the worker's surroundings that moves a number, the same for all cases."""

    threads: int = 1
    interop_threads: int = 1
    compile_threads: int | None = None
    grad_mode: Literal["no_grad", "inference_mode"] = "no_grad"
    start: Literal["auto", "forkserver", "fresh"] = "auto"
    environment: dict[str, str] = {}
    """Variables set for the worker before it starts (OpenMP, allocator, device)."""


class Plan(_Data, frozen=True):
    """What one run will do, in order. Pure data, made by plan.py, written to plan.json."""

    run_id: str
    cases: list[Case]
    device_ids: list[int] = []
    """Devices that the groups of cases are spread over; with one or none all run on one."""
    skipped: dict[str, str] = {}
    """Case key -> reason, for cases that are known to be impossible before anything starts."""
    baseline: str | None = "eager"
    accuracy: bool = True
    policy: TimingPolicy = TimingPolicy()
    comparison: ComparisonPolicy = ComparisonPolicy()
    limits: Limits = Limits()
    settings: Settings = Settings()
    plugins: list[str] = []
    """Python files or modules imported in each worker before the model (R1 style stand-ins)."""
    search_paths: list[str] = []
    """Folders put on the worker's ``sys.path`` (the user's working directory first)."""
    overrides: list[str] = []
    """The command line as typed, to show the command that re-runs one case."""
    notes: list[str] = []
    name: str | None = None
    """A label of the run, as typed; never part of a file name."""


JobKind = Literal["measure", "reference", "warm_compile", "duet", "check", "coverage", "bisect"]


class Job(_Data, frozen=True):
    """What one worker process gets: the whole of CASE.json."""

    kind: JobKind
    case: Case
    policy: TimingPolicy
    limits: Limits
    settings: Settings
    partner: Case | None = None
    """The baseline that a ``duet`` job alternates its case with."""
    comparison: ComparisonPolicy = ComparisonPolicy()
    round: int = 0
    """Number of this process among the processes of one comparison."""
    accuracy: bool = True
    reference_path: str | None = None
    """File that a ``reference`` job writes and a ``measure`` job compares its outputs with."""
    cache_dir: str | None = None
    """Folder of the compile caches; empty for a cold compile, filled for a warm one."""
    plugins: list[str] = []
    search_paths: list[str] = []
    ask: dict[str, Json] = {}
    """What a job of ``coverage`` or ``diagnose`` is asked beside the case."""


class Failure(_Data, frozen=True):
    """Why a case has no numbers, in one line for the table and a log for the rest."""

    phase: Phase
    kind: str
    """Exception type, signal name, or a word of ours such as ``Fallback``."""
    reason: str
    """One line, no newline, at most a few hundred characters."""
    hint: str | None = None
    log: str | None = None
    rerun: str | None = None


class GraphBreak(_Data, frozen=True):
    """One place where a graph had to be left, with the reason."""

    reason: str
    location: str | None = None
    """``file:line`` where known."""
    ops: dict[str, int] = {}
    """Op name -> calls in one forward, for ops that are named in the reason."""


class GraphEvidence(_Data, frozen=True):
    """What really ran: counted by the libraries' own events, not inferred from the request."""

    effective: str = "eager"
    """What ran: ``eager``, ``inductor``, ``npugraph_ex``, ``torchair``, ... or a fallback text."""
    graphs: int = 0
    captured_ops: int = 0
    breaks: list[GraphBreak] = []
    recompiles: list[str] = []
    """Reason of each recompile, in order."""
    captures: int | None = None
    """Device graphs captured; absent where the backend captures none by design."""
    recaptures: dict[str, int] = {}
    skips: list[str] = []
    """Reasons why a device graph was not captured (``cpu device`` for cudagraphs on a CPU)."""
    fallbacks: list[str] = []
    """Non-empty means that part of the work ran in eager although a graph was asked for."""
    in_window: list[str] = []
    """Compile, recompile or capture events inside the measured window: the row is invalid."""
    tuned: int | None = None
    """Kernels chosen by autotuning; 0 says that max-autotune tuned nothing."""
    compile_events: int = 0
    converters: dict[str, str] = {}
    """Op -> ``file (kind)`` of the converters that were registered for this case."""
    fx_ops: dict[str, int] = {}
    ir_ops: dict[str, int] = {}
    counters: dict[str, int] = {}
    """The few library counters that the other fields were read from."""
    notes: list[str] = []
    """Warnings that the libraries hide in their logs, and evidence that this torch cannot give."""


class AccuracyResult(_Data, frozen=True):
    """Outcome of comparing several calls, and the state after them, with eager."""

    verdict: Accuracy
    reason: str | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    """max |difference| / max |reference| over a leaf, worst leaf."""
    cosine: float | None = None
    error_eager: float | None = None
    """RMSE of eager against the higher-precision reference."""
    error_candidate: float | None = None
    tolerance: float | None = None
    worst: str | None = None
    """Path of the worst leaf, e.g. ``call 2: out.logits``."""
    compared_leaves: int = 0
    compared_calls: int = 0
    notes: list[str] = []


class Memory(_Data, frozen=True):
    """Peaks in bytes; ``meaning`` says of what."""

    compile_peak_bytes: int | None = None
    steady_peak_bytes: int | None = None
    weights_bytes: int | None = None
    growth_bytes_per_call: float | None = None
    meaning: str = ""


class Steady(_Data, frozen=True):
    """How the warm-up ended."""

    reached: bool
    reason: str
    calls: int
    seconds: float


class Interference(_Data, frozen=True):
    """What the host did to this process while it sampled."""

    cpu_over_wall: float | None = None
    """CPU seconds of the measuring thread per wall second; low for a model that waits, too."""
    wait_over_wall: float | None = None
    """Share of the time in which the thread was ready to run and had no core."""
    involuntary_switches: int | None = None
    major_faults: int | None = None
    load_average: float | None = None
    cpu_pressure: float | None = None
    throttled_s: float | None = None
    steal_s: float | None = None


class DeviceTime(_Data, frozen=True):
    """Host and device time of one mode on a device with a queue (docs/method.md)."""

    period_s: float
    """Sustained wall seconds per call: N calls, one synchronisation, divided by N."""
    enqueue_s: float
    """Seconds until a call returns in that loop: the host's cost."""
    device_span_s: float | None = None
    """Seconds between the device events around one call; absent without event timing."""
    gap: float | None = None
    """1 - sum of device spans / elapsed: the share of time in which the device idles."""
    bound: Literal["host", "device", "mixed", "unknown"] = "unknown"
    resolution_s: float | None = None


class Samples(_Data, frozen=True):
    """Raw readings of one process and phase: nanoseconds per sample, not per call."""

    phase: Literal["compile", "warmup", "sample", "duet_baseline", "duet_candidate"]
    calls_per_sample: int
    duration_ns: list[int]
    round: int = 0


class Measurement(_Data, frozen=True):
    """What a worker hands back when nothing went wrong: raw readings and evidence."""

    phase_s: dict[str, float]
    """Wall seconds of each phase, by our own clock around our own calls."""
    phase_cpu_s: dict[str, float] = {}
    """CPU seconds of each phase, the compiler's child processes included."""
    samples: list[Samples] = []
    items: float = 1.0
    """Items that one call processes (with the true batch, never a padded one)."""
    item: str = "samples"
    """``tokens``, ``images``, ``samples``."""
    stop_reason: StopReason | None = None
    steady: Steady | None = None
    interference: Interference | None = None
    device_time: DeviceTime | None = None
    graph: GraphEvidence | None = None
    accuracy: AccuracyResult | None = None
    memory: Memory | None = None
    compile_stages_s: dict[str, float] = {}
    cache: Literal["cold", "warm", "bypassed", "none"] = "none"
    clock_read_s: float | None = None
    overhead_s: float | None = None
    """Cost of one empty call in the same loop: shown, never subtracted."""
    weights_hash: str | None = None
    model_sources: dict[str, str] = {}
    """Source file -> sha256, of the user's or our files that the model was built from."""
    paired: PairedProcess | None = None
    """What a ``duet`` job found."""
    environment: dict[str, Json] = {}
    caveats: list[str] = []
    """Names of caveats.Caveat that only the worker can know."""
    notes: list[str] = []


class PairedProcess(_Data, frozen=True):
    """What one process said about baseline against candidate; the unit of inference."""

    round: int
    log_ratio: float | None = None
    """Median over the rounds of log(baseline / candidate); positive: the candidate is faster."""
    baseline_median_s: float | None = None
    candidate_median_s: float | None = None
    rounds: int = 0
    flags: list[str] = []
    """Names of caveats, or words, for which the process is left out of the interval: decided by
    what happened to the process, never by its value."""
    failed: str | None = None
    """Why the process gave no ratio."""


class Paired(_Data, frozen=True):
    """The comparison of a case with its baseline, process by process."""

    baseline_key: str
    design: Literal["duet", "blocks"]
    """``duet``: both in one process, in turns. ``blocks``: a process each, in random order."""
    processes: list[PairedProcess] = []
    usual_sd: float | None = None
    stopped: str | None = None
    """Why fewer processes were run than planned."""


class Outcome(_Data, frozen=True):
    """What a worker writes to OUTCOME.json: exactly one of the two."""

    measurement: Measurement | None = None
    failure: Failure | None = None
    status: Status = "ok"
    environment: dict[str, Json] = {}
    partial: Measurement | None = None
    """What was known when the failure came: graph evidence, phases, samples so far."""
    report: Json = None
    """What a job of ``coverage`` or ``diagnose`` found; also what it had found when it failed."""


class Latency(_Data, frozen=True):
    """Statistics of one case, recomputed from the samples whenever those are there."""

    median_s: float
    mean_s: float
    min_s: float
    max_s: float
    n_samples: int
    n_processes: int = 1
    iterations_per_sample: int = 1
    ci_low_s: float | None = None
    ci_high_s: float | None = None
    confidence: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    noise: float | None = None
    """IQR / median of the samples."""
    n_outliers: int = 0
    stop_reason: StopReason | None = None


class Throughput(_Data, frozen=True):
    value: float
    unit: str


class CompileCost(_Data, frozen=True):
    """Compile cost: first call plus wrapping, minus one steady call."""

    cold_s: float | None = None
    warm_s: float | None = None
    warm_word: str | None = None
    """Why there is no warm figure: ``not cached``, ``skipped``, ``failed``."""
    cold_cpu_s: float | None = None
    stages: dict[str, float] = {}


class Harness(_Data, frozen=True):
    overhead_s: float | None = None
    parent_cpu_share: float | None = None
    """CPU seconds of the parent per wall second while the worker was sampling."""


class Record(_Data, frozen=True):
    """One stored line: case, outcome, environment. ``store.py`` alone knows its JSON."""

    schema_version: int
    run_id: str
    case_key: str
    started_at: str
    case: Case
    status: Status
    failure: Failure | None = None
    latency: Latency | None = None
    device_time: DeviceTime | None = None
    throughput: Throughput | None = None
    compile: CompileCost | None = None
    break_even_calls: float | str | None = None
    """Calls until the compile has paid for itself, or the word ``never``."""
    graph: GraphEvidence | None = None
    memory: Memory | None = None
    accuracy: AccuracyResult | None = None
    steady: Steady | None = None
    interference: Interference | None = None
    phase_s: dict[str, float] = {}
    caveats: list[str] = []
    notes: list[str] = []
    environment: dict[str, Json] = {}
    harness: Harness | None = None
    paired: Paired | None = None
    model_sources: dict[str, str] = {}
    weights_hash: str | None = None
    settings: Settings | None = None
    policy: TimingPolicy | None = None
    simulated: bool = False
    diagnosis: bool = False
    """A debug switch was on: the row is not a timing and enters no comparison."""
    from_run: str | None = None
    """Run that measured this row, when a resumed run took it over."""
    duration_s: float | None = None

"""Facts about machine, software and settings: what explains a difference between two runs.

``host_facts`` is torch-free and serves the parent too; ``collect`` adds what only a worker knows.
Of the environment variables only those in ``RECORDED`` are ever stored: everything else in a
user's shell is none of our business and may be secret.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import benchbench
from benchbench import devices
from benchbench.interference import cgroup_folders
from benchbench.records import Job

if TYPE_CHECKING:
    from benchbench.devices import Device

CPUS = Path("/sys/devices/system/cpu")

PACKAGES = (
    "torch",
    "torch_npu",
    "triton",
    "triton-ascend",
    "transformers",
    "diffusers",
    "numpy",
)

# Variables that change a number just by being set, whatever their value, with the reason.
_SPOILING = {
    "OMP_WAIT_POLICY": "changes how OpenMP threads wait",
    "OMP_PROC_BIND": "binds OpenMP threads",
    "OMP_DYNAMIC": "lets OpenMP change the number of threads",
    "GOMP_CPU_AFFINITY": "binds OpenMP threads",
    "KMP_AFFINITY": "binds OpenMP threads",
    "KMP_BLOCKTIME": "changes how OpenMP threads wait",
    "KMP_SETTINGS": "prints OpenMP settings",
    "MKL_NUM_THREADS": "overrides the number of threads in MKL",
    "MKL_DYNAMIC": "lets MKL change the number of threads",
    "MKL_ENABLE_INSTRUCTIONS": "limits the instructions that MKL uses",
    "MKL_VERBOSE": "prints every MKL call",
    "ONEDNN_VERBOSE": "prints every oneDNN call",
    "ONEDNN_MAX_CPU_ISA": "limits the instructions that oneDNN uses",
    "ATEN_CPU_CAPABILITY": "limits the instructions that PyTorch uses",
    "LD_PRELOAD": "replaces library functions, often the allocator",
    "MALLOC_CHECK_": "makes the allocator check itself",
    "MALLOC_PERTURB_": "makes the allocator fill memory",
    "MALLOC_ARENA_MAX": "changes the allocator",
    "PYTHONMALLOC": "changes Python's allocator",
    "PYTHONTRACEMALLOC": "traces every allocation",
    "PYTHONDEVMODE": "turns on Python's checks",
    "PYTHONPROFILEIMPORTTIME": "prints while importing",
    "TORCH_COMPILE_DEBUG": "writes debug files while compiling",
    "TORCH_COMPILE_DISABLE": "turns torch.compile off",
    "TORCHDYNAMO_DISABLE": "turns torch.compile off",
    "TORCH_LOGS": "logs slow the host",
    "TORCH_TRACE": "traces slow the host",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "turns compile caches off",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "changes the compile caches",
    "TORCHINDUCTOR_MAX_AUTOTUNE": "makes inductor tune in every mode",
    "TORCHINDUCTOR_FREEZING": "makes inductor freeze weights in every mode",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "turns the allocator's cache off",
    "PYTORCH_NO_NPU_MEMORY_CACHING": "turns the allocator's cache off",
    "NVIDIA_TF32_OVERRIDE": "changes the precision of matrix products",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "changes the precision of matrix products",
    "TORCH_NPU_LAZY_FUSION": "fuses ops in eager",
    "TORCH_NPU_USE_COMPATIBLE_IMPL": "selects other kernels",
    "TORCH_NPU_LEGACY_IMPL_LIST": "selects other kernels",
    "ASCEND_SLOG_PRINT_TO_STDOUT": "prints the device's log",
    "DUMP_GE_GRAPH": "writes graphs while compiling",
    "NPU_DEVICE_LIMIT": "limits the cores of the device",
}

# Variables that spoil a row unless they have one of these values.
_SPOILING_VALUES: dict[str, tuple[frozenset[str], str]] = {
    "ASCEND_LAUNCH_BLOCKING": (frozenset({"", "0"}), "makes every launch wait"),
    "CUDA_LAUNCH_BLOCKING": (frozenset({"", "0"}), "makes every launch wait"),
    "ASCEND_GLOBAL_LOG_LEVEL": (frozenset({"", "2", "3", "4"}), "logs slow the host"),
    "TNG_LOG_LEVEL": (frozenset({"", "2", "3", "4"}), "logs slow the host"),
}

# Variables that are recorded because they may explain a difference, without spoiling anything.
_EXPLAINING = (
    "OMP_NUM_THREADS",
    "GOMP_SPINCOUNT",
    "OPENBLAS_NUM_THREADS",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "CXX",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_VEC_ISA_OK",
    "TORCHINDUCTOR_NPU_BACKEND",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_HOME_PATH",
    "ASCEND_OPP_PATH",
    "ASCEND_CUSTOM_OPP_PATH",
    "TASK_QUEUE_ENABLE",
    "PER_STREAM_QUEUE",
    "CPU_AFFINITY_CONF",
    "TORCH_NPU_FALLBACK_CPU_DISABLE",
    "COMBINED_ENABLE",
    "MULTI_STREAM_MEMORY_REUSE",
    "TORCH_NPUGRAPH_GC",
    "STREAMS_PER_DEVICE",
    "ACL_OP_COMPILER_CACHE_MODE",
    "ACL_OP_INIT_MODE",
    "INF_NAN_MODE_ENABLE",
    "AUTOFUSE_FLAGS",
    "ENABLE_DYNAMIC_SHAPE_MULTI_STREAM",
    "HCCL_OP_EXPANSION_MODE",
    "HCCL_DETERMINISTIC",
)

RECORDED: frozenset[str] = frozenset({*_SPOILING, *_SPOILING_VALUES, *_EXPLAINING})
"""The only environment variables whose values are ever stored."""


def host_facts() -> dict[str, Any]:
    """Return facts about this machine and installation without importing torch."""
    return {
        "benchbench": benchbench.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "os": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        # A name would tell where the user works; a hash still tells one machine from another.
        "host": hashlib.sha256(platform.node().encode()).hexdigest()[:12],
        "cpu": cpu_facts(),
        "memory_bytes": memory_bytes(),
        "packages": package_versions(),
        "variables": recorded_variables(os.environ),
    }


def collect(device: Device) -> dict[str, Any]:
    """Return the environment of this worker: the host, torch, its threads and the device."""
    import torch

    facts = host_facts()
    facts["torch"] = str(torch.__version__)
    facts["torch_git"] = str(torch.version.git_version)
    facts["threads"] = {
        "intra_op": torch.get_num_threads(),
        "inter_op": torch.get_num_interop_threads(),
        "compile": _compile_threads(),
    }
    facts["device"] = {"kind": device.kind, "index": device.index, **device.describe()}
    return {name: value for name, value in facts.items() if value is not None}


def job_variables(job: Job) -> dict[str, str]:
    """Return the variables that the worker of ``job`` needs before it starts.

    Libraries read most of them while they are loaded and the C library reads its own before
    ``main``, so they belong into the process's environment, not into ``os.environ`` later.
    """
    variables = devices.device(job.case.device, job.case.device_index).worker_environment(
        job.settings.threads
    )
    variables["PYTHONHASHSEED"] = "0"
    if job.settings.compile_threads is not None:
        variables["TORCHINDUCTOR_COMPILE_THREADS"] = str(job.settings.compile_threads)
    if job.cache_dir is not None:
        variables["TORCHINDUCTOR_CACHE_DIR"] = job.cache_dir
        variables["TRITON_CACHE_DIR"] = os.path.join(job.cache_dir, "triton")
    return variables | job.settings.environment


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``variables`` that may be stored, sorted by name."""
    return {name: variables[name] for name in sorted(RECORDED) if name in variables}


def spoiling_variables(variables: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """Return one sentence for each variable that spoils a row and that nobody asked for.

    ``asked`` are the variables of ``settings.environment``: what a user sets there is meant.
    """
    found: list[str] = []
    for name, value in sorted(variables.items()):
        if asked.get(name) == value:
            continue
        reason = _SPOILING.get(name) if value else None
        if name in _SPOILING_VALUES:
            harmless, why = _SPOILING_VALUES[name]
            reason = None if value in harmless else why
        if reason:
            found.append(f"{name}={value} {reason}: unset it, or put it into settings.environment")
    return found


def cpu_facts() -> dict[str, Any]:
    """Return model, counts and clock governor of the CPU."""
    facts: dict[str, Any] = {
        "model": _cpu_model(),
        "logical": os.cpu_count(),
        "usable_cores": usable_cores(),
        "governor": _first_line(CPUS / "cpu0" / "cpufreq" / "scaling_governor"),
    }
    return {name: value for name, value in facts.items() if value is not None}


def usable_cores() -> int:
    """Return the number of physical cores that this process may use, at least 1.

    Affinity (taskset, cpuset) and the quota of the control group both count: a container that may
    use two cores of sixty-four must not start sixty-four threads.
    """
    cpus = _affinity()
    siblings = {
        _first_line(CPUS / f"cpu{number}" / "topology" / "thread_siblings_list") or str(number)
        for number in cpus
    }
    quota = _quota_cores()
    cores = len(siblings) if quota is None else min(len(siblings), int(quota))
    return max(1, cores)


def memory_bytes() -> int | None:
    """Return the size of the host's memory in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that move numbers, as installed."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _compile_threads() -> int | None:
    """Return the number of compile workers, once inductor is loaded; they are no model threads."""
    config = sys.modules.get("torch._inductor.config")
    threads = getattr(config, "compile_threads", None)
    return int(threads) if threads else None


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _quota_cores() -> float | None:
    """Return the smallest CPU quota of our control group and its parents, in cores."""
    quotas: list[float] = []
    for folder in cgroup_folders("cpu"):
        quota, _, period = (_first_line(folder / "cpu.max") or "").partition(" ")
        if not period:
            quota = _first_line(folder / "cpu.cfs_quota_us") or ""
            period = _first_line(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Hardware", "cpu model"}:
            return value.strip()
    return platform.processor() or None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None

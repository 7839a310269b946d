"""What changed between torch_npu versions in how a graph mode is switched on, in one place.

- The backend ``npugraph_ex`` came with torch_npu 7.3 (for torch 2.6 and newer). Before it, the
  same capture was reached by torchair's ``reduce-overhead``, which is frozen since.
- torchair and npugraph_ex are two copies of one code base: own configuration classes, own loggers.
  Both clear their loggers when they are first imported, so listening starts after that.
- Both replace the SIGTERM and SIGINT handlers when first imported; they are put back here.

Only functions that say so import torch or torch_npu.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchbench.modes.options_npu import LEGACY_PATHS
from benchbench.records import Json

if TYPE_CHECKING:
    from benchbench.evidence import Watch

NPUGRAPH_EX = "npugraph_ex"
LEGACY_MODE = "reduce-overhead"
LEGACY_BACKEND = "torchair reduce-overhead"

Backend = Callable[..., Any]


def installed_version() -> str | None:
    """Return the version of the installed torch_npu, ``None`` without one. Imports nothing."""
    try:
        return importlib.metadata.version("torch_npu")
    except importlib.metadata.PackageNotFoundError:
        return None


def seems_to_have_npugraph_ex() -> bool:
    """Say whether the installed torch_npu looks as if it had the backend. Imports nothing.

    Without torch_npu the answer is yes: there is nothing older to account for.
    """
    found = importlib.util.find_spec("torch_npu")
    places = list(found.submodule_search_locations or ()) if found else []
    for place in places:
        dynamo = Path(place) / "dynamo"
        entry = dynamo / "__init__.py"
        if (dynamo / NPUGRAPH_EX).is_dir():
            return True
        text = entry.read_text(encoding="utf-8", errors="replace") if entry.is_file() else ""
        return NPUGRAPH_EX in text
    return True


def has_npugraph_ex() -> bool:
    """Say whether torch knows the backend now. Worker only: imports torch."""
    from torch._dynamo.backends.registry import list_backends

    return NPUGRAPH_EX in list_backends(exclude_tags=())


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def load(package: str, watch: Watch | None = None) -> Any:
    """Import torchair or npugraph_ex, keep our signal handlers, listen to its hidden warnings.

    Returns the package. Worker only.
    """
    with _kept_signal_handlers():
        module = importlib.import_module(package)
        importlib.import_module(f"{package}.core.utils")
        # The lazy stand-ins in sys.modules load the real package at the first attribute.
        getattr(module, "CompilerConfig", None)
    if watch is not None:
        watch.listen(package, logging.WARNING)
    return module


def torchair_config(options: Mapping[str, Json]) -> Any:
    """Return a torchair ``CompilerConfig`` with options given by their full paths. Worker only."""
    torchair = importlib.import_module("torchair")
    config = torchair.CompilerConfig()
    for path, value in options.items():
        *parents, last = path.split(".")
        part = config
        for name in parents:
            part = getattr(part, name)
        setattr(part, last, value)
    return config


def torchair_backend(options: Mapping[str, Json], decompositions: dict[Any, Any]) -> Backend:
    """Return torchair's backend for these options. Worker only."""
    torchair = importlib.import_module("torchair")
    backend: Backend = torchair.get_npu_backend(
        compiler_config=torchair_config(options), custom_decompositions=decompositions
    )
    return backend


def legacy_options(options: Mapping[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """Translate npugraph_ex options for torchair's ``reduce-overhead``.

    Returns the options by torchair's paths, and the names that have no counterpart there.
    """
    translated: dict[str, Json] = {"mode": LEGACY_MODE}
    lost = []
    for name, value in options.items():
        if name not in LEGACY_PATHS:
            lost.append(name)
            continue
        path, turned = LEGACY_PATHS[name]
        translated[path] = (not value) if turned else value
    return translated, lost


def scratch_folder() -> str:
    """Return a new folder for files that a library insists on writing, outside the user's."""
    base = os.environ.get("BENCHBENCH_SCRATCH") or tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="benchbench-", dir=base)

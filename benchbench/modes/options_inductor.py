"""The options of torch's inductor that a benchmark turns, and a way to know the other ones.

The table holds the common ones with their types. Any other name is looked up in the source of the
installed torch (read, not imported), so that a typing mistake is found before anything starts and
an option that only some torch versions have still gets through.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import lru_cache
from pathlib import Path

from benchbench.modes.options import Option, Table


def _switches(*names: str, diagnosis: bool = False) -> tuple[Option, ...]:
    return tuple(Option(path=name, kind="bool", diagnosis=diagnosis) for name in names)


def _texts(*names: str) -> tuple[Option, ...]:
    return tuple(Option(path=name, kind="str") for name in names)


@lru_cache(maxsize=1)
def installed_names() -> tuple[str, ...]:
    """Return all option names in the installed torch's inductor, empty when there is no torch."""
    found = importlib.util.find_spec("torch")
    places = list(found.submodule_search_locations or ()) if found else []
    for place in places:
        source = Path(place) / "_inductor" / "config.py"
        if source.is_file():
            return tuple(_assigned(ast.parse(source.read_text(encoding="utf-8")).body, ""))
    return ()


def _assigned(body: list[ast.stmt], prefix: str) -> list[str]:
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            names += _assigned(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(prefix + node.target.id)
        elif isinstance(node, ast.Assign):
            names += [prefix + target.id for target in node.targets if isinstance(target, ast.Name)]
    return names


def _is_installed(name: str) -> bool:
    names = installed_names()
    return not names or name.replace("-", "_") in names


INDUCTOR = Table(
    "inductor",
    (
        *_switches(
            "max_autotune",
            "max_autotune_gemm",
            "max_autotune_pointwise",
            "coordinate_descent_tuning",
            "freezing",
            "epilogue_fusion",
            "shape_padding",
            "layout_optimization",
            "fallback_random",
            "cpp_wrapper",
            "graph_partition",
            "force_disable_caches",
            "triton.cudagraphs",
            "triton.cudagraph_trees",
            "cpp.weight_prepack",
        ),
        *_texts("max_autotune_gemm_backends", "max_autotune_gemm_search_space"),
        Option(path="compile_threads", kind="int", low=1),
        Option(path="cpp.threads", kind="int", low=-1),
        Option(path="cpp.simdlen", kind="int", low=0),
        # An inductor run with one of these times something else than the mode's name says.
        *_switches(
            "fallback_by_default",
            "cpp.enable_kernel_profile",
            "triton.debug_sync_graph",
            "triton.debug_sync_kernel",
            "benchmark_kernel",
            "nan_asserts",
            diagnosis=True,
        ),
        Option(
            path="npu_backend",
            kind="str",
            choices=("default", "mlir", "dvm", "ascendc"),
            note="npu only: which code generator torch_npu's inductor uses",
        ),
        Option(path="mode", kind="str", refused="is not an option: use mode=NAME"),
        Option(path="compile_mode", kind="str", refused="is not an option: use mode=NAME"),
    ),
    known_elsewhere=_is_installed,
    full_names=True,  # "threads" alone would read as the process's threads
    other_names=lambda: list(installed_names()),
)

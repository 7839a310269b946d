"""Converters from torch ops to Ascend IR: which there are, which a graph needs, registering them.

In ``max-autotune`` on an NPU every op of the graph has to become Ascend IR. torchair has converters
for many ops and stubs that only raise for many more. The files in ``converters/`` fill gaps: one
file per op or small family, with

- ``OPS``: a tuple of the ops' names, like ``"aten.amax.default"``,
- ``KIND``: ``"converter"`` or ``"decomposition"``,
- ``register()`` or ``register(ops)`` for a converter: it calls torchair's decorator for them,
- ``decompositions()`` for a decomposition: op name -> function of tensors.

``OPS`` and ``KIND`` are plain literals, so that listing runs no code and needs no torch. Ops are
registered only when a graph needs them. A user's file wins over ours and over torchair's; ours
never replace a converter that works.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import msgspec

from benchbench import paths
from benchbench.errors import ConfigError, unknown

ENTRY_POINTS = "benchbench.converters"

Kind = Literal["converter", "decomposition"]
Origin = Literal["ours", "user", "package"]
Status = Literal["builtin", "partial", "stub", "none", "auto", "ours", "decomposition", "callback"]

KINDS: tuple[Kind, ...] = ("converter", "decomposition")
GAPS: frozenset[str] = frozenset({"stub", "none", "callback", "partial"})
"""Statuses of ops that a file of ours may serve; a partial one only where torchair's own raises."""


class ConverterFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that can convert some ops."""

    path: str
    kind: Kind
    ops: tuple[str, ...]
    origin: Origin
    description: str = ""

    @property
    def name(self) -> str:
        """The file's name without its ending: what ``converters=[NAME]`` selects."""
        return Path(self.path).stem


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """One op that was registered."""

    op: str
    file: str
    kind: Kind
    origin: Origin
    overrides: str | None = None
    """What it replaces, in words, if it replaces anything that was usable."""

    def how(self) -> str:
        """Return ``file (kind)``, as the record keeps it."""
        replaced = f", overrides {self.overrides}" if self.overrides else ""
        return f"{Path(self.file).name} ({self.kind}{replaced})"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asked for."""

    use: str | tuple[str, ...] = "auto"
    """``auto``, ``off``, ``all``, or names of files or ops."""
    path: tuple[str, ...] = ()
    """Folders or files of the user's own."""


_USES = ("auto", "off", "all")


def selection(value: Any) -> Selection:
    """Return what the configuration's ``converters`` means; raise :class:`ConfigError`."""
    if isinstance(value, Mapping):
        odd = sorted(str(key) for key in value if key not in ("use", "path"))
        if odd:
            raise unknown("key of converters", odd[0], ("use", "path"))
        use, path = value.get("use", "auto"), value.get("path") or ()
    else:
        use, path = value, ()
    path = (path,) if isinstance(path, str) else tuple(str(item) for item in path)
    if use is None or use is False or use == "none":
        use = "off"
    elif use is True:
        use = "auto"
    if isinstance(use, (list, tuple)):
        return Selection(use=tuple(str(item) for item in use), path=path)
    use = str(use)
    return Selection(use=use if use in _USES else (use,), path=path)


# ---- which there are (no torch) ------------------------------------------------------------------


def available(search: Iterable[str] = ()) -> list[ConverterFile]:
    """Return all converter files: the user's first, then those of packages, then ours.

    Raises :class:`ConfigError` for a path that is not there or a file that is none.
    """
    files = [_read(path, "user") for place in search for path in _python_files(place)]
    for path in _package_files():
        files.append(_read(path, "package"))
    for path in sorted(paths.shipped("converters").glob("*.py")):
        if not path.name.startswith("_"):
            files.append(_read(path, "ours"))
    return files


def _python_files(place: str) -> list[Path]:
    path = Path(place).expanduser().absolute()
    if path.is_file():
        return [path]
    if path.is_dir():
        return [file for file in sorted(path.glob("*.py")) if not file.name.startswith("_")]
    raise ConfigError(
        f"converters.path: no such file or folder: {path}\n"
        "  next: a folder of converter files, see docs/converters.md"
    )


def _package_files() -> list[Path]:
    """Return the files that installed packages offer, without importing them."""
    files: list[Path] = []
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS)):
        found = importlib.util.find_spec(entry.value.split(":")[0])
        if found is None:
            raise ConfigError(f"entry point {entry.name} of {ENTRY_POINTS} names no module")
        if found.submodule_search_locations:
            for place in found.submodule_search_locations:
                files += _python_files(place)
        elif found.origin:
            files.append(Path(found.origin))
    return files


def _read(path: Path, origin: Origin) -> ConverterFile:
    """Return what a file says of itself; its code does not run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as Python: {error}") from error
    values: dict[str, Any] = {}
    for statement in tree.body:
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else []
        if isinstance(statement, ast.Assign):
            targets = statement.targets  # type: ignore[assignment]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in ("OPS", "KIND"):
                values[target.id] = _literal(path, target.id, cast(Any, statement).value)
    ops, kind = values.get("OPS"), values.get("KIND", "converter")
    if isinstance(ops, str) or not ops:
        raise ConfigError(
            f"{path}: no OPS\n  accepted: OPS = ('namespace.op.overload',), at the top of the file"
        )
    if kind not in KINDS:
        raise unknown(f"KIND in {path}", str(kind), KINDS)
    for op in ops:
        if str(op).count(".") != 2:
            raise ConfigError(
                f"{path}: OPS has '{op}'\n  accepted: namespace.op.overload, like aten.amax.default"
            )
    text = ast.get_docstring(tree) or ""
    return ConverterFile(
        path=str(path),
        kind=kind,
        ops=tuple(str(op) for op in ops),
        origin=origin,
        description=text.strip().splitlines()[0] if text.strip() else "",
    )


def _literal(path: Path, name: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ConfigError(f"{path}: {name} is no plain literal: {error}") from error


# ---- which are needed ----------------------------------------------------------------------------


def needed(
    fx_ops: Mapping[str, int],
    status: Callable[[str], str],
    files: Sequence[ConverterFile],
    use: str | tuple[str, ...] = "auto",
) -> list[tuple[str, ConverterFile]]:
    """Return op and file for what has to be registered so that a graph of these ops lowers.

    ``use`` as in :class:`Selection`. Raises :class:`ConfigError` for a name that nothing has.
    """
    if use == "off":
        return []
    chosen = files if isinstance(use, str) else _named(use, files)
    wanted = [op for file in chosen for op in file.ops]
    if use == "auto":
        wanted = list(fx_ops)
    elif not isinstance(use, str):
        wanted = [op for op in wanted if op in use or _has_name(op, use, chosen)]
    found = []
    for op in dict.fromkeys(wanted):
        file = next((file for file in chosen if op in file.ops), None)
        if file is None:
            continue
        state = status(op)
        usable = file.kind == "converter" or state != "partial"
        if file.origin != "ours" or (state in GAPS and usable):
            found.append((op, file))
    return found


def _named(names: tuple[str, ...], files: Sequence[ConverterFile]) -> list[ConverterFile]:
    known = {file.name for file in files} | {op for file in files for op in file.ops}
    for name in names:
        if name not in known:
            raise unknown("converter", name, sorted(known), next_step="list converters")
    return [file for file in files if file.name in names or set(file.ops) & set(names)]


def _has_name(op: str, names: tuple[str, ...], files: Sequence[ConverterFile]) -> bool:
    return any(file.name in names and op in file.ops for file in files)


# ---- in the worker -------------------------------------------------------------------------------


def overload(name: str) -> Any:
    """Return the op of a name, ``None`` if this torch has none such. Imports torch."""
    import torch

    namespace, packet, last = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), last)
    except (AttributeError, RuntimeError):
        return None


def ops_of(graph: Any) -> dict[str, int]:
    """Return op -> calls of an FX graph, by the names that OPS has; the op inside an
    ``auto_functionalized`` one counts. Things that are no torch op are left out."""
    import torch

    counts: dict[str, int] = {}
    for node in graph.nodes:
        target = node.target
        if node.op == "call_function" and str(target).startswith("auto_functionalized"):
            target = node.args[0]
        if node.op == "call_function" and isinstance(target, torch._ops.OpOverload):
            counts[str(target)] = counts.get(str(target), 0) + 1
    return counts


def status(name: str) -> Status:
    """Return how torchair would convert an op now, by its own registry. Needs torchair.

    ``stub``: registered, and does nothing but raise; ``partial``: raises for some arguments;
    ``auto``: generated from an IR definition of that name; ``callback``: the op's eager kernel is
    called from inside the graph; ``decomposition``: torch takes it apart before it gets there.
    """
    op = overload(name)
    if op is None:
        return "none"
    found = converter_of(op)
    if found is not None:
        return _status_of(found)
    import torch

    if name.split(".")[0] not in ("aten", "prims", "prim"):
        return _without_converter(op)
    kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    implicit = kernel(op.name(), "CompositeImplicitAutograd")
    return "decomposition" if implicit else "none"


def converter_of(op: Any) -> Any:
    """Return torchair's converter of an op, ``None`` if there is none. Needs torchair."""
    from torchair._ge_concrete_graph import fx2ge_converter

    if str(op) in fx2ge_converter._SPECIAL_TARGETS:
        return _special
    found = getattr(op, "_ge_converter", None)
    return found if found is not None else fx2ge_converter._get_converter(op)


def _special(*args: Any, **kwargs: Any) -> None:
    """Stand for a target that torchair handles without a converter."""


def _without_converter(op: Any) -> Status:
    """Return what torchair does with a custom op that has no converter.

    With an IR definition of the op's name it generates a converter or fails; without one, torchair
    2.13 and newer calls the eager kernel back where there is a C++ one.
    """
    from torchair._ge_concrete_graph import fx2ge_converter

    generate = getattr(fx2ge_converter, "_generate_converter_code", None)
    if generate is None:
        return "none"
    if fx2ge_converter._get_converter_context(op).status != "SUCCESS":
        return _callback(op)
    try:
        generate(op)
    except RuntimeError:
        return "none"
    return "auto"


def _callback(op: Any) -> Status:
    try:
        from torchair._ge_concrete_graph import custom_op_codegen_common as common
    except ImportError:
        return "none"
    if not common.is_custom_op(op):
        return "none"
    return "callback" if common.determine_callback_path(op) == "cpp" else "none"


def _status_of(converter: Any) -> Status:
    if getattr(converter, "benchbench_file", None):
        return "ours"
    if "callback" in getattr(converter, "__name__", ""):
        return "callback"
    import inspect
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(converter))))
    except (OSError, TypeError, SyntaxError):
        return "auto"  # code made at run time has no file
    function = tree.body[0]
    body = list(getattr(function, "body", []))
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if body and isinstance(body[0], ast.Raise):
        return "stub"
    return "partial" if any(isinstance(node, ast.Raise) for node in ast.walk(tree)) else "builtin"


def register(
    wanted: Sequence[tuple[str, ConverterFile]],
) -> tuple[list[Registered], dict[Any, Callable[..., Any]]]:
    """Register exactly these; return what was registered, and the decompositions.

    Decompositions are not global: hand them to ``torchair.get_npu_backend`` as
    ``custom_decompositions``.
    """
    by_file: dict[str, tuple[ConverterFile, list[str]]] = {}
    for op, file in wanted:
        by_file.setdefault(file.path, (file, []))[1].append(op)
    done: list[Registered] = []
    tables: dict[Any, Callable[..., Any]] = {}
    for file, ops in by_file.values():
        module = _import(file)
        if file.kind == "decomposition":
            done += _decompose(file, module, ops, tables)
        else:
            done += _convert(file, module, ops)
    return done, tables


def _import(file: ConverterFile) -> ModuleType:
    """Import a file by its path; a second time gives the same module."""
    name = f"benchbench_converters.{paths.safe_name(file.path).replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file.path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file.path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with contextlib.ExitStack() as undo:  # a file that fails is no module
        undo.callback(sys.modules.pop, name)
        spec.loader.exec_module(module)
        undo.pop_all()
    return module


def _decompose(
    file: ConverterFile, module: ModuleType, ops: list[str], tables: dict[Any, Callable[..., Any]]
) -> list[Registered]:
    given = module.decompositions()
    done = []
    for op in ops:
        target = overload(op)
        function = given.get(op, given.get(target))
        if target is None or function is None:
            continue
        before = status(op)
        tables[target] = function
        replaced = _words(before) if before in ("builtin", "partial", "auto") else None
        done.append(
            Registered(
                op=op, file=file.path, kind=file.kind, origin=file.origin, overrides=replaced
            )
        )
    return done


def _convert(file: ConverterFile, module: ModuleType, ops: list[str]) -> list[Registered]:
    import inspect

    targets = {op: overload(op) for op in file.ops}
    before = {op: converter_of(target) for op, target in targets.items() if target is not None}
    takes_ops = bool(inspect.signature(module.register).parameters)
    if takes_ops:
        module.register(ops)
    else:
        module.register()
    done = []
    for op, old in before.items():
        target = targets[op]
        new = getattr(target, "_ge_converter", None)
        if new is None or new is old:
            continue
        if op not in ops:  # the file registers all it has; the rest is put back
            _put_back(target, old)
            continue
        state = _status_of(old) if old is not None else "none"
        if file.origin == "ours" and state == "builtin":
            _put_back(target, old)
            continue
        if file.origin == "ours" and state == "partial":
            new = target._ge_converter = _first_theirs(old, new)
        new.benchbench_file = file.path
        usable = file.origin != "ours" and state in ("builtin", "partial", "auto", "ours")
        done.append(
            Registered(
                op=op,
                file=file.path,
                kind=file.kind,
                origin=file.origin,
                overrides=_words(state) if usable else None,
            )
        )
    return done


def _put_back(target: Any, old: Any) -> None:
    if old is None:
        del target._ge_converter
    else:
        target._ge_converter = old


def _words(state: str) -> str:
    return {"builtin": "torchair's converter", "partial": "torchair's converter"}.get(state, state)


def _first_theirs(theirs: Any, ours: Any) -> Any:
    """Return a converter that is torchair's own, and ours for what that refuses."""
    import functools

    from torchair.ge._ge_graph import get_default_ge_graph

    @functools.wraps(ours)
    def convert(*args: Any, **kwargs: Any) -> Any:
        graph = get_default_ge_graph()
        before = len(graph.op)
        meta = {"meta_outputs": kwargs.pop("meta_outputs")} if "meta_outputs" in kwargs else {}
        try:
            return theirs(*args, **kwargs, **(meta if theirs.require_meta else {}))
        except (NotImplementedError, RuntimeError, AssertionError, TypeError, ValueError):
            del graph.op[before:]
            return ours(*args, **kwargs, **(meta if ours.require_meta else {}))

    convert.require_meta = True  # type: ignore[attr-defined]
    return convert


def undo(registered: Collection[Registered]) -> None:
    """Forget converters that were registered, where there was none before. For tests."""
    for item in registered:
        target = overload(item.op)
        if target is not None and getattr(target, "_ge_converter", None) is not None:
            del target._ge_converter

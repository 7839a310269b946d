"""Which source files a model came from, and where in them an error was raised. Torch-free."""

from __future__ import annotations

import hashlib
import linecache
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchbench import paths

_DECORATORS = 10
"""Lines below a decorator in which the decorated function is looked for."""


def source_hashes(path: str | None = None) -> dict[str, str]:
    """Return file -> sha256 of the sources that were imported for the model.

    These are the user's files, helpers included, with their libraries of custom ops, and our file
    of the model's family. Installed packages are left out: the environment names their versions.
    ``path`` is the model's target; with it, families that were imported for another reason (a
    preloaded server) are left out as well.
    """
    family = None if path is None else path.replace(":", ".").rpartition(".")[0]
    files = set(_op_libraries())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not Path(file).is_file():
            continue
        if _is_used_family(name, family) or _is_users(Path(file)):
            files.add(Path(file).resolve())
    return {name: _sha256(file) for name, file in sorted(_named(files).items())}


def _is_used_family(module_name: str, family: str | None) -> bool:
    if not module_name.startswith("benchbench.models."):
        return False
    return family is None or module_name in (family, "benchbench.models.common")


def _is_users(file: Path) -> bool:
    """Say whether a file is neither ours, nor Python's, nor of an installed package."""
    file = file.resolve()
    if {"site-packages", "dist-packages"} & set(file.parts):
        return False
    places = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib")]
    places += [Path(site.getusersitepackages()), paths.PACKAGE, paths.shipped("converters")]
    return not any(file.is_relative_to(place.resolve()) for place in places)


def _op_libraries() -> Iterator[Path]:
    torch_module = sys.modules.get("torch")
    for library in getattr(getattr(torch_module, "ops", None), "loaded_libraries", ()):
        file = Path(library).resolve()
        if file.is_file() and _is_users(file):
            yield file


def _named(files: Iterable[Path]) -> dict[str, Path]:
    """Name files by their path below the folder they were imported from: the same anywhere."""
    named: dict[str, Path] = {}
    for file in sorted(files):
        name = _short_name(file)
        named[name if name not in named else file.as_posix()] = file
    return named


def _short_name(file: Path) -> str:
    file = file.resolve()
    if file.is_relative_to(paths.PACKAGE):
        return file.relative_to(paths.PACKAGE.parent).as_posix()
    roots = [Path(entry or ".").resolve() for entry in sys.path]
    above = [root for root in roots if root != file and file.is_relative_to(root)]
    if not above:
        return file.as_posix()
    return file.relative_to(max(above, key=lambda root: len(root.parts))).as_posix()


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def where_raised(error: BaseException) -> str | None:
    """Return ``file:line in function`` of the innermost frame in a user's file, if there is one.

    Of a syntax error it is the place of the error itself.
    """
    if isinstance(error, SyntaxError) and error.filename and _is_users(Path(error.filename)):
        return f"{_short_name(Path(error.filename))}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and _is_users(file):
            place = f"{_short_name(file)}:{frame.lineno} in {frame.name}"
            # At import the line itself says more than "<module>": it names the op or function.
            return f"{place}: {_statement(frame)[:80]}" if frame.name == "<module>" else place
    return None


def _statement(frame: traceback.FrameSummary) -> str:
    """Return the line of a frame; of a decorator the line that names what it decorates."""
    line = frame.line or ""
    for number in range(frame.lineno or 1, (frame.lineno or 1) + _DECORATORS):
        if not line.startswith("@"):
            break
        line = linecache.getline(frame.filename, number + 1).strip()
    return line or frame.line or ""

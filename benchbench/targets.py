"""Names to objects: ``package.module.attribute`` or ``path/to/file.py:attribute``.

Errors that a module raises while it is imported are the user's own and are passed on untouched;
only a name that does not exist becomes a :class:`LoadError`. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from benchbench.errors import LoadError, did_you_mean

DEFAULT_ATTRIBUTE = "build"
FORMS = "package.module.attribute, package.module:attribute or path/to/file.py:attribute"


def resolve(path: str) -> object:
    """Return what ``package.module.attribute`` or ``path/to/file.py:attribute`` names.

    Of a file without ``:attribute`` it is ``build``. A relative file is looked for in the working
    directory, then in the folders of ``sys.path``.
    """
    source, attribute = _split(path)
    if source.endswith(".py"):
        module = _import_file(source)
        return _attribute(module, attribute or DEFAULT_ATTRIBUTE, path)
    if attribute is not None:
        return _attribute(_import_dotted(source, path), attribute, path)
    return _dotted(path)


def import_plugin(path: str) -> ModuleType:
    """Import a plugin, ``package.module`` or ``path/to/file.py``, for what its import does."""
    return _import_file(path) if path.endswith(".py") else _import_dotted(path, path)


def _split(path: str) -> tuple[str, str | None]:
    source, colon, attribute = path.rpartition(":")
    if path.endswith(".py") or not colon:
        source, attribute = path, ""
    if not source or (colon and source != path and not attribute):
        raise LoadError(f"'{path}' names nothing\n  accepted: {FORMS}")
    return source, attribute or None


def _dotted(path: str) -> object:
    parts = path.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        hint = "\n  next: a file ends in .py" if "/" in path or "\\" in path else ""
        raise LoadError(f"'{path}' is no target\n  accepted: {FORMS}{hint}")
    module = _import_top(parts[0], path)
    for index, part in enumerate(parts[1:], start=1):
        is_last = index == len(parts) - 1
        if is_last and hasattr(module, part):
            return getattr(module, part)
        submodule = _submodule(module, part)
        if submodule is None:
            return _attribute(module, ".".join(parts[index:]), path)
        module = submodule
    return module


def _import_dotted(name: str, path: str) -> ModuleType:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise LoadError(f"'{name}' is no module\n  accepted: {FORMS}")
    module = _import_top(parts[0], path)
    for part in parts[1:]:
        submodule = _submodule(module, part)
        if submodule is None:
            raise _no_attribute(module, part, path)
        module = submodule
    return module


def _import_top(name: str, path: str) -> ModuleType:
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        names = [found.name for found in pkgutil.iter_modules()]
        raise LoadError(
            f"'{path}': there is no module '{name}'{did_you_mean(name, names)}\n"
            f"  looked in: {', '.join(entry or '.' for entry in sys.path[:3])}, ...\n"
            "  next: install it, start where it is, or name its file (path/to/file.py:attribute)"
        )
    with _no_bytecode():
        return importlib.import_module(name)


def _submodule(parent: ModuleType, part: str) -> ModuleType | None:
    """Import a submodule; ``None`` if the package has none of that name."""
    name = f"{parent.__name__}.{part}"
    if name not in sys.modules and (
        not hasattr(parent, "__path__") or importlib.util.find_spec(name) is None
    ):
        return None
    with _no_bytecode():
        return importlib.import_module(name)


def _attribute(module: ModuleType, attribute: str, path: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_attribute(found, part, path)
        found = getattr(found, part)
    return found


def _no_attribute(owner: object, name: str, path: str) -> LoadError:
    names = {word for word in dir(owner) if not word.startswith("_")}
    names |= {found.name for found in pkgutil.iter_modules(getattr(owner, "__path__", []))}
    what = getattr(owner, "__file__", None) or getattr(owner, "__name__", None) or repr(owner)
    if isinstance(owner, ModuleType) and "." in owner.__name__:
        what = owner.__name__
    near = difflib.get_close_matches(name, names, n=8, cutoff=0.3) or sorted(names)[:8]
    return LoadError(
        f"'{path}': {what} has no '{name}'{did_you_mean(name, names)}\n"
        f"  it has: {', '.join(near) if near else '(nothing public)'}"
    )


def _import_file(source: str) -> ModuleType:
    """Import a file as Python would if it were imported by name, so that helpers beside it work."""
    file = _find_file(source)
    root, name = _module_name(file)
    for folder in (str(file.parent), str(root)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    importlib.invalidate_caches()
    with _no_bytecode():
        return _import_by_name(root, name, file) or _import_under_own_name(file)


def _find_file(source: str) -> Path:
    asked = Path(source).expanduser()
    places = [Path.cwd(), *(Path(entry) for entry in sys.path if entry)]
    for place in places:
        if (place / asked).is_file():
            return (place / asked).resolve()
    folder = (Path.cwd() / asked).parent
    beside = [item.name for item in folder.glob("*.py")] if folder.is_dir() else []
    raise LoadError(
        f"there is no file '{source}'{did_you_mean(asked.name, beside)}\n"
        f"  looked in: {', '.join(dict.fromkeys(str(place) for place in places[:3]))}, ..."
    )


def _module_name(file: Path) -> tuple[Path, str]:
    """Return the folder from which a file is imported, and its dotted name from there."""
    root, name = file.parent, file.stem
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        root, name = root.parent, f"{root.name}.{name}"
    return root, name


def _import_by_name(root: Path, name: str, file: Path) -> ModuleType | None:
    """Import a file under its plain name; ``None`` when that name means something else."""
    parts = name.split(".")
    module = None
    for count in range(1, len(parts) + 1):
        current = ".".join(parts[:count])
        is_last = count == len(parts)
        expected = file if is_last else root.joinpath(*parts[:count], "__init__.py")
        if not parts[count - 1].isidentifier() or not _same_file(_origin(current), expected):
            return None
        module = importlib.import_module(current)
    return module


def _origin(name: str) -> str | None:
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.origin


def _same_file(origin: str | None, file: Path) -> bool:
    return origin is not None and Path(origin).resolve() == file


def _import_under_own_name(file: Path) -> ModuleType:
    """Import a file whose plain name is taken (``json.py``) or no name (``my-model.py``)."""
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    name = f"{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadError(f"'{file}' cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    with contextlib.ExitStack() as undo:
        sys.modules[name] = module
        undo.callback(sys.modules.pop, name)  # half a module must not be found by a second try
        spec.loader.exec_module(module)
        undo.pop_all()
    return module


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    """Write no bytecode of the user's files.

    Python trusts it by whole second and size: a constant edited within the second that a run
    takes would be measured with its old value.
    """
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before

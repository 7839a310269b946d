"""The YAML files behind every selectable name: finding them, and reading them.

A plain value in a file means what the same characters mean on the command line. YAML 1.1 would
turn ``off`` into False and ``010`` into 8; here only ``true`` and ``false`` are booleans, only
``null``, ``~`` and nothing are null, and numbers are written as on the command line. Values of
keys that hold names stay text, letter by letter: ``name: 1e3`` is the name ``1e3``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchbench import paths
from benchbench.errors import ConfigError

TEXT_KEYS = frozenset(
    {
        "_target_",
        "backend",
        "baseline",
        "compile_mode",
        "converters",
        "path",
        "use",
        "dtype",
        "grad_mode",
        "kind",
        "name",
        "plugins",
        "results_dir",
        "resume",
        "size",
        "stand_in",
        "start",
        "workload",
        "workloads",
    }
)
"""Keys whose values are names: never read as numbers."""

_BOOL = re.compile(r"^(?:true|false)$", re.IGNORECASE)
_NULL = re.compile(r"^(?:~|null|)$", re.IGNORECASE)
_INT = re.compile(r"^[-+]?(?:0|[1-9](?:_?[0-9])*)$")
_FLOAT = re.compile(
    r"^[-+]?(?:(?:0|[1-9](?:_?[0-9])*)\.|(?:0|[1-9](?:_?[0-9])*)?\.[0-9](?:_?[0-9])*"
    r"|(?:(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9]*)?|\.[0-9]+)e[-+]?[0-9](?:_?[0-9])*"
    r"|inf|nan)$",
    re.IGNORECASE,
)


_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]
    """YAML with the command line's idea of numbers and booleans, and no repeated keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (replaced, not shared)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789iInN"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])


def _as_text(node: yaml.Node) -> None:
    """Let the plain scalars in a value of a text key be text, except null and booleans."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item in nodes:
        if isinstance(item, yaml.ScalarNode) and item.tag.endswith((":int", ":float")):
            item.tag = "tag:yaml.org,2002:str"


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        if key in made:
            raise yaml.MarkedYAMLError(
                problem=f"the key '{key}' is there twice", problem_mark=key_node.start_mark
            )
        if key in TEXT_KEYS:
            _as_text(value_node)
        made[key] = loader.construct_object(value_node, deep=True)
    return made


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(str(loader.construct_scalar(node)))


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; raise :class:`ConfigError` naming file and line."""
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        where = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{where}: not valid YAML: {error.problem}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: a configuration file is a mapping of keys to values")
    return loaded


def folders(config_dirs: Iterable[str] = ()) -> list[Path]:
    """Return the folders that are searched for selectable files: ours first."""
    return [paths.shipped("configs"), *(Path(folder) for folder in config_dirs)]


def available(group: str, config_dirs: Iterable[str] = ()) -> dict[str, Path]:
    """Return name -> YAML file of everything that can be selected in a group."""
    found: dict[str, Path] = {}
    for folder in folders(config_dirs):
        root = folder / group
        for path in sorted(root.rglob("*.yaml")) if root.is_dir() else []:
            found.setdefault(path.relative_to(root).with_suffix("").as_posix(), path)
    return found


def is_shipped(path: Path) -> bool:
    """Say whether a YAML file is one of ours."""
    return path.is_relative_to(paths.shipped("configs"))


def describe(path: Path, content: Mapping[str, Any]) -> str:
    """Return one line about a selectable file: its first comment, else its target's docstring."""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.lstrip("#").strip()
        if not line.startswith("#"):
            break
        if text and not text.startswith("@"):
            return text
    source = _source(str(content.get("_target_", "")))
    return docstring(source) if source else ""


def docstring(source: Path) -> str:
    """Return the first line of a Python file's docstring, without importing the file."""
    text = ast.get_docstring(_parsed(source)) or ""
    return text.splitlines()[0] if text else ""


def parameters(target: str) -> tuple[set[str], bool] | None:
    """Return the parameter names of a target's function and whether it takes any (``**kwargs``).

    The file is parsed, never imported: it may import torch, or do anything else. ``None`` means
    that the function could not be found in this way.
    """
    source = _source(target)
    name = target.rpartition(":")[2].rpartition(".")[2]
    if source is None:
        return None
    for node in _parsed(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            arguments = node.args
            listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            return {argument.arg for argument in listed}, arguments.kwarg is not None
    return None


def _source(target: str) -> Path | None:
    """Return the file of ``file.py:name`` or of a dotted target of ours."""
    file, colon, _ = target.rpartition(":")
    if colon and file.endswith(".py"):
        path = Path(file)
    else:
        package, _, rest = target.partition(".")
        if package != paths.PACKAGE.name or not rest:
            return None
        path = paths.PACKAGE.joinpath(*rest.split(".")[:-1]).with_suffix(".py")
    return path if path.is_file() else None


def _parsed(source: Path) -> ast.Module:
    try:
        return ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])  # the worker will say what is wrong with it

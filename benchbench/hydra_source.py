"""How Hydra reads our YAML: through :mod:`benchbench.config_files`, from every folder.

Two additions to what Hydra's own file source does. A model or mode file without a package header
lands under its own name, so a user's file needs no header. A file that says ``mode: eager`` (or
``model``, ``device``) at its top means what ``mode=eager`` means on the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from benchbench import paths
from benchbench.config_files import available, load_yaml
from benchbench.errors import ConfigError
from benchbench.names import canonical, canonical_mode
from benchbench.plan import auto_device

SCHEME = "benchbench"
_SELECTABLE = ("model", "mode", "device")


class YamlSource(FileConfigSource):
    """Configuration files read so that a value means the same as on the command line."""

    @staticmethod
    def scheme() -> str:
        """Return the prefix of our entries in Hydra's search path."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Return one file's content and header."""
        path = Path(self.path) / self._normalize_file_name(config_path)
        content = load_yaml(path)
        header = ConfigSource._get_header_dict(path.read_text(encoding="utf-8")[:512])
        group, _, name = config_path.removesuffix(".yaml").partition("/")
        if group in ("model", "mode") and name:
            if header["package"] is None:
                header["package"] = f"{group}[{name}]" if "." in name else f"{group}.{name}"
        elif group != "device":
            content = _selections_to_defaults(content, path)
        return ConfigResult(
            config=OmegaConf.create(content),
            path=f"{SCHEME}://{self.path}",
            provider=self.provider,
            header=header,
        )


def _selections_to_defaults(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Turn ``mode: eager`` into an override of the defaults list, and aliases into names."""
    defaults = [_canonical_entry(entry) for entry in content.get("defaults", ["_self_"])]
    rest = {key: value for key, value in content.items() if key != "defaults"}
    for group in _SELECTABLE:
        value = rest.get(group)
        if value is None or isinstance(value, dict):
            continue
        names = value if isinstance(value, list) else [value]
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(
                    f"{path}: {group}: {_yaml(name)} is {_kind(name)}, not a name\n"
                    f"  next: quote it if it is a name: {group}: '{_yaml(name)}'"
                )
        del rest[group]
        defaults.append(_canonical_entry({f"override /{group}": value}))
    return {**rest, "defaults": defaults} if defaults != ["_self_"] else rest


def _canonical_entry(entry: Any) -> Any:
    if not isinstance(entry, dict) or len(entry) != 1:
        return entry
    key, value = next(iter(entry.items()))
    group = key.rsplit("/", 1)[-1].rsplit(" ", 1)[-1]
    if group not in _SELECTABLE or "hydra" in key:
        return entry
    known = set(available(group))
    if isinstance(value, list):
        return {key: [_name(group, item, known) for item in value]}
    return {key: _name(group, value, known)}


def _name(group: str, word: Any, known: set[str]) -> Any:
    if not isinstance(word, str):
        return word
    if group == "mode":
        return canonical_mode(word, known, auto_device)
    return canonical(group, word, known)


def _kind(value: Any) -> str:
    return "a boolean" if isinstance(value, bool) else "a number"


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class OurFolder(SearchPathPlugin):
    """Let our own folder be read by :class:`YamlSource` instead of Hydra's file source."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Replace the path of the main provider."""
        ours = str(paths.shipped("configs"))
        for element in search_path.get_path():
            if element.provider == "main" and element.path.removeprefix("file://") == ours:
                element.path = f"{SCHEME}://{ours}"


def register() -> None:
    """Make both known to Hydra; doing it twice changes nothing."""
    Plugins.instance().register(YamlSource)
    Plugins.instance().register(OurFolder)

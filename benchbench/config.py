"""From overrides to a checked configuration: ``compose(["model=llama"])``.

Hydra composes the files and OmegaConf checks types; whatever is wrong ends in a
:class:`ConfigError` with the key, the value and what is accepted. Ranges and rules across keys
are ``plan.py``'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchbench import hydra_source, paths, schema
from benchbench.config_files import available, is_shipped, load_yaml
from benchbench.errors import ConfigError, unknown
from benchbench.overrides import Translation, not_selected, translate
from benchbench.plan import auto_device
from benchbench.schema import Conf, ModeConf

VERSION_BASE = "1.3"
CONFIG_NAME = "config"
_INLINE = "command line"


def compose(
    overrides: list[str],
    *,
    config_dirs: list[str] | tuple[str, ...] = (),
    config_name: str = CONFIG_NAME,
) -> Conf:
    """Return the configuration that the words of a command line ask for."""
    translation = translate(overrides, config_dirs=config_dirs, device_kind=auto_device)
    return compose_translated(translation, config_name=config_name)


def compose_translated(translation: Translation, *, config_name: str = CONFIG_NAME) -> Conf:
    """Return the configuration for words that are translated already."""
    register(translation)
    with _helpful_errors(translation), _initialized():
        composed = hydra.compose(config_name, overrides=translation.overrides)
    return finish(composed)


def register(translation: Translation) -> None:
    """Make schema, YAML source and the models of the command line known to Hydra."""
    hydra_source.register()
    store = ConfigStore.instance()
    store.store(name="benchbench_schema", node=Conf, provider="benchbench")
    for group in translation.inline:
        found_before = store.repo.get(group, {})
        for file in [f for f, node in found_before.items() if node.provider == _INLINE]:
            del found_before[file]
    for group, found in translation.inline.items():
        for name, content in found.items():
            package = f"{group}[{name}]" if "." in name else f"{group}.{name}"
            store.store(group=group, name=name, node=content, package=package, provider=_INLINE)


def finish(composed: DictConfig) -> Conf:
    """Return the typed configuration; also what Hydra handed to a job of a sweep."""
    with _helpful_errors(None):
        _check_targets(composed)
        conf = OmegaConf.to_object(composed)
    if not isinstance(conf, Conf):
        raise ConfigError("the configuration does not start from benchbench's own config.yaml")
    for group, entries in (("model", conf.model), ("mode", conf.mode)):
        files = available(group, conf.origin.config_dirs)
        for name in entries:
            if name in files:
                _remember(conf, group, name, files[name])
    _add_baseline(conf)
    for key in conf.origin.contents:
        _check_options(conf, key)
    return conf


def _remember(conf: Conf, group: str, name: str, path: Path) -> None:
    conf.origin.files[f"{group}.{name}"] = str(path)
    content = {key: value for key, value in load_yaml(path).items() if key != "defaults"}
    conf.origin.contents[f"{group}.{name}"] = content


def _add_baseline(conf: Conf) -> None:
    """Bring the baseline mode in when it was not selected."""
    name = conf.baseline
    if name is None or name in conf.mode:
        return
    files = available("mode", conf.origin.config_dirs)
    if name not in files:
        raise unknown(
            "baseline", name, {*files, *conf.mode}, next_step="baseline=null: no baseline"
        )
    conf.mode = {name: ModeConf(**load_yaml(files[name])), **conf.mode}
    _remember(conf, "mode", name, files[name])
    conf.origin.baseline_added = name
    conf.origin.notes["baseline"] = (
        f"baseline {name} was added to the modes asked for (baseline=null leaves it out)"
    )


def _check_targets(composed: DictConfig) -> None:
    """Refuse an entry that only an option has brought into being."""
    for group in ("model", "mode"):
        entries = composed.get(group) or {}
        for name in entries:
            if OmegaConf.is_missing(entries[name], "_target_"):
                raise not_selected(group, str(name), [str(n) for n in entries if n != name])
        if not entries:
            raise ConfigError(
                f"no {group} is selected\n"
                f"  next: {group}=[NAME], or python -m benchbench list {group}s"
            )


def _check_options(conf: Conf, key: str) -> None:
    """Hold the options of a user's mode against its file; the plan judges ours and models."""
    group, name = key.split(".", 1)
    listed = set(conf.origin.contents[key].get("options") or {})
    if group == "model" or not listed or is_shipped(Path(conf.origin.files[key])):
        return
    for option in conf.mode[name].options:
        if option not in listed:
            raise unknown(f"option in {key}.options", option, listed)


@contextmanager
def _initialized() -> Iterator[None]:
    with hydra.initialize_config_dir(str(paths.shipped("configs")), version_base=VERSION_BASE):
        yield


@contextmanager
def _helpful_errors(translation: Translation | None) -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise into our errors."""
    try:
        yield
    except MissingConfigException as error:
        raise _missing(error, translation) from None
    except (HydraException, ConfigCompositionException, OmegaConfBaseException) as error:
        raise _explained(error) from None


def _missing(error: MissingConfigException, translation: Translation | None) -> ConfigError:
    group, slash, name = (error.missing_cfg_file or "").rpartition("/")
    group = group or name
    if not slash:
        return ConfigError(f"no such configuration: {name or error}\n  next: --config-name NAME")
    dirs = translation.config_dirs if translation else []
    return unknown(group, name, available(group, dirs))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _explained(error: BaseException) -> ConfigError:
    for link in _chain(error):
        if isinstance(link, ConfigError):
            return link
    for link in _chain(error):
        if isinstance(link, OmegaConfBaseException):
            return _omegaconf(link)
    unread = re.search(r"(?:input|at) '(.*)'", str(error).splitlines()[0]) if str(error) else None
    if unread and "hydra.cc" in str(error):
        return ConfigError(
            f"a value cannot be read at '{unread[1]}'\n"
            "  next: a list is KEY=[1,2,4]; text with special characters is 'KEY=\"text\"'"
        )
    first = [line for line in str(error).splitlines() if line.strip()]
    return ConfigError("\n  ".join(first[:3]) if first else type(error).__name__)


def _omegaconf(error: OmegaConfBaseException) -> ConfigError:
    message = (error.msg or str(error)).splitlines()[0]
    key = str(error.full_key or error.key or "")
    found = re.search(r"Key '([^']*)' not in '(\w+)'", message)
    if found:
        parent = key.rpartition(".")[0]
        prefix = f"{parent}." if parent else ""
        accepted = [prefix + name for name in schema.class_keys(found[2]) if name != "origin"]
        return unknown("key", key or found[1], accepted, next_step="python -m benchbench --help")
    found = re.search(r"not a subclass of (Mode|Model)Conf", message)
    if found:
        return not_selected(found[1].lower(), key, ["..."])
    found = re.search(r"not a subclass of (\w+Conf)\. value: (.*)", message)
    if found:
        keys = ", ".join(name for name in schema.class_keys(found[1]) if name != "origin")
        return ConfigError(
            f"{key}: '{found[2]}' is not a set of keys\n  next: {key}.KEY=VALUE with {keys}"
        )
    if "Cannot merge DictConfig with ListConfig" in message:
        return ConfigError(f"{key}: a list, where keys are meant\n  next: {key}.NAME=VALUE")
    found = re.search(r"Cannot convert '(?:list|dict)' to string: '(.*)'", message)
    if found:
        return ConfigError(f"{key}: {found[1]} is not one name\n  next: {key}=NAME")
    found = re.search(r"Cannot assign (\w+) to Dict", message)
    if found:
        return ConfigError(f"{key}: holds several keys, not one value\n  next: {key}.KEY=VALUE")
    found = re.search(r"Value '(.*)' is not a valid bool", message)
    if found:
        return ConfigError(f"{key}: '{found[1]}' is not true or false")
    if "dereferencing interpolation" in message or "Interpolation" in message:
        first = message.split(":", 1)[0]
        return ConfigError(
            f"{key}: {first}\n  next: quote it if it is plain text: '{key}=\\${{..}}'"
        )
    found = re.search(r"Value '(.*)' of type '(\w+)' could not be converted to (\w+)", message)
    if found:
        wanted = _WANTED.get(found[3].lower(), found[3])
        return ConfigError(f"{key}: '{found[1]}' is not {wanted}")
    return ConfigError(f"{key}: {message}" if key and key not in message else message)


_WANTED: Mapping[str, str] = {
    "float": "a number",
    "integer": "a whole number",
    "int": "a whole number",
    "boolean": "true or false",
    "bool": "true or false",
}

"""From the words of a command line to overrides that Hydra understands.

Hydra's own parser refuses much that users type (``model=模型``, ``name=epoch=9.ckpt``) and its
errors name no near match. So every word is looked at here first: names are made canonical and
checked against the folders, keys against the schema, and values are quoted where Hydra needs it.
What comes out is valid for Hydra, in a single run and in a sweep (``-m``).
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from benchbench import schema
from benchbench.config_files import TEXT_KEYS, available
from benchbench.errors import ConfigError, did_you_mean, unknown
from benchbench.hydra_source import SCHEME
from benchbench.names import GROUPS, canonical, canonical_mode

LIST_KEYS = frozenset({"batch_size", "seq_len", "dtype", "workload", "plugins", "converters"})
"""Keys that take a list inside one run."""

COMMAND = "python -m benchbench"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Word:
    """One ``KEY=VALUE`` of the command line."""

    key: str
    value: str
    typed: str

    @property
    def path(self) -> list[str]:
        """The key's parts; a part in brackets may contain dots."""
        return [
            first or second for first, second in re.findall(r"\[([^\]]+)\]|([^.\[\]]+)", self.key)
        ]


@dataclasses.dataclass(kw_only=True)
class Translation:
    """Overrides for Hydra and what it cannot carry itself."""

    overrides: list[str] = dataclasses.field(default_factory=list)
    config_dirs: list[str] = dataclasses.field(default_factory=list)
    inline: dict[str, dict[str, dict[str, Any]]] = dataclasses.field(
        default_factory=lambda: {"model": {}, "mode": {}}
    )
    """Group -> name -> content, for models and modes that exist on the command line only."""


def translate(
    words: list[str],
    *,
    config_dirs: Iterable[str] = (),
    multirun: bool = False,
    device_kind: Callable[[], str] = lambda: "cpu",
) -> Translation:
    """Return the overrides for Hydra; raise :class:`ConfigError` for whatever is not right."""
    return _Translator(words, config_dirs, multirun, device_kind).run()


class _Translator:
    def __init__(
        self,
        words: list[str],
        config_dirs: Iterable[str],
        multirun: bool,
        device_kind: Callable[[], str],
    ) -> None:
        self.multirun = multirun
        self.made = Translation()
        self.parser = OverridesParser.create()
        self.words: list[Word] = []
        self.passed: list[str] = []
        searchpath: list[str] = []
        for typed in check_words(words):
            if typed.startswith("~") or typed.startswith(("hydra/", "+hydra")):
                self.passed.append(typed)
                continue
            word = split_word(typed)
            if word.key == "converters" and not word.value.startswith("{"):
                word = dataclasses.replace(word, key="converters.use")
            if word.key == "hydra.searchpath":
                searchpath += names_in(word.value)
            elif word.path[0] == "hydra":
                self.passed.append(typed)
            else:
                self.words.append(word)
        self._add_folders([*config_dirs, *searchpath])
        self.known = {group: set(available(group, self.made.config_dirs)) for group in GROUPS}
        self.device_kind = self._device_kind(device_kind)
        self.typed: dict[str, str] = {}
        self.selected: dict[str, list[str]] = {}

    # ---- folders and the device ------------------------------------------------------------

    def _add_folders(self, folders: list[str]) -> None:
        entries = []
        for folder in folders:
            if folder.startswith("pkg://"):
                entries.append(folder)
                continue
            path = Path(folder.removeprefix("file://")).expanduser().absolute()
            if not path.is_dir():
                raise ConfigError(
                    f"no such folder of configurations: {path}\n"
                    "  next: --config-dir DIR, where DIR holds model/NAME.yaml or mode/NAME.yaml"
                )
            self.made.config_dirs.append(str(path))
            entries.append(f"{SCHEME}://{path}")
        if entries:
            self._emit(f"hydra.searchpath=[{','.join(quote(entry) for entry in entries)}]")

    def _device_kind(self, otherwise: Callable[[], str]) -> Callable[[], str]:
        """Return how to find the device's kind, for the one alias that depends on it."""
        typed = [word.value for word in self.words if word.key == "device"]
        name = unquote(typed[-1]).split(":")[0] if typed else "auto"
        kind = canonical("device", name, self.known["device"])
        return otherwise if kind == "auto" else lambda: kind

    # ---- the whole -------------------------------------------------------------------------

    def run(self) -> Translation:
        """Translate all words, selections first."""
        for word in self.words:
            if len(word.path) == 1 and word.key not in GROUPS:
                schema.check_key(word.path)
        self._find_inline()
        for word in [w for w in self.words if w.key in GROUPS]:
            self._select(word)
        self._select_inline()
        for word in [w for w in self.words if w.key not in GROUPS]:
            self._value(word)
        if self.made.config_dirs:
            listed = ",".join(quote(folder) for folder in self.made.config_dirs)
            self._emit(f"++origin.config_dirs=[{listed}]")
        for name, typed in self.typed.items():
            self._emit(f"++origin.typed.{name}={quote(typed)}")
        self.made.overrides += self.passed
        return self.made

    def _emit(self, override: str) -> None:
        self.made.overrides.append(override)

    # ---- models and modes of the command line ----------------------------------------------

    def _find_inline(self) -> None:
        """Find ``model.mine._target_=...``: names that no folder has and a target makes real."""
        for word in self.words:
            path = word.path
            if len(path) < 3 or path[0] not in ("model", "mode") or path[1] in self.known[path[0]]:
                continue
            makes_real = ("_target_", "backend") if path[0] == "mode" else ("_target_",)
            if path[2] in makes_real and len(path) == 3:
                content = self.made.inline[path[0]].setdefault(path[1], {})
                content[path[2]] = unquote(word.value)
                if path[2] == "backend":
                    content.setdefault("_target_", schema.GENERIC_MODE)

    def _inline_file(self, typed: str) -> str:
        """Return the name for ``model=path/to/file.py`` after making it a model."""
        file, _, attribute = typed.partition(".py")
        name = Path(file).name
        if name in self.known["model"] or name in self.made.inline["model"]:
            raise ConfigError(
                f"model={typed}: the name '{name}' is taken already\n"
                f"  next: give it another name: model.mine._target_={file}.py:"
                f"{attribute.lstrip(':') or 'build'}"
            )
        target = f"{file}.py:{attribute.lstrip(':') or 'build'}"
        self.made.inline["model"][name] = {"_target_": target}
        return name

    def _select_inline(self) -> None:
        """Let a model of the command line run alone when nothing else was selected."""
        for group, found in self.made.inline.items():
            if found and group not in self.selected:
                self.selected[group] = list(found)
                self._emit(f"{group}=[{','.join(quote(name) for name in found)}]")

    # ---- selections ------------------------------------------------------------------------

    def _select(self, word: Word) -> None:
        choices = [c.strip() for c in split_top(word.value)]
        if len(choices) > 1 and not self.multirun:
            raise _comma(word, choices)
        if word.key in ("device", "suite"):
            made = [self._select_one(word, choice) for choice in choices]
        else:
            made = [self._select_list(word, choice) for choice in choices]
        if made == ["null"]:
            self._emit("~suite")
        elif "null" in made:
            raise ConfigError(f"{word.typed}: null cannot be one of several suites in a sweep")
        else:
            self._emit(f"{word.key}={','.join(made)}")

    def _select_one(self, word: Word, choice: str) -> str:
        if word.key == "suite" and choice.lower() in ("null", ""):
            return "null"
        if choice.startswith("["):
            raise ConfigError(
                f"{word.typed}: one {word.key} at a time\n"
                f"  next: {COMMAND} -m {word.key}={choice.strip('[] ').replace(' ', '')}"
            )
        name, colon, index = self._name_in(word, choice).partition(":")
        if word.key == "device" and colon:
            if not index.isdigit():
                raise ConfigError(f"{word.typed}: '{index}' is not a device number (device=cuda:1)")
            self._emit(f"++device.index={index}")
        return quote(self._known_name(word, name))

    def _select_list(self, word: Word, choice: str) -> str:
        listed = choice.startswith("[") and choice.endswith("]")
        items = [i.strip() for i in split_top(choice[1:-1])] if listed else [choice]
        if listed and items == [""]:
            some = min(self.known[word.key], default="NAME")
            raise ConfigError(f"{word.key}=[] selects nothing\n  next: {word.key}=[{some}]")
        names = [self._known_name(word, self._name_in(word, item)) for item in items]
        once = list(dict.fromkeys(names))
        if len(once) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            self._note(f"{word.typed}: {', '.join(twice)} is named twice and runs once")
        self.selected.setdefault(word.key, []).extend(once)
        return f"[{','.join(quote(name) for name in once)}]"

    def _name_in(self, word: Word, item: str) -> str:
        """Return the name in one item; refuse what is empty or no name."""
        if is_quoted(item):
            return unquote(item)
        if item == "":
            raise ConfigError(f"{word.typed}: an empty name\n  next: {COMMAND} list {word.key}s")
        if item.lower() in ("true", "false", "null"):
            kind = "null" if item.lower() == "null" else "a boolean"
            raise ConfigError(
                f"{word.typed}: {item} is {kind}, not a name\n"
                f"  next: quote it if it is a name: {in_shell(word.key, quote(item))}"
            )
        return item

    def _known_name(self, word: Word, typed: str) -> str:
        known = self.known[word.key] | set(self.made.inline.get(word.key, {}))
        if word.key == "model" and re.search(r"\.py(:\w+)?$", typed):
            return self._inline_file(typed)
        if word.key == "mode":
            name = canonical_mode(typed, known, self.device_kind)
        else:
            name = canonical(word.key, typed, known)
        if name not in known:
            own = f"; your own: {word.key}.NAME._target_=FILE.py:NAME_IN_IT"
            step = f"{COMMAND} list {word.key}s" + (own if word.key in ("model", "mode") else "")
            raise unknown(word.key, typed, known, next_step=step)
        if word.key == "mode" and name != typed:
            self.typed[name] = typed
        return name

    def _note(self, text: str) -> None:
        self._emit(f"++origin.notes.n{len(self.made.overrides)}={quote(text)}")

    # ---- values ----------------------------------------------------------------------------

    def _value(self, word: Word) -> None:
        path = list(word.path)
        if path[0] in ("model", "mode") and len(path) > 1:
            path[1] = self._owner(word, path)
        schema.check_key(path)
        value = self._value_text(word, path)
        if path[0] in ("model", "mode") and path[1] in self.made.inline[path[0]]:
            if path[2:] in (["_target_"], ["backend"]):
                return
            if not self.multirun:
                self._put_inline(path, value)
                return
        key = ".".join(path)
        if not re.fullmatch(
            r"[A-Za-z_$][\w$-]*(\.([A-Za-z_$][\w$-]*|0|[1-9][0-9]*))*", key, re.ASCII
        ):
            raise ConfigError(
                f"{word.typed}: only plain letters can stand in a key\n"
                f"  next: write the value into the YAML file of '{path[1] if path[1:] else key}'"
            )
        self._emit(f"++{key}={value}")

    def _owner(self, word: Word, path: list[str]) -> str:
        """Return the canonical name in ``mode.NAME.key``; it must exist and be selected."""
        group, typed = path[0], path[1]
        known = self.known[group] | set(self.made.inline[group])
        if group == "mode":
            name = canonical_mode(typed, known, self.device_kind)
        else:
            name = canonical(group, typed, known)
        if name not in known:
            step = f"{COMMAND} list {group}s; your own needs {group}.{typed}._target_=FILE.py:NAME"
            raise unknown(group, typed, known, next_step=step)
        if len(path) < 3:
            raise ConfigError(
                f"{word.typed}: {group}.{name} holds several keys\n"
                f"  next: {group}.{name}.KEY=VALUE with {', '.join(schema.keys_of(group))}"
            )
        selected = self.selected.get(group)
        if selected is not None and name not in selected:
            raise not_selected(group, name, selected)
        return name

    def _put_inline(self, path: list[str], value: str) -> None:
        group, name, *rest = path
        place = self.made.inline[group][name]
        for part in rest[:-1]:
            place = place.setdefault(part, {})
        place[rest[-1]] = self.parser.parse_override(f"x={value}").value()

    def _value_text(self, word: Word, path: list[str]) -> str:
        """Return the value as Hydra must get it."""
        key = path[-1]
        listable = path[0] in LIST_KEYS or key in LIST_KEYS
        text = len(path) <= 3 and key in TEXT_KEYS and "options" not in path[:-1]
        choices = split_top(word.value)
        if len(choices) > 1 and not self.multirun and (listable or not text):
            raise _comma(word, [c.strip() for c in choices])
        if text:
            if listable or self.multirun:
                return ",".join(text_value(choice.strip()) for choice in choices)
            return text_value(word.value)
        return self._repair(word)

    def _repair(self, word: Word) -> str:
        value = self._parsed(word.value)
        if value is not None:
            if value.is_sweep_override() and not self.multirun:
                raise ConfigError(
                    f"{word.typed}: a sweep needs -m, which makes separate runs\n"
                    f"  next: list the values: {word.key}=[1,2,4]"
                )
            return word.value
        if self.multirun:
            return ",".join(self._quoted(choice.strip()) for choice in split_top(word.value))
        return self._quoted(word.value)

    def _parsed(self, value: str) -> Any:
        try:
            return self.parser.parse_override(f"x={value}")
        except HydraException:
            return None

    def _quoted(self, value: str) -> str:
        """Quote what Hydra's parser does not take, also item by item in a list."""
        if self._parsed(value) is not None:
            return value
        if value.startswith("[") and value.endswith("]"):
            return f"[{','.join(self._quoted(item.strip()) for item in split_top(value[1:-1]))}]"
        return quote(unquote(value))


def not_selected(group: str, name: str, selected: Iterable[str]) -> ConfigError:
    """Return the error for an option of something that does not run."""
    listed = ",".join([*selected, name])
    return ConfigError(
        f"{group}.{name} is set, but {group} '{name}' is not selected\n"
        f"  next: add it: {in_shell(group, f'[{listed}]')}"
    )


def _comma(word: Word, choices: list[str]) -> ConfigError:
    inside = ",".join(choices)
    return ConfigError(
        f"{word.typed}: several values without brackets\n"
        f"  next, one table: {COMMAND} {in_shell(word.key, f'[{inside}]')}\n"
        f"  or separate runs: {COMMAND} -m {in_shell(word.key, inside)}"
    )


# ---- text -------------------------------------------------------------------------------------


def check_words(words: list[str]) -> list[str]:
    """Return the words when each is an override; a list that the shell split is explained."""
    for index, word in enumerate(words):
        if "=" in word and not balanced(word):
            joined, rest = word, words[index + 1 :]
            while rest and not balanced(joined):
                joined = f"{joined} {rest.pop(0)}"
            if balanced(joined):
                message = "the shell has split this value at its blanks"
                fix = shlex.quote(joined)
            else:
                message = "a bracket or quote is not closed"
                fix = shlex.quote("mode=[eager,inductor]")
            raise ConfigError(f"{word}: {message}\n  next: quote it: {COMMAND} {fix}")
        if "=" not in word and not word.startswith("~"):
            keys = schema.root_keys()
            raise ConfigError(
                f"'{word}' is not KEY=VALUE{did_you_mean(word, keys)}\n"
                f"  next: {COMMAND} model=llama mode=max-autotune, or {COMMAND} --help"
            )
    return words


def split_word(typed: str) -> Word:
    """Return key and value of ``[+|++]KEY=VALUE``."""
    key, _, value = typed.partition("=")
    key = key.lstrip("+").strip()
    if not re.fullmatch(r"[^\s.\[\]]+([.][^\s.\[\]]+|\[[^\]]+\])*", key):
        raise ConfigError(f"{typed}: '{key}' is not a key\n  next: {COMMAND} --help")
    return Word(key=key, value=value, typed=typed)


def balanced(text: str) -> bool:
    """Say whether brackets and quotes in the value of a word are closed."""
    value = text.partition("=")[2]
    if not value.startswith(("[", "{", '"', "'")):
        return True
    depth, quoted = 0, ""
    for index, char in enumerate(value):
        if quoted:
            quoted = "" if char == quoted and value[index - 1] != "\\" else quoted
        elif char in "\"'":
            quoted = char
        else:
            depth += (char in "[{") - (char in "]}")
    return depth <= 0 and not quoted


def split_top(text: str) -> list[str]:
    """Return the parts between those commas that are in no bracket and no quote."""
    parts, depth, quoted, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quoted:
            quoted = "" if char == quoted and text[index - 1] != "\\" else quoted
        elif char in "\"'" and text[start:index].strip() in ("", "[", "{"):
            quoted = char
        elif char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def names_in(value: str) -> list[str]:
    """Return the items of ``a`` or ``[a,b]`` as text."""
    inside = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return [unquote(item.strip()) for item in split_top(inside) if item.strip()]


def in_shell(key: str, value: str) -> str:
    """Return ``KEY=VALUE`` as it has to be typed in a shell."""
    return shlex.quote(f"{key}={value}")


def is_quoted(text: str) -> bool:
    """Say whether a text stands in quotes of Hydra's grammar."""
    return len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]


def unquote(text: str) -> str:
    """Return a text without the quotes of Hydra's grammar."""
    if not is_quoted(text):
        return text
    return text[1:-1].replace(f"\\{text[0]}", text[0])


def quote(text: str) -> str:
    """Return a text in the quotes of Hydra's grammar."""
    return QuotedString(text=text, quote=Quote.double).with_quotes()


def text_value(text: str) -> str:
    """Return the value of a key that holds names: kept letter by letter, or null, or a list."""
    if text.strip().lower() == "null":
        return "null"
    if text.startswith("[") and text.endswith("]"):
        return f"[{','.join(quote(name) for name in names_in(text))}]"
    if text.startswith("~" + os.sep):
        return quote(str(Path(text).expanduser()))
    return quote(unquote(text))

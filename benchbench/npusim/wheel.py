"""What a torch_npu installation needs from CANN, read from its ELF files.

Nothing is imported or executed: a small reader takes the undefined symbols and the text constants
out of the shared libraries, so it works for any torch_npu version and without binutils.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_DYNAMIC, _DYNSYM, _VERSYM = 6, 11, 0x6FFFFFFF  # sh_type
_DT_NULL, _DT_NEEDED, _DT_SONAME = 0, 1, 14
_STB_WEAK = 2

# Libraries that every Linux has, or that torch brings.
_SYSTEM_LIBRARY = re.compile(
    r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|torch\w*|c10\w*|python[\d.]*|gomp\S*)\.so|ld-linux)"
)
# Of the undefined symbols only CANN's may be stood in for: a stub named dlopen would be a disaster.
_CANN_CXX = re.compile(r"_Z(N|NK|TI|TV|TS)K?N?(2ge|3atb|4gert|3aoe)")
_CANN_C = re.compile(
    r"(acl[a-z]*[A-Z]|Hccl|hccl|Hcom|Msprof|rt[A-Z]|GE|ge[A-Z]|Ge[A-Z]|Adx|dcmi|\w+_s$)"
)
# Kernels are looked up by name at run time, so their names are text in the library.
_ACLNN_TEXT = re.compile(rb"(?<=\0)aclnn[A-Z]\w{1,120}(?=\0)")


class NotElfError(ValueError):
    """The file is not a 64-bit little-endian ELF file."""


@dataclass(slots=True)
class Elf:
    """The dynamic section of one shared library."""

    needed: list[str] = field(default_factory=list)
    soname: str | None = None
    undefined: set[str] = field(default_factory=set)
    """Strong, unversioned symbols that some other library has to define."""
    defined: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read_elf(data: bytes | mmap.mmap) -> Elf:
    """Return the dynamic section of an ELF file."""
    if data[:4] != b"\x7fELF" or data[4:6] != b"\x02\x01":
        raise NotElfError
    sections = list(_sections(data))
    elf = Elf()
    for section in sections:
        if section.kind == _DYNAMIC:
            _read_dynamic(data, section, sections[section.link].offset, elf)
        elif section.kind == _DYNSYM:
            versions = next((s.offset for s in sections if s.kind == _VERSYM), None)
            _read_symbols(data, section, sections[section.link].offset, versions, elf)
    return elf


def _sections(data: bytes | mmap.mmap) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry, count = struct.unpack_from("<HH", data, 0x3A)
    for index in range(count):
        _, kind, _, _, offset, size, link, _, _, _ = struct.unpack_from(
            "<IIQQQQIIQQ", data, table + index * entry
        )
        yield _Section(kind, offset, size, link)


def _text(data: bytes | mmap.mmap, at: int) -> str:
    return data[at : data.find(b"\0", at)].decode()


def _read_dynamic(data: bytes | mmap.mmap, section: _Section, names: int, elf: Elf) -> None:
    for at in range(section.offset, section.offset + section.size, 16):
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == _DT_NULL:
            return
        if tag == _DT_NEEDED:
            elf.needed.append(_text(data, names + value))
        elif tag == _DT_SONAME:
            elf.soname = _text(data, names + value)


def _read_symbols(
    data: bytes | mmap.mmap, section: _Section, names: int, versions: int | None, elf: Elf
) -> None:
    for index, at in enumerate(range(section.offset, section.offset + section.size, 24)):
        name_at, info, _, section_index = struct.unpack_from("<IBBH", data, at)
        if not name_at:
            continue
        name = _text(data, names + name_at)
        if section_index:
            elf.defined.add(name)
            continue
        version = 0 if versions is None else struct.unpack_from("<H", data, versions + 2 * index)[0]
        if info >> 4 != _STB_WEAK and version & 0x7FFF <= 1:
            elf.undefined.add(name)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the wheel needs from CANN, sorted."""

    libraries: tuple[str, ...]
    symbols: tuple[str, ...]
    kernels: tuple[str, ...]
    """Names of aclnn functions, those ending in ``GetWorkspaceSize`` included."""


def needs(package: Path) -> Needs:
    """Return what the torch_npu package in this folder needs from CANN."""
    elves: list[Elf] = []
    inside: set[str] = set()
    kernels: set[str] = set()
    for path in sorted(package.rglob("*.so*")):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                elf = read_elf(data)
            except NotElfError:
                continue
            kernels |= {match.group().decode() for match in _ACLNN_TEXT.finditer(data)}
        elves.append(elf)
        inside |= {path.name, elf.soname or path.name}
    defined = {name for elf in elves for name in elf.defined}
    undefined = {name for elf in elves for name in elf.undefined} - defined
    needed = {name for elf in elves for name in elf.needed} - inside
    return Needs(
        libraries=tuple(sorted(name for name in needed if not _SYSTEM_LIBRARY.match(name))),
        symbols=tuple(sorted(name for name in undefined if _is_cann(name))),
        kernels=tuple(sorted(kernels)),
    )


def _is_cann(symbol: str) -> bool:
    pattern = _CANN_CXX if symbol.startswith("_Z") else _CANN_C
    return pattern.match(symbol) is not None


def package_folder() -> Path | None:
    """Return the folder of the installed torch_npu, without importing it."""
    spec = importlib.util.find_spec("torch_npu")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def version(distribution: str = "torch_npu") -> str | None:
    """Return the version of an installed distribution, without importing it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def series(version_text: str) -> str:
    """Return major and minor of a version: ``2.13`` for ``2.13.0+cpu``."""
    return ".".join(version_text.split(".")[:2])

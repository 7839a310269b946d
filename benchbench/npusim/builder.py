"""Builds the simulator's libraries for the installed torch_npu, once, into the user's cache folder.

One library carries everything. Beside it lies one tiny library per name that torch_npu links to or
opens, which has that name as its SONAME and needs the big one: glibc takes an already loaded SONAME
for the library it is asked for, so loading them beforehand is all it takes. No environment variable
is set and no file of torch_npu is touched.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchbench.errors import BenchbenchError
from benchbench.npusim import wheel

LIBRARY = "libnpusim.so"
MANIFEST = "libraries.txt"
_SOURCES = Path(__file__).resolve().parent / "src"
# Opened by name at run time. Those that are absent here (profiler, dcmi, ...) stay absent, which
# torch_npu reads as "not installed".
_OPENED = ("libopapi.so", "libnnopbase.so", "libmsprofiler.so")
_FLAGS = ("-O1", "-g0", "-fPIC")
# See sim.h for the reason of the old string layout.
_CXX_FLAGS = ("-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", *_FLAGS)


class BuildError(BenchbenchError):
    """The simulated NPU could not be built."""


def compiler() -> str | None:
    """Return the path of the C++ compiler (``CXX``, else ``g++``), ``None`` without one."""
    return shutil.which(os.environ.get("CXX") or "g++")


def folder() -> Path:
    """Return where the libraries for the installed torch_npu are, or would be."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "benchbench", "npusim", f"{wheel.version()}-{_source_hash()}")


def is_built() -> bool:
    """Say whether the libraries are there."""
    return (folder() / MANIFEST).is_file()


def build() -> Path:
    """Return the folder with the libraries, after building them if they are not there (7 s).

    Safe when several processes build at once: each works in a folder of its own, and the first to
    finish moves it into place in one step.
    """
    target = folder()
    if is_built():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _build_into(work)
        try:
            work.rename(target)
        except OSError:
            if not is_built():  # otherwise another process was first, with the same content
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _source_hash() -> str:
    digest = hashlib.sha256(platform.machine().encode())
    for path in sorted((*_SOURCES.iterdir(), Path(__file__), Path(wheel.__file__))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _build_into(work: Path) -> None:
    package, cxx = wheel.package_folder(), compiler()
    if package is None or cxx is None:
        raise BuildError("the simulated NPU needs torch_npu and a C++ compiler to be built")
    needs = wheel.needs(package)
    objects = work / "objects"
    objects.mkdir()
    # One translation unit compiles in half the time of a dozen.
    unit = objects / "unit.cpp"
    unit.write_text("".join(f'#include "{path}"\n' for path in sorted(_SOURCES.glob("*.cpp"))))
    _run(cxx, *_CXX_FLAGS, "-c", unit, "-o", objects / "unit.o")
    probe = objects / "probe.so"
    _run(cxx, "-shared", objects / "unit.o", "-o", probe)
    stubs = objects / "stubs.cpp"
    stubs.write_text(_stub_source(needs, wheel.read_elf(probe.read_bytes()).defined))
    _run(cxx, *_FLAGS, "-c", stubs, "-o", objects / "stubs.o")
    _run(
        *(cxx, "-shared", f"-Wl,-soname,{LIBRARY}", objects / "unit.o", objects / "stubs.o"),
        *("-o", work / LIBRARY),
    )
    names = sorted({*needs.libraries, *_OPENED})
    empty = objects / "empty.cpp"
    empty.touch()
    for name in names:
        _run(
            *(cxx, "-shared", "-fPIC", empty, f"-Wl,-soname,{name}", "-Wl,--no-as-needed"),
            *(f"-L{work}", f"-l:{LIBRARY}", "-Wl,-rpath,$ORIGIN", "-o", work / name),
        )
    shutil.rmtree(objects)
    (work / MANIFEST).write_text("\n".join(names) + "\n")


def _stub_source(needs: wheel.Needs, written: set[str]) -> str:
    """Return C code for the symbols that no source file of ours defines."""
    lines = ['extern "C" {', "int npusim_opaque(const char *, void *);"]
    for symbol in needs.symbols:
        if symbol in written:
            continue
        if symbol.startswith(("_ZTI", "_ZTV", "_ZTS")):
            lines.append(f"void *{symbol}[64] = {{}};")
        else:
            lines.append(f"long {symbol}() {{ return 0; }}")
    lines += [_kernel_stub(kernel) for kernel in needs.kernels if kernel not in written]
    return "\n".join([*lines, "}", ""])


def _kernel_stub(kernel: str) -> str:
    if kernel.endswith("GetWorkspaceSize"):
        return f"int {kernel}() {{ return 0; }}"
    return (
        f"int {kernel}(void *, unsigned long, void *, void *stream) "
        f'{{ return npusim_opaque("{kernel}", stream); }}'
    )


def _run(*command: str | Path) -> None:
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"cannot run the C++ compiler: {error}") from error
    if done.returncode:
        raise BuildError(f"cannot build the simulated NPU:\n{_tail(done.stderr.splitlines())}")


def _tail(lines: Iterable[str], count: int = 15) -> str:
    return "\n".join(f"  {line}" for line in list(lines)[-count:])

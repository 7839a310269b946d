"""Where the selectable files are: in a checkout beside the package, in a wheel inside it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent

# File systems allow 255 bytes; the rest is left for suffixes that others append.
MAX_NAME_BYTES = 100


def shipped(folder: str) -> Path:
    """Return the absolute path of ``configs`` or ``converters`` for this installation.

    A checkout is recognised by the ``pyproject.toml`` beside the package; a wheel carries the
    folders inside the package (see ``force-include`` in ``pyproject.toml``).
    """
    root = PACKAGE.parent
    if (root / "pyproject.toml").is_file() and (root / folder).is_dir():
        return root / folder
    return PACKAGE / folder


def safe_name(text: str) -> str:
    """Return a file name for any text: one component, at most 100 bytes of UTF-8, never empty.

    Letters and digits of every script, ``-``, ``_`` and inner dots stay. When anything had to be
    replaced or cut, a hash of the whole text is appended, so that different texts keep different
    names. Where the locale allows only ASCII in file names, the letters of other scripts go too.
    """
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in text)
    kept = kept.strip(".") or "_"
    if not _can_be_a_name(kept):
        kept = kept.encode("ascii", "replace").decode("ascii").replace("?", "_")
    if kept == text and len(kept.encode()) <= MAX_NAME_BYTES:
        return kept
    # surrogatepass: an undecodable byte of a file name arrives as a lone surrogate.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    room = MAX_NAME_BYTES - len(digest) - 1
    cut = kept.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    return f"{cut}-{digest}"


def _can_be_a_name(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True

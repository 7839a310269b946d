"""Where the selectable files are: in a checkout beside the package, in a wheel inside it."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped(folder: str) -> Path:
    """Return the absolute path of ``configs`` or ``converters`` for this installation.

    A checkout is recognised by the ``pyproject.toml`` beside the package; a wheel carries the
    folders inside the package (see ``force-include`` in ``pyproject.toml``).
    """
    root = PACKAGE.parent
    if (root / "pyproject.toml").is_file() and (root / folder).is_dir():
        return root / folder
    return PACKAGE / folder

"""``python -m benchbench`` and the console script ``benchbench``."""

from __future__ import annotations

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if argv is None:
        _need_utf8()
    from benchbench.cli import main as run

    return run(sys.argv[1:] if argv is None else argv)


def _need_utf8() -> None:
    """Start again in UTF-8 mode where file names could not hold Chinese (an ASCII locale)."""
    if sys.flags.utf8_mode or sys.getfilesystemencoding().lower().replace("-", "") == "utf8":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

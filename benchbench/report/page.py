"""The self-contained page: template, style, scripts and data in one file."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from benchbench.errors import ConfigError
from benchbench.records import Json
from benchbench.report.data import encode

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = ("words.js", "core.js", "charts.js", "views.js", "case.js", "main.js")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def render(data: Json, *, live: bool = False, lang: str = "en") -> str:
    """Return the page for the data of :func:`benchbench.report.data.collect`.

    Nothing but the scripts and the style of this page may run in it (their hashes are in its
    content security policy), and it may ask nobody for anything; a ``live`` page asks its server.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise ConfigError(
            "the page needs jinja2\n  next: pip install 'benchbench[dashboard]'"
        ) from None
    style = _asset("page.css")
    library = _asset("echarts.min.js")
    script = "\n".join(_asset(f"js/{name}") for name in SCRIPTS)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(library)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(_asset("page.html")).render(
        lang=lang,
        policy=Markup(policy),  # made above, of hashes only
        title=data["label"],
        style=Markup(style),  # a file of this package
        library=Markup(library),  # a file of this package
        script=Markup(script),  # a file of this package
        data=Markup(encode(data).decode("utf-8")),  # every < is escaped in it
        live="yes" if live else "no",
    )

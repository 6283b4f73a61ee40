"""A request as the curl line that would send it, for a dry run. Secrets are `***`."""

from __future__ import annotations

import shlex

from .client import WebRequest

__all__ = ["MASK", "curl"]

MASK = "***"
"""Stands for every secret."""

_MAX_BODY = 4000
"""Characters of a body that are shown."""


def curl(request: WebRequest, parts: tuple[str, ...] = ()) -> str:
    """Return one line for a shell. `parts` are those of a multipart body, which is not shown as it travels."""
    words = ["curl"]
    if request.method != "GET":
        words += ["-X", request.method]
    words.append(shlex.quote(request.url))
    for name, value in request.headers.items():
        if not (parts and name == "content-type"):
            words += ["-H", shlex.quote(f"{name}: {value}")]
    for part in parts:
        words += ["-F", shlex.quote(part[:_MAX_BODY])]
    if request.content and not parts:
        words += ["--data-binary", shlex.quote(_shown(request.content))]
    return " ".join(words)


def _shown(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"<{len(content):,} bytes>"
    return text if len(text) <= _MAX_BODY else f"{text[:_MAX_BODY]}… <{len(content):,} bytes>"

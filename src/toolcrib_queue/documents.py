"""YAML that a call gives as text, or by the name of a file in the workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolcrib.plugin import Context, FieldError, ToolFailure, UsageError, invalid_argument, parse_yaml

_BYTES = 1_000_000


async def read_source(ctx: Context, source: str) -> str:
    """Return the text of a source: itself, or the file that a single line without a colon names.

    Raises `ToolFailure`: `not_found` for a file that there is not, `invalid_arguments` without a workspace.
    """
    if "\n" in source or ":" in source:
        return source
    if ctx.workspace is None:
        raise invalid_argument("source", "this session has no workspace to read the file from")
    if await ctx.workspace.stat(source) is None:
        raise ToolFailure("not_found", f"there is no file {source[:200]!r}", hint="give the YAML itself")
    return (await ctx.workspace.read(source, limit=_BYTES)).decode("utf-8", "replace")


def read_mapping(text: str) -> Mapping[str, Any]:
    """Return the mapping that a YAML text is. Raises `ToolFailure("invalid_arguments")` at `source`."""
    try:
        data: Any = parse_yaml(text).plain()
    except UsageError as error:
        shown = str(error).encode("ascii", "backslashreplace").decode()  # it quotes unseen characters, too
        raise invalid_argument("source", f"it is not YAML: {shown}") from None
    if not isinstance(data, Mapping):
        raise invalid_argument("source", "it is not a mapping of names to values", keyword="type")
    return cast("Mapping[str, Any]", data)


def check_source(errors: Sequence[FieldError]) -> None:
    """Raise `ToolFailure` with the places of these errors of a source, if there are any."""
    if errors:
        found = [
            FieldError(path=f"source.{one.path}".rstrip("."), keyword=one.keyword, message=one.message)
            for one in errors
        ]
        message = "; ".join(str(one) for one in found[:5])
        raise ToolFailure("invalid_arguments", message, details={"field_errors": [one.to_json() for one in found]})

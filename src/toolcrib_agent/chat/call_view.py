"""Display of tool calls: name and arguments, a few lines of the result, the pending decision, and unified diffs."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from toolcrib import ToolResult
from toolcrib.plugin import as_mapping, clip, dumps, escape

from .screen import Trimmed, plain

_LONGEST: Final = 60
"""Lines that are shown of a diff unless more are asked for."""
_COMPARED: Final = 5000
"""Lines of both sides up to which they are compared: the time for it grows with the square."""

_LINES: Final = 6
"""Lines of a result that are shown; `/show` has the rest."""
_WIDTH: Final = 160
"""Characters of such a line."""
_VALUE: Final = 60
"""Characters of one argument in the line of a call."""
_DIFF_LINES: Final = 40
_NOTHING: Final = "done, nothing to show"
_FIELDS: Final = 8
"""Maximum number of fields of a structured result that is shown in one line."""


def colored(diff: str, *, limit: int) -> Text:
    """Return `diff` in colours, at most `limit` lines of it; 0 is all of it."""
    lines = escape(diff.rstrip("\n"), lines=True).split("\n")
    shown = Text()
    if limit and len(lines) > limit:
        head, tail = limit * 2 // 3, limit - limit * 2 // 3
        lines = [*lines[:head], f"… {len(lines) - limit} lines more …", *lines[-tail:]]
    for number, line in enumerate(lines):
        shown.append(("\n" if number else "") + line, style=_style(line))
    return shown


def changes_of(diff: str) -> tuple[int, int]:
    """Return the numbers of lines that a diff adds and removes."""
    lines = diff.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return added, removed


def between(path: str, before: str | None, after: str) -> str:
    """Return the unified diff of two versions of a file; empty if they are equal or too large."""
    old, new = (before or "").splitlines(), after.splitlines()
    if len(old) + len(new) > _COMPARED:
        return ""
    name = "/dev/null" if before is None else f"a/{path}"
    return "".join(f"{line}\n" for line in unified_diff(old, new, name, f"b/{path}", lineterm=""))


def _style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    if line.startswith("+"):
        return "green"
    if line.startswith("-"):
        return "red"
    return "dim"


class CallRecord(Struct, frozen=True, kw_only=True):
    """A call that has ended, kept for `/show` and `/why`."""

    name: str
    arguments: Mapping[str, Any] | str
    result: ToolResult
    seconds: float
    number: int = 0
    """Number for `/show` and `/why`; set when the record is stored."""
    diff: str = ""
    """Change of a file, if the result does not show it itself."""


def named(name: str, arguments: Mapping[str, Any] | str) -> tuple[str, Mapping[str, Any] | str]:
    """Return the tool that is meant, and its arguments: a verb such as `call_tool` names another one."""
    if isinstance(arguments, Mapping):
        inner: Any = arguments.get("arguments", arguments.get("args"))
        tool: Any = arguments.get("name", arguments.get("op"))
        if isinstance(tool, str) and isinstance(inner, Mapping):
            return tool, cast("Mapping[str, Any]", inner)
    return name, arguments


def call_line(name: str, arguments: Mapping[str, Any] | str, *, style: str = "bold") -> Text:
    """Return a call in one line: `read_file path="a.txt"`."""
    tool, inner = named(name, arguments)
    line = plain(tool, style)
    if tool != name:
        line.append(f" by {name}", style="dim")
    if isinstance(inner, str):
        line.append(" ").append_text(plain(clip(inner, _VALUE), "red"))
        return line
    for key, value in inner.items():
        line.append(" ").append_text(plain(f"{key}=", "dim")).append_text(plain(_short_value(value)))
    return line


def _short_value(value: Any, limit: int = _VALUE) -> str:
    """Return an argument in at most `limit` characters: a text as it is where it is one word, else as JSON."""
    if isinstance(value, str) and value and value.isprintable() and not any(char in value for char in " \"'{}[]"):
        return clip(value, limit)
    return clip(dumps(value).decode(errors="replace"), limit)


def result_block(shown: CallRecord) -> RenderableType:
    """Return the view of a call: a mark, the call, its time and the decision, then a few lines or the diff."""
    result = shown.result
    failed = result.error is not None
    head = Text.assemble(("✗ ", "bold red") if failed else ("✓ ", "green"), call_line(shown.name, shown.arguments))
    about = f"{_took(shown.seconds)}{_decided(result)}"
    body = _failure(shown) if failed else _success(shown)
    return Group(head, Trimmed(Group(plain(about, "dim"), *body), indent=2))


def _decided(result: ToolResult) -> str:
    rule = str(result.meta.get("rule") or "")
    return f" · {rule}" if rule else ""


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _failure(shown: CallRecord) -> list[RenderableType]:
    error = shown.result.error
    if error is None:
        return []
    message, hint = _first_lines(error.message), _first_lines(error.hint)
    lines: list[RenderableType] = [plain(f"{error.code}: {message.text}", "red")]
    if error.hint:
        lines.append(plain(hint.text, "dim"))
    return [*lines, _rest(message.rest or hint.rest, shown.number)] if message.rest or hint.rest else lines


def _success(shown: CallRecord) -> list[RenderableType]:
    structured = as_mapping(shown.result.structured_content)
    diff = str(structured.get("diff") or shown.diff)
    if diff.strip():
        added, removed = changes_of(diff)
        is_shown_only = structured.get("applied") is False or structured.get("dry_run") is True
        note = "  this is what would change; nothing did" if is_shown_only else ""
        count = Text.assemble((f"+{added} ", "green"), (f"-{removed}", "red"), (note, "yellow"))
        return [count, colored(diff, limit=_DIFF_LINES)]
    nested = any(isinstance(one, Mapping) or _is_nested(one) for one in structured.values())
    alone = structured.get("result") if len(structured) == 1 else None
    if structured and len(structured) <= _FIELDS and not nested and not isinstance(alone, str):
        return [plain(_flat(structured) or _NOTHING, "bright_black")]
    text = alone if isinstance(alone, str) else shown.result.text
    is_kept = "artifact" in shown.result.meta
    told_otherwise = ("text", "resource_link") if is_kept else ("text",)  # that link leads to the whole of it
    others = [str(block.get("type")) for block in shown.result.content if block.get("type") not in told_otherwise]
    parts: list[RenderableType] = [plain(f"[{kind}]", "dim") for kind in others]
    if text.strip():
        first = _first_lines(text)
        parts.append(plain(first.text, "bright_black"))
        if first.rest or is_kept:
            parts.append(_rest("it is much longer" if is_kept else first.rest, shown.number))
    return parts or [Text(_NOTHING, style="dim")]


def _flat(structured: Mapping[str, Any]) -> str:
    """Format a few plain values in one line; false and empty ones are left out."""
    kept = {key: value for key, value in structured.items() if value not in (None, False, "", [])}
    return " · ".join(key if value is True else f"{key} {_short_value(value, _WIDTH)}" for key, value in kept.items())


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, Mapping | list) for one in cast("list[Any]", value))


def _rest(preview: str, number: int) -> Text:
    """Note the number of lines left out and the command that shows them."""
    return plain(f"… {preview}: /show {number}", "dim italic")


class _First(NamedTuple):
    """The first lines of a text."""

    text: str
    rest: str
    """Text after these lines; empty if they are the whole."""


def _first_lines(text: str) -> _First:
    """Return the first lines, none too long."""
    lines = text.strip("\n").split("\n")
    more = len(lines) - _LINES
    cut = any(len(line) > _WIDTH for line in lines[:_LINES])
    kept = "\n".join(clip(line, _WIDTH) for line in lines[:_LINES])
    rest = f"{more:,} line{'s' if more > 1 else ''} more" if more > 0 else "the rest" if cut else ""
    return _First(text=kept, rest=rest)

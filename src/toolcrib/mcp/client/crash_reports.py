"""The line of a dead process's output that says why it ended: runtimes write stack traces and advice behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ...core.patterns import regex

_TAIL: Final = 16 * 1024
"""Characters of the end that are looked at: a report with a long stack is shorter."""

_MESSAGE_LINES: Final = 20
"""Lines that the message of one error may have."""

_MARGIN: Final = regex(r"^ +(?:\+[-+ \d]*$|[|+] ?)")
"""Margin that Python draws in front of the lines of an exception group."""

_FRAME: Final = regex(r"^\s+at \S")

_CAUSE: Final = regex(r"^\s+(?:\[cause\]:|cause:|[├╰]─▶)\s*(?P<text>\S.*)")
"""Line of a cause below an error, as Node and uv (two versions) write it."""

_MARK: Final = regex(r"^\s*×\s+")

_ERROR: Final = regex(r"^(?:\S.*?)?\b\w*(?:Error|Exception)(?: \[\w+\])?: ")

_GOROUTINE: Final = regex(r"^goroutine \d+ [^\n]*\[", re.MULTILINE)

_NOISE: Final = regex(
    r"""^(?:
        \s                                          # stack frames, source lines, properties of an error
        | Node\.js\ v\d
        | [\])}]+[,;]?$                             # the end of an error's properties
        | \(Use\ `node\ --trace
        | \d+:\ 0x                                  # a native stack
        | -+\ .*\ -+$ | <-+\ .*\ -+>$
        | (?:note|hint|help):
        | (?:npm|pnpm|yarn)\ (?:notice|warn|WARN)\b
        | -\ \S                                     # items of a list: modules that required one, what there is instead
        | \[signal\ SIG
        | exit\ status\ \d+$
    )""",
    re.VERBOSE,
)

_NPM: Final = regex(r"^npm (?:error|ERR!)(?: |$)")

_NPM_FIELD: Final = regex(
    r"^npm (?:error|ERR!)(?: (?:code|syscall|path|dest|errno|cwd|workspace|location|command|A complete log)\b.*| \w+)?$"
)

_NPM_WORD: Final = regex(r"^npm (?:error|ERR!) (?:[a-z]+ (?=[A-Z])|E?\d+ +)?")
"""The prefix and the code that npm repeats on each line."""

_NPM_SCRIPT: Final = regex(r"^npm (?:error|ERR!) (?:Lifecycle script |command failed)")
"""A script failed, and what it wrote stands before."""


def crash_reason(output: str) -> str:
    """Return the line of `output` that says why its process ended: its last one, unless that is part of a report.

    Reports of Node, npm, Python, uv, Java, Rust and Go are known. Empty where nothing was written.
    """
    text = output[-_TAIL:]
    if stack := _GOROUTINE.search(text):
        text = text[: stack.start()]
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        lines = output.strip().splitlines()[-1:]
    return (_reason([_unmargined(line) for line in lines]) or "".join(lines[-1:])).strip()


def _reason(lines: list[str]) -> str:
    skipped: list[str] = []
    while lines:
        line = lines.pop()
        if _NPM.match(line):
            if reason := _npm_reason(line, lines):
                return reason
        elif not line or _NOISE.match(line) or (skipped and line.endswith(":") and not _cause(skipped)):
            skipped.append(line)
        else:
            reason, cause = _first_line(line, lines, skipped).removesuffix(" {"), _cause(skipped)
            return f"{reason.removesuffix(':')}: {cause}" if cause else reason
    return ""


def _unmargined(line: str) -> str:
    return _MARK.sub("", _MARGIN.sub("", line))


def _npm_reason(last: str, lines: list[str]) -> str:
    """Take npm's block off `lines`; empty if it reports a script, which has written its reason before."""
    block = [last]
    while lines and (_NPM.match(lines[-1]) or _NOISE.match(lines[-1])):
        block.append(lines.pop())
    block = [line for line in reversed(block) if _NPM.match(line)]
    if any(map(_NPM_SCRIPT.match, block)):
        return ""
    return next((_NPM_WORD.sub("", line) for line in block if not _NPM_FIELD.match(line)), "")


def _first_line(line: str, before: Iterable[str], skipped: list[str]) -> str:
    """Return the first line of an error's message of several, of which `line` is the last before the stack."""
    if not any(map(_FRAME.match, skipped)):
        return line
    return next((one for one in _message(line, before) if _ERROR.match(one)), line)


def _message(line: str, before: Iterable[str]) -> Iterator[str]:
    yield line
    for one in list(before)[: -_MESSAGE_LINES - 1 : -1]:
        if one[:1].isspace():
            return
        yield one


def _cause(skipped: list[str]) -> str:
    """Return the innermost cause of `skipped`, which is in the order from the end."""
    return next((found["text"] for line in skipped if (found := _CAUSE.match(line))), "").removesuffix(" {")

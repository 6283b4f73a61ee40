"""Tool names of Claude Code's permission rules: the tools that each of them means, and the syntax of its brackets.

    Bash(git push:*)                tools that run shell commands: category or tag shell, bash or terminal
    Read Glob Grep LS               tools that read files and folders: category or tag files, fs, filesystem, search
    Edit Write MultiEdit …          tools that change files: the trait file_writer, or those categories
    WebFetch(domain:example.com)    tools that fetch from the web: category or tag web, http or fetch

A deny and an ask mean every such tool. An allow means only those of this machine: a foreign server that gives its
tool one of these names gains no permission.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from msgspec import Struct

from ..core.patterns import regex
from ..core.tool import Tool
from .argument_conditions import PROCESS_FOLDER, ArgumentMatcher, glob, parse_conditions
from .path_patterns import parse_path
from .shell.command_tools import runs_shell
from .shell.pattern import parse_shell

_FILE_CATEGORIES: Final = frozenset({"file", "files", "filesystem", "fs"})
_SEARCH_CATEGORIES: Final = frozenset({"search", "grep", "glob"})
_WEB_CATEGORIES: Final = frozenset({"fetch", "http", "web"})
_CONDITION: Final = regex(r"\s*[a-z_][\w.]*\s*(?:!=|>=|<=|=|>|<)\s*(?:'[^']*'|\"[^\"]*\"|[^\s,'\"]+)\s*")
_WALKING_NAME: Final = regex(r"find|glob|grep|list|search|tree|walk", re.IGNORECASE)
_MAX_URLS: Final = 100
_HOST: Final = regex(r"[a-z0-9._-]+|[0-9a-f:.]+")
"""A host that every parser reads in the same way: no mapped letters, no escapes."""
_NUMERIC_HOST: Final = regex(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+)){0,3}")
_IPV4: Final = regex(r"(?:0|[1-9]\d{0,2})(?:\.(?:0|[1-9]\d{0,2})){3}")
"""Addresses have other spellings: `2130706433` and `0177.1` are `127.0.0.1`."""


class ToolWord(Struct, frozen=True):
    """One word of Claude Code that covers several tools."""

    means: Callable[[Tool], bool]
    body: Callable[[str, str], ArgumentMatcher]
    """Parser of the text in the parentheses, given the home folder; raises `ValueError`."""


def walks(tool: Tool) -> bool:
    """Whether the tool walks folders, so that it may reach files which no argument names."""
    return _is_categorized(tool, _SEARCH_CATEGORIES) or _WALKING_NAME.search(tool.local_name) is not None


class _Domain(Struct, frozen=True):
    """`domain:example.com`: the host of every link among the arguments; `*.example.com` is all below it."""

    regex: re.Pattern[str]

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool | None:
        hosts = [_host(url) for url in _urls(arguments)]
        if not hosts or len(hosts) > _MAX_URLS:
            return False if every else None
        answers = [None if host is None else self.regex.fullmatch(host) is not None for host in hosts]
        if every:
            return all(answers)
        return True if True in answers else None if None in answers else False


def _urls(arguments: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in arguments.items():
        if value is not None and name.lower() in ("url", "urls", "uri", "link", "href"):
            found += [
                str(item) for item in (cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value])
            ]
    return found


def _host(url: str) -> str | None:
    """Return the host of a link; None where readers could disagree about it.

    Two parsers of one link may find two hosts in it. A link with a backslash, a blank or an address in another notation
    is undecidable, so that a deny asks and an allow does not hold.
    """
    if re.search(r"[\\\s\x00-\x1f]", url) or "://" not in url:
        return None
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    host = (host or "").rstrip(".").lower()
    is_number = _NUMERIC_HOST.fullmatch(host) is not None and _IPV4.fullmatch(host) is None
    return host if _HOST.fullmatch(host) and not is_number else None


def _parse_shell_body(body: str, home: str) -> ArgumentMatcher:
    """`command=…` and the like are conditions on an argument; everything else is a pattern of commands."""
    if all(_CONDITION.fullmatch(part) for part in body.split(",")) and (conditions := parse_conditions(body)):
        return conditions
    return parse_shell(body)


def _parse_file_body(body: str, home: str) -> ArgumentMatcher:
    return parse_path(body, home=home)


def _parse_web_body(body: str, home: str) -> ArgumentMatcher:
    word, colon, domain = body.partition(":")
    if word == "domain" and colon and domain.strip():
        return _Domain(glob(domain.strip().lower().rstrip(".")))
    if conditions := parse_conditions(body):
        return conditions
    raise ValueError(f"{body!r} is not a domain; write WebFetch(domain:example.com)")


def _is_categorized(tool: Tool, words: frozenset[str]) -> bool:
    return tool.category.lower() in words or any(tag.lower() in words for tag in tool.tags)


def _writes(tool: Tool) -> bool:
    return "file_writer" in tool.traits or (tool.kind != "read" and _is_categorized(tool, _FILE_CATEGORIES))


def _reads(tool: Tool) -> bool:
    return tool.kind == "read" and _is_categorized(tool, _FILE_CATEGORIES | _SEARCH_CATEGORIES)


def _searches(tool: Tool) -> bool:
    """Whether Glob and Grep mean the tool, as Read does."""
    return tool.kind == "read" and _is_categorized(tool, _SEARCH_CATEGORIES)


_EDIT_WORD: Final = ToolWord(_writes, _parse_file_body)
_SEARCH_WORD: Final = ToolWord(_searches, _parse_file_body)

TOOL_WORDS: Final[Mapping[str, ToolWord]] = {
    "Bash": ToolWord(runs_shell, _parse_shell_body),
    "Edit": _EDIT_WORD,
    "Glob": _SEARCH_WORD,
    "Grep": _SEARCH_WORD,
    "LS": ToolWord(_reads, _parse_file_body),
    "MultiEdit": _EDIT_WORD,
    "NotebookEdit": _EDIT_WORD,
    "Read": ToolWord(_reads, _parse_file_body),
    "WebFetch": ToolWord(lambda tool: _is_categorized(tool, _WEB_CATEGORIES), _parse_web_body),
    "Write": _EDIT_WORD,
}
"""Word → its tools and argument conditions."""

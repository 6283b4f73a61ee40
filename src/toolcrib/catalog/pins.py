"""Reviewed definitions: pins of the store, and the lock file of a project.

    pin     in the store: the digest that a person, or an option, has accepted; checked at each listing
    lock    in a file of the project: the definitions of all sources; checked by `toolcrib lock`

A tool whose definition differs from its pin is withheld until it is accepted; so is a new one whose preflight has
findings. Where withholding is off (`reviewing`), both are reported and may be called.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import yaml
from msgspec import Struct, field, structs

from ..core.builds import build_at_once
from ..core.events import Problem
from ..core.json import as_mapping, canonical, loads, read_json
from ..core.sanitize import escape
from ..core.tool import Tool
from ..errors import ConfigError
from .preflight import findings

_MAX_FINDINGS_SHOWN: Final = 3
"""Findings of one definition that a report lists."""

_LOCK_VERSION: Final = 1


class Review(Struct, frozen=True, kw_only=True):
    """Result of comparing one listing with its pins."""

    tools: tuple[Tool, ...]
    """Tools that may be called."""
    withheld: Mapping[str, Problem]
    """Problems of the tools that may not be called, by local name."""
    accepted: tuple[Tool, ...]
    """Tools that were taken as reviewed just now: their pins are to be written down."""
    unreviewed: tuple[Problem, ...] = ()
    """Findings that would withhold tools, where withholding is off."""


def seen_of(tool: Tool) -> dict[str, Any]:
    """Return the source's definition of `tool`, without the name that we gave it.

    A second title, among the annotations, is part of it: clients show it to the person who approves a call. So is the
    address that an API's description names: credentials go there.
    """
    seen = {**tool.definition, "name": tool.local_name}
    if tool.execution.address:
        seen["address"] = tool.execution.address
    second = tool.annotations.display[0]
    if second and second != tool.title:
        seen["annotations"] = {**tool.annotations.to_mcp(), "title": second}
    return seen


def pin_of(tool: Tool) -> bytes:
    """Return the SHA-256 over the source's definition of `tool`."""
    return hashlib.sha256(canonical(seen_of(tool))).digest()


def _pin_without_address(tool: Tool) -> bytes | None:
    """Return the pin that versions before 2026-11-30 made, which noted no address; None for a tool without one."""
    if not tool.execution.address:
        return None
    return pin_of(structs.replace(tool, execution=structs.replace(tool.execution, address="")))


def difference(reviewed: Mapping[str, Any], listed: Mapping[str, Any]) -> str:
    """Return the difference between a definition and its reviewed version: a unified diff, empty if equal.

    Every line of it is safe to display: invisible characters are escaped.
    """
    before, after = (_yaml_lines(definition) for definition in (reviewed, listed))
    return "\n".join(difflib.unified_diff(before, after, "reviewed", "listed now", lineterm=""))


def _yaml_lines(definition: Mapping[str, Any]) -> list[str]:
    """Return a definition as lines of YAML: keys in one order, long text by its own lines and sentences."""
    plain = loads(canonical(definition))
    text = yaml.safe_dump(_split_texts(plain), allow_unicode=True, sort_keys=True, width=100)
    return [escape(line) for line in text.split("\n")[:-1]]


def _split_texts(value: Any) -> Any:
    """Return JSON with text of several lines as a list of them: a diff then shows the line that changed, whole."""
    if isinstance(value, dict):
        return {escape(key): _split_texts(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_split_texts(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, str) and "\n" in value:
        return [escape(line) for line in value.split("\n")]
    return escape(value) if isinstance(value, str) else value


def review(
    source: str,
    tools: Iterable[Tool],
    pins: Mapping[str, bytes],
    *,
    accept: bool,
    how: str = "",
) -> Review:
    """Run `reviewing` to its end and return its review."""
    return build_at_once(reviewing(source, tools, pins, accept=accept, how=how))


def reviewing(
    source: str,
    tools: Iterable[Tool],
    pins: Mapping[str, bytes],
    *,
    accept: bool,
    how: str = "",
    withhold: bool = True,
) -> Generator[None, None, Review]:
    """Sort the listed `tools` of `source` by its `pins` (local name → pin), in steps of one tool.

    `accept` takes tools without a pin as reviewed; one that differs from its pin is withheld all the same, and so is
    one with a finding that needs review (`preflight`). `how` names the command that reviews it, if not `accept`.
    Without `withhold` such tools may be called, and each is reported.
    """
    passed: list[Tool] = []
    withheld: dict[str, Problem] = {}
    accepted: list[Tool] = []
    unreviewed: list[Problem] = []
    for tool in tools:
        yield
        known = pins.get(tool.local_name)
        if known is not None and known == pin_of(tool):
            passed.append(tool)
            continue
        if known is not None and known == _pin_without_address(tool):
            passed.append(tool)
            accepted.append(tool)
            continue
        flagged = findings(tool)
        if known is None and accept and not flagged:
            passed.append(tool)
            accepted.append(tool)
        elif withhold:
            code = "quarantined" if known is None else "definition_changed"
            withheld[tool.local_name] = _problem(source, tool, flagged, code=code, changed=known is not None, how=how)
        else:
            passed.append(tool)
            code = "unreviewed" if known is None else "unreviewed_change"
            unreviewed.append(_problem(source, tool, flagged, code=code, changed=known is not None, how=how))
    return Review(tools=tuple(passed), withheld=withheld, accepted=tuple(accepted), unreviewed=tuple(unreviewed))


def _problem(source: str, tool: Tool, flagged: Sequence[str], *, code: str, changed: bool, how: str) -> Problem:
    state = "in use (guard is off)" if code.startswith("unreviewed") else "withheld"
    what = "its definition is not the one that was reviewed" if changed else "its definition has not been reviewed"
    what = "; ".join((what, *flagged[:_MAX_FINDINGS_SHOWN]))
    return Problem(
        source=source,
        tool=tool.local_name,
        code=code,
        message=f"{tool.local_name} of {source} is {state}: {what}",
        hint=f"read it with `toolcrib show {source}/{tool.local_name}`, then {how or f'`toolcrib accept {source}`'}",
    )


class LockedSource(Struct, frozen=True, kw_only=True):
    """One source as it was reviewed."""

    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Definitions by the source's own names, as `pins.seen_of` gives them."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """SHA-256 in hexadecimal of what decides what runs: files by path, programs as `program:WORD`."""

    @property
    def pins(self) -> dict[str, bytes]:
        """The pin of every tool, by local name."""
        return {name: hashlib.sha256(canonical(tool)).digest() for name, tool in self.tools.items()}


class Lock(Struct, frozen=True, kw_only=True):
    """All sources, by name."""

    sources: Mapping[str, LockedSource] = field(default_factory=dict[str, LockedSource])


def write_lock(lock: Lock) -> bytes:
    """Return the text of the file: JSON, the same for the same lock, with a line for every value."""
    sources = {name: {"files": source.files, "tools": source.tools} for name, source in lock.sources.items()}
    text = json.dumps({"toolcrib_lock": _LOCK_VERSION, "sources": sources}, indent=2, sort_keys=True, ensure_ascii=True)
    return f"{text}\n".encode()


def read_lock(content: bytes, file: str) -> Lock:
    """Return the lock that `file` holds. Raises `ConfigError`: a lock that cannot be read lets nothing pass."""
    try:
        given: Any = read_json(content, limit=len(content), strict=True)
    except ValueError as error:
        raise ConfigError(f"no JSON: {error}", file=file) from None
    root = as_mapping(given)
    if root.get("toolcrib_lock") != _LOCK_VERSION:
        raise ConfigError(
            f"no lock of version {_LOCK_VERSION}; `toolcrib lock` writes one", file=file, key="toolcrib_lock"
        )
    sources: dict[str, LockedSource] = {}
    for name, source in _require_mapping(root.get("sources"), file, "sources").items():
        locked_source = _require_mapping(source, file, f"sources.{name}")
        tools = _require_mapping(locked_source.get("tools"), file, f"sources.{name}.tools")
        files = _require_mapping(locked_source.get("files"), file, f"sources.{name}.files")
        sources[name] = LockedSource(
            tools={tool: _require_mapping(seen, file, f"sources.{name}.tools.{tool}") for tool, seen in tools.items()},
            files={path: str(digest) for path, digest in files.items()},
        )
    return Lock(sources=sources)


def compare(locked: Lock, found: Lock) -> Iterator[str]:
    """Yield the differences from the lock: a line for new or removed tools, a diff for changed ones."""
    for name in sorted(set(locked.sources) | set(found.sources)):
        before, after = locked.sources.get(name), found.sources.get(name)
        if before is None or after is None:
            yield f"source {name}: {'not in the lock' if before is None else 'in the lock, but missing'}"
            continue
        yield from _file_differences(name, before.files, after.files)
        for tool in sorted(set(before.tools) | set(after.tools)):
            if tool not in before.tools or tool not in after.tools:
                yield f"{name}/{tool}: {'not in the lock' if tool not in before.tools else 'in the lock, but missing'}"
            elif text := difference(before.tools[tool], _without_new_address(after.tools[tool], before.tools[tool])):
                yield f"{name}/{tool}:\n{text}"


def _without_new_address(listed: Mapping[str, Any], locked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out the address where the lock is of a version that noted none."""
    return listed if "address" in locked else {key: value for key, value in listed.items() if key != "address"}


def _file_differences(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(set(before) | set(after)):
        if before.get(path) != after.get(path):
            what = "changed" if path in before and path in after else "is new" if path in after else "is gone"
            yield f"source {name}: {path} {what}"


def _require_mapping(given: Any, file: str, key: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError("a mapping was expected", file=file, key=key)
    return cast("Mapping[str, Any]", given)

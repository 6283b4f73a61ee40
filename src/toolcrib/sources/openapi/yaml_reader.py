"""Reader of API descriptions in YAML, without the dangerous features of the language.

Anchors, aliases and merge keys are accepted, since real descriptions have them, but their expansion counts against the
limits. Scalars follow the core schema of YAML 1.2, so `no` and dates stay text; keys are always text, for responses are
often named `200`. Tags and duplicate keys are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import yaml
from msgspec import Struct, field

from ...core.documents.yaml import resolve_scalar, yaml_reason

_MAX_NODES: Final = 1_000_000
"""With aliases written out. The largest public descriptions have some 200,000."""

_MAX_YAML_DEPTH: Final = 100

_MERGE: Final = "<<"

_TAGS: Final = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str")


def read_yaml(text: str) -> Any:
    """Return the one document in `text`. Raises `ValueError` with the line."""
    builder = _Builder()
    try:
        loader = yaml.CSafeLoader(text)
        while (event := loader.get_event()) is not None:
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"line {mark.line + 1 if mark else 1}: {yaml_reason(error, text)}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from error
    return builder.root


class _Open(Struct):
    """An open collection; `size` counts its content."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    key: str | None = None
    size: int = 1
    merged: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


class _Builder:
    """Puts events together; used once."""

    def __init__(self) -> None:
        self.root: Any = None
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) >= _MAX_YAML_DEPTH:
                raise _error(event, f"nested deeper than {_MAX_YAML_DEPTH} levels")
            self._known_tag(event)
            self._count_in(1, event)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Open(value={} if is_mapping else [], anchor=event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            known = self._anchors.get(event.anchor or "")
            if known is None:
                raise _error(event, f"nothing is called *{event.anchor} here")
            self._count_in(known[1], event)
            self._add(known[0], known[1], event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _error(event, "one document is expected, here a second one begins")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._known_tag(event)
        self._count_in(1, event)
        around = self._open[-1] if self._open else None
        text: str = event.value
        if around is not None and isinstance(around.value, dict) and around.key is None:
            value: Any = text
        else:
            value = resolve_scalar(text) if not event.style and event.tag is None else text
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1, event)

    def _end(self, event: yaml.Event) -> None:
        done = self._open.pop()
        for more in done.merged:
            done.value = {**more, **cast("dict[str, Any]", done.value)}
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.size)
        self._add(done.value, done.size, event)

    def _add(self, value: Any, size: int, event: yaml.Event) -> None:
        if not self._open:
            self.root = value
            return
        around = self._open[-1]
        around.size += size
        if isinstance(around.value, list):
            around.value.append(value)
        elif around.key is None:
            if isinstance(value, dict | list):
                raise _error(event, "a key must be a plain name")
            key = value if isinstance(value, str) else str(value)
            if key in around.value:
                raise _error(event, f"{key!r} stands here a second time")
            around.key = key
        else:
            self._member(around, around.key, value, event)
            around.key = None

    def _count_in(self, size: int, event: yaml.Event) -> None:
        self._count += size
        if self._count > _MAX_NODES:
            raise _error(event, f"more than {_MAX_NODES:,} values, aliases written out")

    def _member(self, around: _Open, key: str, value: Any, event: yaml.Event) -> None:
        if key != _MERGE:
            cast("dict[str, Any]", around.value)[key] = value
            return
        for more in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(more, dict):
                raise _error(event, "<< takes a mapping or a list of mappings")
            around.merged.append(cast("Mapping[str, Any]", more))

    def _known_tag(self, event: yaml.NodeEvent) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS:
            raise _error(event, f"the tag {tag} is not supported here")


def _error(event: yaml.Event, message: str) -> ValueError:
    return ValueError(f"line {event.start_mark.line + 1}: {message}")

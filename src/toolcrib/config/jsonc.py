"""JSON as people keep it in configuration files: with comments and trailing commas where a client allows them.

A linear scanner with a limit on depth. Duplicate keys are refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

import orjson

from ..core.document_tree import MAX_DEPTH, Member, Node, unique
from ..errors import ConfigError

__all__ = ["parse_json"]

_TOKEN: Final = re.compile(
    r'(?P<skip>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")'
    r"|(?P<literal>-?\d[\d.eE+-]*|true|false|null)|(?P<punctuation>[{}\[\],:])",
    re.DOTALL,
)


class _Token(NamedTuple):
    text: str
    """Empty at the end of the document."""
    start: int
    end: int


def parse_json(text: str, file: str = "") -> Node:
    """Return the tree of `text`. Raises `ConfigError` with file and line for anything that is not JSON."""
    return _Parser(text, file).document()


class _Parser:
    """Recursive descent over one text; used once."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._tokens = self._scan()
        self._next = next(self._tokens)

    def document(self) -> Node:
        node = self._value(0)
        if self._next.text:
            raise self._error(self._next, "something follows after the end of the document")
        return node

    def _scan(self) -> Iterator[_Token]:
        position, size = 0, len(self._text)
        while position < size:
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise self._error(_Token("?", position, position), "this is not JSON")
            position = match.end()
            if match.lastgroup != "skip":
                yield _Token(match.group(), match.start(), position)
        yield _Token("", size, size)

    def _take(self, expected: str = "") -> _Token:
        token = self._next
        if expected and token.text != expected:
            raise self._error(token, f"{expected!r} was expected, not {token.text[:40] or 'the end'!r}")
        self._next = next(self._tokens, _Token("", token.end, token.end))
        return token

    def _value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._error(self._next, f"nested deeper than {MAX_DEPTH}")
        if self._next.text == "{":
            return self._object(depth)
        if self._next.text == "[":
            return self._array(depth)
        token = self._take()
        line, column = self._place(token.start)
        value = self._scalar(token)
        return Node(
            kind="scalar", start=token.start, end=token.end, line=line, column=column, value=value, text=token.text
        )

    def _object(self, depth: int) -> Node:
        opening = self._take()
        members: list[Member] = []
        while self._next.text != "}":
            key = self._take()
            if not key.text.startswith('"'):
                raise self._error(key, f"a key in double quotes was expected, not {key.text[:40] or 'the end'!r}")
            line, column = self._place(key.start)
            self._take(":")
            node = self._value(depth + 1)
            members.append(Member(key=self._scalar(key), start=key.start, line=line, column=column, node=node))
            if self._next.text != "}":
                self._take(",")
        closing = self._take()
        line, column = self._place(opening.start)
        return Node(
            kind="mapping",
            start=opening.start,
            end=closing.end,
            line=line,
            column=column,
            members=unique(members, self._file),
        )

    def _array(self, depth: int) -> Node:
        opening = self._take()
        items: list[Node] = []
        while self._next.text != "]":
            items.append(self._value(depth + 1))
            if self._next.text != "]":
                self._take(",")
        closing = self._take()
        line, column = self._place(opening.start)
        return Node(kind="sequence", start=opening.start, end=closing.end, line=line, column=column, items=tuple(items))

    def _scalar(self, token: _Token) -> str:
        try:
            return orjson.loads(token.text)
        except ValueError as error:
            raise self._error(token, f"{token.text[:40] or 'the end'!r} is not a JSON value") from error

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._breaks, offset - 1)
        return line + 1, offset - (self._breaks[line - 1] + 1 if line else 0)

    def _error(self, token: _Token, message: str) -> ConfigError:
        line, _ = self._place(token.start)
        where = f"{self._file}:{line}" if self._file else f"line {line}"
        return ConfigError(message, file=where)

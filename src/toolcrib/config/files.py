"""Reading and writing of configuration files: capped, strict about encoding, atomic, never wider open than before.

JSON may have comments and trailing commas, as clients allow them; its scanner is linear with a limit on depth, and
duplicate keys are refused.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import stat
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from ..core.documents.tree import MAX_BYTES, MAX_DEPTH, Member, Node, unique
from ..core.documents.yaml import parse_yaml
from ..core.files import make_private_folder
from ..core.patterns import regex
from ..errors import ConfigError

_JSON_TOKEN: Final = regex(
    r'(?P<skip>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")'
    r"|(?P<literal>-?\d[\d.eE+-]*|true|false|null)|(?P<punctuation>[{}\[\],:])",
    re.DOTALL,
)

FOREIGN_MAX_BYTES: Final = 32 << 20
"""Largest file of another program that is read: `~/.claude.json` also holds histories."""

LOCK_MAX_BYTES: Final = 32 << 20
"""Largest lock that is read: 8,000 definitions of 4 KiB."""

_PIPE_SECONDS: Final = 1.0
"""Time that a named pipe has to get its writer, so that both ends may be started at once."""

_BOM: Final = b"\xef\xbb\xbf"


class _JsonToken(NamedTuple):
    text: str
    """Empty at the end of the document."""
    start: int
    end: int

    @property
    def shown(self) -> str:
        """The token for people."""
        return repr(self.text[:40]) if self.text else "the end of the file"


def parse_json(text: str, file: str = "") -> Node:
    """Return the tree of `text`. Raises `ConfigError` with file and line for anything that is not JSON."""
    return _JsonParser(text, file).document()


class _JsonParser:
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

    def _scan(self) -> Iterator[_JsonToken]:
        position, size = 0, len(self._text)
        while position < size:
            match = _JSON_TOKEN.match(self._text, position)
            if match is None:
                what = "a quote is missing" if self._text[position] == '"' else f"it has no {self._text[position]!r}"
                raise self._error(_JsonToken("?", position, position), f"this is not JSON: {what}")
            position = match.end()
            if match.lastgroup != "skip":
                yield _JsonToken(match.group(), match.start(), position)
        yield _JsonToken("", size, size)

    def _take(self, expected: str = "") -> _JsonToken:
        token = self._next
        if expected and token.text != expected:
            raise self._error(token, f"{expected!r} was expected, not {token.shown}")
        self._next = next(self._tokens, _JsonToken("", token.end, token.end))
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
                raise self._error(key, f"a key in double quotes was expected, not {key.shown}")
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

    def _scalar(self, token: _JsonToken) -> str:
        try:
            return orjson.loads(token.text)
        except ValueError as error:
            raise self._error(token, f"a value was expected, not {token.shown}") from error

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._breaks, offset - 1)
        return line + 1, offset - (self._breaks[line - 1] + 1 if line else 0)

    def _error(self, token: _JsonToken, message: str) -> ConfigError:
        line, _ = self._place(token.start)
        where = f"{self._file}:{line}" if self._file else f"line {line}"
        return ConfigError(message, file=where)


def read(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """Return the content of `path`; raises `ConfigError` if it cannot be read as one version.

    A file of more than `limit` bytes is refused, and one that a program is still writing: half of a configuration may
    allow what the whole denies.
    """
    try:
        descriptor, begin = _open(path)
        with os.fdopen(descriptor, "rb") as file:
            before = os.fstat(file.fileno())
            content = begin + file.read(limit + 1)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except ValueError as error:  # NUL or half a character in the path
        raise ConfigError(f"cannot be read: {error}", file=ascii(str(path))) from error
    if len(content) > limit:
        raise ConfigError(f"is larger than {limit >> 10} KiB, no configuration is", file=str(path))
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ConfigError("changed while it was read: try again", file=str(path))
    return content


def is_file(path: Path) -> bool:
    """Return whether there is a file; raises `ConfigError` where that cannot be known: it may hold rules."""
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None


def _open(path: Path) -> tuple[int, bytes]:
    """Open a file; return with it what had to be read of a pipe to know that it has a writer.

    Raises `ConfigError` for a named pipe without a writer, which would be waited for without end.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    if not stat.S_ISFIFO(path.stat().st_mode):
        return os.open(path, flags), b""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    begin = b""
    if not select.select([descriptor], [], [], _PIPE_SECONDS)[0]:
        with suppress(BlockingIOError):  # raised for a pipe with a writer that has sent nothing yet
            begin = os.read(descriptor, 1)
            if not begin:
                os.close(descriptor)
                raise ConfigError("is a pipe that no program writes to; name a file", file=str(path))
    os.set_blocking(descriptor, True)
    return descriptor, begin


def decode(content: bytes, file: str) -> str:
    """Return the text of `content` without its byte order mark; raises `ConfigError` when it is not UTF-8.

    A NUL is not text either: UTF-16 without a mark has one in every other byte.
    """
    text = content.removeprefix(_BOM)
    try:
        if (wrong := text.find(b"\0")) < 0:
            return text.decode()
    except UnicodeDecodeError as error:
        wrong = error.start
    line = text.count(b"\n", 0, wrong) + 1
    raise ConfigError("is not UTF-8 text: save it as UTF-8", file=f"{file}:{line}")


def parse(content: bytes, file: str) -> Node:
    """Return the tree of a JSON, JSONC or YAML file; the name decides which, or else the content."""
    text = decode(content, file)
    suffix = Path(file).suffix.lower()
    if suffix in (".json", ".jsonc") or (suffix not in (".yaml", ".yml") and text.lstrip().startswith("{")):
        return parse_json(text, file)
    return parse_yaml(text, file)


def parse_toml(content: bytes, file: str) -> Mapping[str, Any]:
    """Return the data of a TOML file."""
    import tomllib  # of Codex alone

    try:
        return tomllib.loads(decode(content, file))
    except RecursionError:
        raise ConfigError("is nested too deeply", file=file) from None
    except ValueError as error:  # of the syntax, or a number of thousands of digits
        raise ConfigError(f"is not TOML: {error}", file=file) from error


def write(path: Path, content: bytes) -> None:
    """Replace the content of `path` in one step, keeping its permissions; a new file gets 0600.

    A symbolic link stays one: what it points to is replaced. Raises `ConfigError` when the disk refuses.
    """
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        make_private_folder(target.parent)
        kept = target.stat().st_mode & 0o7777 if target.exists() else 0o600
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, kept)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.chmod(kept)
            _keep_owner(fresh, target)
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error


def _keep_owner(fresh: Path, target: Path) -> None:
    """Root may change a user's file; it stays the user's."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and target.exists():
        found = target.stat()
        os.chown(fresh, found.st_uid, found.st_gid)

"""Redaction of text while it is produced: streams of running calls, and our log records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from ...core.patterns import regex
from .names import SECRET_NAME_WORD
from .redactor import Redactor
from .scanner import compile_pattern
from .search import Find, visible_bytes

_RESCANNED_BYTES: Final = 256
"""Bytes of already sent text that are scanned again: longer than a name and its separator."""

_MAX_WORD_BYTES: Final = 512
"""Bytes of one word that wait at most: longer than any token but some JWTs, which are known by their beginning."""

_MAX_WAITING_BYTES: Final = 32 * 1024
"""Bytes that wait at most: longer than any private key."""

_SEPARATORS_TO_SPACES: Final = bytes.maketrans(b"\t\n\r\f\v\"'`<>(){}[],;|", b" " * 19)
"""Separators of words, mapped to spaces."""

_TOKEN_BEGINNING: Final = regex(
    rb"(?i:gh[pousr]_|github_|gl[a-z]{2,5}-|sk-|[srp]k_|xox[a-z]|xapp|akia|asia|aiza|ya29|gocspx|npm_|pypi-|hf_|ey[a-z]"
    rb"|do[opr]_v1|dapi|shp[a-z]{2}_|hv[sbr]\.|sg\.|key-|lin_|dp\.|gls?[ac]_|whsec_|age-secret|://)"
)
"""Beginnings of the commonest tokens, and of URLs, which may have a password in them."""

_MIN_TOKEN_BYTES: Final = 12
"""Bytes from which on a word with digits and letters in it may be a token without a known beginning."""

_OPEN_ASSIGNMENT: Final = (
    rb"(?i)(?:"
    + SECRET_NAME_WORD
    + rb"[\w.\t -]{0,24}[\s\"'\\\]]{0,12}(?:=>|:{1,3}=|[?.+]?==?|[:=>,])(?:\\[nrt]|[\s\"'`=>\\@]){0,20}[^\s\"'`<>;,&|]*"
    + rb"|\b(?:authorization|bearer|basic|token|digest|password(?: is)?):?\s+[\"'`]?\S*)$"
)
"""A name of secrets, with the available part of its value, up to the end: in `Authorization: Bearer x` the second."""

_MAX_ASSIGNMENT_BYTES: Final = 1024
_KEY_BLOCK: Final = regex(rb"-----BEGIN[ A-Z0-9_-]*PRIVATE KEY|-----BEGIN[ A-Z0-9_-]{0,40}\Z|\n-{1,5}\Z")
_KEY_END: Final = regex(rb"-----END[ A-Z0-9_-]*-----")
_OPEN_ESCAPE: Final = regex(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]{0,400})?\Z")
"""A terminal escape that goes on in the next piece."""
_LOGGER_NAME: Final = "toolcrib"


class OutputCleaner:
    """Redactor for the output of running calls; see `core.context.Cleaner`. One for a crib."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def of(self, principal: str) -> OutputCleaner:
        """Return the redactor for the output of calls of `principal`."""
        redactor = self._redactor.of(principal)
        return self if redactor is self._redactor else OutputCleaner(redactor)

    def value(self, value: Any) -> Any:
        """Return text or JSON-like `value` without secrets: the same object when it has none."""
        return self._redactor.text(value) if isinstance(value, str) else self._redactor.value(value)

    def pieces(self) -> RedactedStream:
        """Begin a stream."""
        return RedactedStream(self._redactor)


class RedactedStream:
    """One stream of text. `add` every piece, then `end` once.

        add ──► waiting bytes ──► everything before the last place at which a secret may begin is given out

    At most `_MAX_WAITING_BYTES` bytes wait; a longer secret would be given out in parts, and each part is looked at
    with `_RESCANNED_BYTES` bytes that were given before.
    """

    def __init__(self, redactor: Redactor) -> None:
        """`redactor` knows the formats, and our own secrets."""
        self._redactor = redactor
        self._before = b""
        self._waiting = b""

    def add(self, piece: str) -> str:
        """Return the part that can be sent now; may be empty."""
        self._waiting += piece.encode("utf-8", "surrogatepass")
        return self._release(len(self._waiting) - self._count_undecided())

    def end(self) -> str:
        """Return the rest."""
        return self._release(len(self._waiting))

    def _release(self, count: int) -> str:
        """Give on the first `count` bytes that wait, but not a part of a secret that reaches over them."""
        if count <= 0:
            return ""
        raw, start = self._before + self._waiting, len(self._before)
        stop, finds = start + count, self._redactor.search.finds(raw)
        for find in finds:
            if find.start < stop < find.end:
                stop = max(start, find.start)
        clean = _mask(raw, start, stop, finds)
        self._waiting = raw[stop:]
        self._before = raw[max(0, stop - _RESCANNED_BYTES) : stop]
        return clean.decode("utf-8", "surrogatepass")

    def _count_undecided(self) -> int:
        """Return the number of bytes at the end that have to wait."""
        raw, waiting = self._before + self._waiting, len(self._waiting)
        open_escape = _OPEN_ESCAPE.search(raw)
        end = len(raw) if open_escape is None else open_escape.start()
        seen, place = visible_bytes(raw[:end])  # a secret may be parted by what is not seen
        least = min(
            _find_open_key(seen),
            _find_open_name(seen),
            _find_last_word(seen),
            len(seen) - self._redactor.search.begun(seen),
        )
        doubtful = min(len(raw) - (place(least) if least < len(seen) else end), waiting, _MAX_WAITING_BYTES)
        while 0 < doubtful < waiting and raw[len(raw) - doubtful] & 0xC0 == 0x80:  # in the middle of a character
            doubtful += 1
        return doubtful


def _find_open_key(raw: bytes) -> int:
    """Offset of the first private key that begins and does not end; the end of `raw` when every key is complete.

    The dashes of its end may begin another one: all of it waits for the rest of them.
    """
    begun = _KEY_BLOCK.finditer(raw)
    return next((one.start() for one in begun if not _KEY_END.search(raw, one.end())), len(raw))


def _find_open_name(raw: bytes) -> int:
    """Position of a name whose value reaches the end.

    `password: ` at the end of a piece waits for its value.
    """
    start = max(0, len(raw) - _MAX_ASSIGNMENT_BYTES)
    found = compile_pattern(_OPEN_ASSIGNMENT).search(raw[start:])
    return len(raw) if found is None else start + int(found.start())


def _find_last_word(raw: bytes) -> int:
    """Position of the last word, when it may be the beginning of a token."""
    word = raw[-_MAX_WORD_BYTES:].translate(_SEPARATORS_TO_SPACES).rpartition(b" ")[2]
    is_long = len(word) >= _MIN_TOKEN_BYTES and any(48 <= byte <= 57 for byte in word) and not word.isdigit()
    return len(raw) - len(word) if is_long or _TOKEN_BEGINNING.search(word) else len(raw)


def _mask(raw: bytes, start: int, stop: int, finds: Iterable[Find]) -> bytes:
    """Return `raw[start:stop]` without the secrets in it; of one that began before `start` the rest is masked."""
    parts: list[bytes] = []
    position = start
    for find in finds:
        if find.end > position and find.start < stop:
            parts += (raw[position : max(position, find.start)], f"[redacted:{find.kind}]".encode())
            position = find.end
    return b"".join((*parts, raw[position:stop]))


_plain: Final = logging.Formatter()


class _LogRecordGuard:
    """The process's factory of log records, wrapped around the earlier one. One for all cribs."""

    def __init__(self) -> None:
        self._make: Callable[..., logging.LogRecord] = logging.LogRecord
        self._redactors: list[Redactor] = []

    def __call__(self, *args: Any, **fields: Any) -> logging.LogRecord:
        record = self._make(*args, **fields)
        if self._redactors and record.name.partition(".")[0] == _LOGGER_NAME:
            for redactor in self._redactors:
                _clean(record, redactor)
        return record

    def add(self, redactor: Redactor) -> None:
        """Clean with `redactor` too, from now on."""
        if logging.getLogRecordFactory() is not self:
            self._make = logging.getLogRecordFactory()
            logging.setLogRecordFactory(self)
        self._redactors.append(redactor)

    def remove(self, redactor: Redactor) -> None:
        """Clean with it no more; the last one gives the process its own factory back, unless that was replaced."""
        self._redactors.remove(redactor)
        if not self._redactors and logging.getLogRecordFactory() is self:
            logging.setLogRecordFactory(self._make)


_guard: Final = _LogRecordGuard()


def guard_logs(redactor: Redactor) -> Callable[[], None]:
    """Redact our log records with `redactor` from now on; returns the function that ends it."""
    _guard.add(redactor)
    return lambda: _guard.remove(redactor)


def _clean(record: logging.LogRecord, redactor: Redactor) -> None:
    """Mask secrets in message, stack and exception of a record. A clean record stays unchanged."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the handler will report it
        return
    clean = redactor.text(message)
    if clean is not message:
        record.msg, record.args = clean, ()
    if record.stack_info:
        record.stack_info = redactor.text(record.stack_info)
    if record.exc_info and record.exc_info[0] is not None:
        trace = record.exc_text or _plain.formatException(record.exc_info)
        clean = redactor.text(trace)
        if clean is not trace:
            record.exc_text, record.exc_info = clean, None
    elif record.exc_text:
        record.exc_text = redactor.text(record.exc_text)

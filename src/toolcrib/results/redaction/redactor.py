"""Redaction of secrets in results, streams, events, logs and stored records.

    SecretSearch.match   which of some hundreds of patterns may occur         one pass, for every text
    SecretSearch.look    the patterns that may: where, and is it a secret?    few texts
    Redactor             text, JSON values, whole results, files; marks or placeholders in place of the finds

    [redacted:github_token]          a certain find, or no conversation to keep it for
    ⟦secret:abcdefghij⟧              a likely one, which the session may hand back (`core.kept_secrets`)

The search is over bytes of UTF-8, in which JSON is written anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain
from operator import is_not
from typing import Any, BinaryIO, Final, cast

from anyio import to_thread
from msgspec.structs import replace

from ...core.json import dumps
from ...core.patterns import regex
from ...core.result import SpooledResult, ToolError, ToolResult
from .names import SECRET_NAME_WORD
from .scanner import compile_pattern
from .search import Find, SecretSearch

IN_THREAD: Final = 128 * 1024
"""Characters of text above which `clean` leaves the event loop: some 10 ms of work."""
_BLOCK: Final = 256 * 1024
"""Bytes read at a time from a spilled file."""
_OVERLAP: Final = 16 * 1024
"""Bytes looked at again with the next block: longer than any private key (4096 bit RSA: 3.3 KiB)."""
_MAX_NAME_BYTES: Final = 256
"""Bytes before a find in which its name may stand: the value alone is not a secret to the next block."""
_MAX_FIND_BYTES: Final = 1024 * 1024
"""A find that reaches the end of a block is followed no further than this."""
_MAX_LEARNT_SECRETS: Final = 64
"""Secrets that are learnt and kept: one login has two, and brings others every hour or so."""
_MAX_PRINCIPALS: Final = 64
"""Principals whose values in the place of placeholders are kept."""
_MIN_LEARNT_LENGTH: Final = 6
"""Characters of a secret that is learnt: a shorter one would mask ordinary words."""
_CUT_EDGE_LENGTH: Final = 256
"""Characters dropped at the cut edge of an excerpt, where half a secret may be."""

_MAX_TABLE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of JSON that are looked at in whole: each pass over them holds the interpreter for a few milliseconds."""
_MAX_JUDGED_KEYS: Final = 16
"""Distinct telling keys of a table that are judged without a walk: each costs a pass over its JSON."""
_MAX_REMEMBERED_PAIRS: Final = 1024
"""Harmless pairs of a key and a value that are remembered: tools return the same states and types in every result."""
_MAX_PAIR_BYTES: Final = 200
"""Of a key and its value together."""

Keep = Callable[[str, bool], str]
"""Returns the placeholder that stands for a value, empty for one that is masked for good. `True` for a certain find."""

_MAX_JOINT_BYTES: Final = 8192
"""Bytes of JSON that are looked at together with others."""

_ASSIGNMENT_SIGN: Final = regex(r"[:=>,|?.+\\]")
"""A character that every assignment has between its name and its value."""
_MAX_KNOWN_LENGTH: Final = 64
"""Characters of strings whose results are remembered during a walk."""


class Redactor:
    """Knows every format, the secrets given and those learnt. May be used from several threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Take the secrets of the configuration; patterns are compiled at the first text, in some milliseconds."""
        self._given = tuple(secrets)
        self._learnt: dict[str, None] = {}
        self._used: dict[str, dict[str, None]] = {}
        self._keep: Keep | None = None
        self._compile()

    def keeping(self, keep: Keep) -> Redactor:
        """Return a view for one result, which shows the placeholders of `keep` in place of marks; `learn` ends it."""
        view = copy(self)
        view._keep = keep
        return view

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask `secrets` too from now on: tokens that we got while we run. Of many the last ones count."""
        self._add(self._learnt, secrets)

    def learn_used(self, secrets: Iterable[str], principal: str) -> None:
        """Mask values that `principal` put in the place of placeholders: apart from `learn`, to displace no login."""
        self._used[principal] = known = self._used.pop(principal, {})
        while len(self._used) > _MAX_PRINCIPALS:
            del self._used[next(iter(self._used))]
        self._add(known, secrets)

    def of(self, principal: str) -> Redactor:
        """Return the redactor of what `principal` is shown; `learn` ends it.

        It does not mask what others put in the place of placeholders: a mask would tell that a guess is right.
        """
        if not self._used or self._used.keys() == {principal}:
            return self
        user = principal if principal in self._used else None  # who has used none shares one view with the others
        view = self._views.get(user)
        if view is None:
            view = copy(self)
            view._used = {} if user is None else {user: self._used[user]}
            view._compile()
            self._views[user] = view
        return view

    def _add(self, known: dict[str, None], secrets: Iterable[str]) -> None:
        before = set(known)
        for secret in secrets:
            if len(secret) >= _MIN_LEARNT_LENGTH:
                known.pop(secret, None)
                known[secret] = None
        while len(known) > _MAX_LEARNT_SECRETS:
            del known[next(iter(known))]
        if before != set(known):
            self._compile()

    def _compile(self) -> None:
        self._views: dict[str | None, Redactor] = {}
        self.search = SecretSearch((*self._given, *self._learnt, *chain.from_iterable(self._used.values())))
        """Search for secrets; replaced when a secret is learnt."""
        self._harmless: dict[tuple[bytes, bytes], None] = {}
        """Telling keys, and their values with quotes, that `_has_only_harmless_names` found to be no secrets.

        Set last: its reader judges by the patterns above, and notes nothing for those of a later secret.
        """

    def text(self, text: str) -> str:
        """Return `text` without secrets: the same object when it has none. Lone surrogates are kept."""
        raw = text.encode("utf-8", "surrogatepass")
        hits = self.search.match(raw)
        if not hits:
            return text
        clean = self._clean(raw, hits)
        return text if clean is raw else clean.decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """Return JSON-like `value` without secrets, in keys and in values: the same object when it holds none.

        Values that are not JSON (arguments before validation) are walked all the same.
        """
        return self._redact_json(value, lambda: dumps(value))[0]

    def values(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return `value` of each. Short ones without secrets take one look together.

        Each look lets another thread have the interpreter (RE2 does): the writer of the store looks at a batch at once.
        """
        texts = [_short_json(value) for value in values]
        together = b"\n".join(texts)
        is_clean = b"\\" not in together and not self.search.match(together)
        return [value if is_clean and text else self.value(value) for value, text in zip(values, texts, strict=True)]

    def _redact_json(self, value: Any, write: Callable[[], bytes]) -> tuple[Any, bytes]:
        """Return `value` without secrets, and its JSON, which `write` returns, where that has no more to find.

        JSON without hits is clean as a whole. With hits, strings are cleaned one by one, as the value of their key:
        what looks like a secret in JSON may end in the middle of two values.
        """
        only_assignments = False
        raw = b""
        try:
            raw = write()
        except (TypeError, ValueError, RecursionError):
            pass
        else:
            hits = self.search.match(raw)
            texts = [raw]
            if b"\\" in raw:
                unescaped = raw.replace(b'\\"', b'"')
                for sign in (b"\\n", b"\\t", b"\\r", b"\\f", b"\\b"):
                    unescaped = unescaped.replace(sign, b"\n")
                texts.append(unescaped)
                hits = {*hits, *self.search.match(texts[1])}
            if not hits:
                return value, raw
            only_assignments = b"\\" not in texts[-1] and not self.search.has_format(hits, texts)
            if (
                only_assignments
                and len(texts) == 1
                and len(raw) <= _MAX_TABLE_BYTES
                and self._has_only_harmless_names(raw)
            ):
                return value, raw
        walked = _ValueRedaction(self, only_assignments=only_assignments).clean(value, b"", 0)
        return (value if walked == value else walked), b""

    def _has_only_harmless_names(self, raw: bytes) -> bool:
        """Whether no telling name in this JSON is more than a key of texts that are not secrets.

        A look at the distinct names and values of large tables, in place of a walk over all of their rows; False means
        that only a walk can tell. `raw` has no backslashes, so that each quote begins or ends a text.
        """
        known = self._harmless
        named = compile_pattern(b"(?i)" + SECRET_NAME_WORD)
        telling, rest = dict[bytes, list[bytes]](), raw
        while (found := named.search(rest)) is not None:  # a pass for each telling key: few, where all keys are many
            start, end = found.span()
            start, end = rest.rfind(b'"', 0, start) + 1, rest.find(b'"', end)
            key = rest[start:end]
            if len(telling) == _MAX_JUDGED_KEYS or rest[end : end + 2] != b'":':
                return False
            before, *telling[key] = rest.split(b'"' + key + b'":')
            rest = before + b"".join(telling[key])
        for key, parts in telling.items():
            if (key, b"") not in known:
                name = key.decode("utf-8", "surrogatepass")
                if self.text(name) is not name:
                    return False
                _remember(known, (key, b""))
            for value in {part[: part.find(b'"', 1) + 1 if part[:1] == b'"' else 1] for part in parts}:
                if value in (b"[", b"{"):
                    return False
                if value[:1] == b'"' and (key, value) not in known:
                    text = value[1:-1].decode("utf-8", "surrogatepass")
                    if self.named(text, key[:80]) is not text:
                        return False
                    _remember(known, (key, value))
        return True

    def result(self, result: ToolResult) -> ToolResult:
        """Return `result` without secrets in its content, metadata and excerpts of a spooled result.

        The spooled file itself stays raw: `stream` copies it clean.
        """
        if self._is_clean_failure(result):
            return result
        changes: dict[str, Any] = {}
        structured, looked_at = result.structured_content, b""
        if structured:
            shown, looked_at = self._redact_json(structured, lambda: result.json)
            if shown is not structured:
                changes["structured_content"] = shown
        if not (looked_at and _is_text(result.content, looked_at)):
            content = [self._block(block) for block in result.content]
            if any(map(is_not, content, result.content)):
                changes["content"] = tuple(content)
        for name in ("input_required", "meta"):
            old = getattr(result, name)
            if old and (new := self.value(old)) is not old:
                changes[name] = new
        if result.error is not None and (error := self._error(result.error)) is not result.error:
            changes["error"] = error
        if result.spooled is not None:
            changes["spooled"] = self._redact_spooled(result.spooled)
        return result.evolve(**changes) if changes else result

    def _is_clean_failure(self, result: ToolResult) -> bool:
        """Whether a failure is texts alone in which no format occurs: one look at all of them."""
        error = result.error
        is_more = result.meta or result.structured_content is not None or result.input_required is not None
        if error is None or is_more or result.spooled is not None:
            return False
        texts = [error.message, error.hint]
        for block in result.content:
            text = block.get("text")
            if len(block) != 2 or block.get("type") != "text" or not isinstance(text, str):
                return False
            texts.append(text)
        raw = "\n".join(texts).encode("utf-8", "surrogatepass")
        if error.details:
            try:
                raw += b"\n" + dumps(error.details)
            except (TypeError, ValueError, RecursionError):
                return False
        return b"\\" not in raw and not self.search.match(raw)

    async def clean(self, result: ToolResult) -> ToolResult:
        """Return `result(result)`; a long one is scanned in a thread, so that the event loop continues."""
        if self.is_quick(result):
            return self.result(result)
        return await to_thread.run_sync(self.result, result)

    def is_quick(self, result: ToolResult) -> bool:
        """Whether `result` is so short that `clean` would not leave the event loop."""
        texts = [text for block in result.content if isinstance(text := block.get("text"), str)]
        return sum(map(len, texts)) <= IN_THREAD

    def stream(self, source: BinaryIO, target: BinaryIO) -> int:
        """Copy `source` to `target` without secrets, in bounded memory; return the bytes written.

        A find that reaches over the end of a block waits for the next one (`_safe_cut`), so that a secret across a
        border is found.
        """
        written = 0
        pending = b""
        while block := source.read(_BLOCK):
            pending += block
            finds = self.search.finds(pending)
            cut = _safe_cut(pending, finds)
            written += target.write(_replace_finds(pending, [find for find in finds if find.end <= cut], cut))
            pending = pending[cut:]
        return written + target.write(_replace_finds(pending, self.search.finds(pending), len(pending)))

    def _clean(self, raw: bytes, hits: list[int]) -> bytes:
        """Return `raw` itself when a closer look finds nothing."""
        finds = self.search.look(raw, hits)
        return _replace_finds(raw, finds, len(raw), self._keep) if finds else raw

    def _block(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = block.get("type")
        if kind == "text" and len(block) == 2:
            old = block.get("text")
            if isinstance(old, str):
                new = self.text(old)
                return block if new is old else {**block, "text": new}
        if kind in ("image", "audio"):
            rest = {key: value for key, value in block.items() if key != "data"}
            new_rest = self.value(rest)
            return block if new_rest is rest else {**new_rest, "data": block.get("data")}
        return cast("Mapping[str, Any]", self.value(block))

    def _error(self, error: ToolError) -> ToolError:
        message, hint, details = self.text(error.message), self.text(error.hint), self.value(error.details)
        if message is error.message and hint is error.hint and details is error.details:
            return error
        return replace(error, message=message, hint=hint, details=details)

    def _redact_spooled(self, spooled: SpooledResult) -> SpooledResult:
        head = self.text(_without_edge(spooled.head, end=True))
        tail = self.text(_without_edge(spooled.tail, end=False))
        return replace(spooled, head=head, tail=tail)

    def named(self, value: str, name: bytes) -> str:
        """Return a string without secrets, as the value of that name.

        The value is looked at behind its name, as an assignment would have it, because many values are secrets by their
        name alone.
        """
        clean = self.text(value)
        if clean is not value or not name:
            return clean
        raw = value.encode("utf-8", "surrogatepass")
        assigned = name + b'": "' + raw
        for find in self.search.finds(assigned):
            if find.start == len(name) + 4 and find.end == len(assigned):
                return _replacement_of(assigned, find, self._keep).decode("utf-8", "surrogatepass")
            if find.end > len(name) + 4:
                masked = self._clean(assigned, self.search.match(assigned))
                return masked[len(name) + 4 :].decode("utf-8", "surrogatepass")
        return value


class _ValueRedaction:
    """One pass over a value. Tables repeat their names, and often their values: each pair is looked at once.

    Where only assignments may match (`name: value`), a string can be one with its own sign, or with a telling name.

    One for a value, as it remembers pairs of name and value.
    """

    def __init__(self, redactor: Redactor, *, only_assignments: bool) -> None:
        self._redactor = redactor
        self._only_assignments = only_assignments
        self._keys: dict[tuple[Any, bytes], tuple[Any, bytes, bool]] = {}
        self._known: dict[tuple[bytes, str], str] = {}

    def clean(self, value: Any, name: bytes, depth: int) -> Any:
        """Return a value without secrets."""
        if isinstance(value, str):
            return self._string(value, name)
        if depth > 200:
            return "[redacted:too_deep]"
        if isinstance(value, Mapping):
            cleaned: dict[Any, Any] = {}
            keys, search = self._keys, _ASSIGNMENT_SIGN.search
            for key, item in cast("Mapping[Any, Any]", value).items():
                shown, own, is_plain = keys.get((key, name)) or self._key(key, name)
                if type(item) is not str:
                    cleaned[shown] = self.clean(item, own, depth + 1)
                else:
                    cleaned[shown] = item if is_plain and not search(item) else self._string(item, own)
            return cleaned
        if isinstance(value, list | tuple | set | frozenset):
            return [self.clean(item, name, depth + 1) for item in cast("Iterable[Any]", value)]
        return value

    def _key(self, key: Any, outer: bytes) -> tuple[Any, bytes, bool]:
        """Return a key without secrets, the name of its value, and whether only a sign in the value can tell.

        A generic key (`value`) takes the outer name.
        """
        shown, name = key, outer
        if isinstance(key, str):
            shown = self._redactor.text(key)
            name = outer if key in ("value", "default") else key.encode("utf-8", "surrogatepass")[:80]
        known = shown, name, self._is_plain(name)
        self._keys[key, outer] = known
        return known

    def _string(self, value: str, name: bytes) -> str:
        if len(value) > _MAX_KNOWN_LENGTH:
            return self._redactor.named(value, name)
        known = self._known.get((name, value))
        if known is None:
            known = self._known[name, value] = self._redactor.named(value, name)
        return known

    def _is_plain(self, name: bytes) -> bool:
        """Whether no assignment begins within this name, and nothing but assignments may be there."""
        return self._only_assignments and compile_pattern(b"(?i)" + SECRET_NAME_WORD).search(name) is None


def _short_json(value: Any) -> bytes:
    """Return the JSON of a value; empty where it is long, or the value is not JSON."""
    try:
        raw = dumps(value)
    except (TypeError, ValueError, RecursionError):
        return b""
    return raw if len(raw) <= _MAX_JOINT_BYTES else b""


def _remember(known: dict[tuple[bytes, bytes], None], pair: tuple[bytes, bytes]) -> None:
    """Note that a telling key with this value, or the key alone, is not a secret."""
    if len(pair[0]) + len(pair[1]) <= _MAX_PAIR_BYTES:
        if len(known) >= _MAX_REMEMBERED_PAIRS:
            known.clear()
        known[pair] = None


def _is_text(content: Sequence[Mapping[str, Any]], raw: bytes) -> bool:
    """Whether a result's content is this one text, as most tools add it to their structured content."""
    if len(content) != 1 or set(content[0]) != {"type", "text"} or not isinstance(content[0]["text"], str):
        return False
    text = content[0]["text"]
    return len(text) <= len(raw) and text.encode("utf-8", "surrogatepass") == raw


def _replacement_of(raw: bytes, find: Find, keep: Keep | None) -> bytes:
    """Return the replacement of a find: a placeholder, if its value is kept, else its kind.

    A value with a backslash may be an escaped spelling, which no tool could use: it is not kept.
    """
    if keep is not None:
        value = raw[find.start : find.end]
        if b"\\" not in value and (placeholder := keep(value.decode("utf-8", "surrogatepass"), find.is_certain)):
            return placeholder.encode()
    return f"[redacted:{find.kind}]".encode()


def _replace_finds(raw: bytes, finds: list[Find], stop: int, keep: Keep | None = None) -> bytes:
    parts: list[bytes] = []
    position = 0
    for find in finds:
        parts += (raw[position : find.start], _replacement_of(raw, find, keep))
        position = find.end
    parts.append(raw[position:stop])
    return b"".join(parts)


def _safe_cut(raw: bytes, finds: list[Find]) -> int:
    """Position to cut `raw` without parting a secret or its name: before the overlap, at white space if possible."""
    if len(raw) <= _OVERLAP:
        return 0
    cut = len(raw) - _OVERLAP
    space = max(raw.rfind(b"\n", cut - _OVERLAP // 2, cut), raw.rfind(b" ", cut - 512, cut))
    cut = space + 1 if space >= 0 else cut
    for find in reversed(finds):
        if find.start - _MAX_NAME_BYTES < cut < find.end:
            if find.end < len(raw) or len(raw) - find.start > _MAX_FIND_BYTES:
                return find.end
            cut = max(0, find.start - _MAX_NAME_BYTES)  # it may go on in the next block
    return cut


def _without_edge(text: str, *, end: bool) -> str:
    """Drop the word at the cut edge of an excerpt: it may be the half of a secret, which no pattern knows."""
    if end:
        border = max(text.rfind(space, max(0, len(text) - _CUT_EDGE_LENGTH)) for space in " \n\t")
        return text[: border + 1] if border >= 0 else text[:-_CUT_EDGE_LENGTH]
    borders = [position for space in " \n\t" if (position := text.find(space, 0, _CUT_EDGE_LENGTH)) >= 0]
    return text[min(borders) :] if borders else text[_CUT_EDGE_LENGTH:]

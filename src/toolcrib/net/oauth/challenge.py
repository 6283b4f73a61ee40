"""What a server says when it refuses us: `WWW-Authenticate` (RFC 9110, section 11.6.1; RFC 6750; RFC 9728)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Challenge", "bearer_challenge", "scopes_in"]

_LONGEST: Final = 8192
"""Characters of a header that are looked at."""
_MOST_SCOPES: Final = 100
_LONGEST_SCOPE: Final = 256

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER: Final = re.compile(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME: Final = re.compile(rf"({_TOKEN})(?=[\s,]|$)(?:[ \t]+[A-Za-z0-9\-._~+/]+=*(?=\s*(?:,|$)))?")
_GAP: Final = re.compile(r"[\s,]*")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, section 3.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The `Bearer` challenge of a refusal. Everything in it is what the server says."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str = ""

    @property
    def wants_more(self) -> bool:
        """Whether our token is good, but not for this."""
        return self.error == "insufficient_scope"


def bearer_challenge(header: str) -> Challenge | None:
    """Return the first `Bearer` challenge of a header, which may hold several; None when there is none."""
    text, place, scheme = header[:_LONGEST], 0, ""
    found: dict[str, str] | None = None
    while (place := _after_gap(text, place)) < len(text):
        if scheme and (parameter := _PARAMETER.match(text, place)):
            if scheme == "bearer" and found is not None:
                name, quoted, plain = parameter.groups()
                found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if plain is None else plain)
            place = parameter.end()
        elif named := _SCHEME.match(text, place):
            if found is not None:
                break
            scheme, place = named[1].lower(), named.end()
            found = {} if scheme == "bearer" else None
        else:
            place += 1
    if found is None:
        return None
    return Challenge(
        error=found.get("error", ""),
        scopes=scopes_in(found.get("scope", "")),
        resource_metadata=found.get("resource_metadata", ""),
    )


def scopes_in(text: str) -> tuple[str, ...]:
    """Return the scopes of a list with spaces, each once; what is none is left out."""
    words = (word for word in text.split() if len(word) <= _LONGEST_SCOPE and _SCOPE.fullmatch(word))
    return tuple(dict.fromkeys(words))[:_MOST_SCOPES]


def _after_gap(text: str, place: int) -> int:
    gap = _GAP.match(text, place)
    return gap.end() if gap else place

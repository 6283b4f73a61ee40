"""Checks of an HTTP request before its body is read: host, origin, size and the bearer token.

A page in the operator's browser can send requests here (DNS rebinding, CSRF). It cannot choose the `Host` and `Origin`
headers, nor set a JSON content type without asking first: these three are checked by exact parsed match.

A bearer token stands for a principal with rights.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from ..config.settings import Scope, TokenSpec
from ..core.patterns import regex
from ..core.session import LOCAL
from ..errors import UsageError
from ..mcp.jsonrpc import HEADER_MISMATCH
from ..mcp.server.http_messages import Headers, Refusal
from ..net.urls import is_loopback

_logger = logging.getLogger(__name__)

_SCHEME: Final = b"bearer "
_ANY: Final = "*"
_LONG: Final = 16
"""Characters of a token that cannot be guessed: 2**64 even of hexadecimal digits."""

_HOST: Final = regex(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::(?P<port>[0-9]{1,5}))?")
_ORIGIN: Final = regex(r"(?P<scheme>https?)://(?P<rest>[^/?#@\\\s]+)")
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_PORTS: Final = {"http": 80, "https": 443}

_INSTANCE_HEADER: Final = b"toolcrib-instance"
"""Names the instance that a client works as."""
INSTANCE: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern of instance names over HTTP."""
_INSTANCE: Final = regex(INSTANCE)

_SINGLE: Final = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"origin",
        _INSTANCE_HEADER,
    }
)
"""Headers whose second occurrence is refused: a reader of the first and one of the last would disagree."""

_AT_ONCE: Final = 20
"""Failed attempts of one address that cost no time."""
_SECONDS: Final = 6.0
"""After so many seconds an address has one attempt more."""
_ADDRESSES: Final = 4096
"""Addresses that are remembered, those of the latest failures."""
_REPORT_SECONDS: Final = 60.0
"""Seconds between two lines of the log for wrong tokens."""


class Caller(Struct, frozen=True, kw_only=True):
    """Sender of a request. Lives as long as the request."""

    principal: str
    scope: Scope = "call"
    instances: tuple[str, ...] = ()
    """The instances that they may work as."""

    def may_be(self, instance: str) -> bool:
        """Whether they may work as this instance."""
        return instance in self.instances or _ANY in self.instances

    @property
    def own(self) -> str:
        """The default instance of a caller: the only permitted one, else empty."""
        return self.instances[0] if len(self.instances) == 1 and self.instances[0] != _ANY else ""


class Authority:
    """Authentication of callers by their bearer tokens.

    Without a configured token every caller is the local user, and only loopback is served; an `admin_token` alone
    changes nothing about calls, and lets its owner administer. With an entry in
    `tokens`, of any scope, each call needs a token: others may reach a loopback address, too, through a proxy.
    """

    def __init__(self, token: str, *, host: str, admin_token: str = "", tokens: Iterable[TokenSpec] = ()) -> None:
        """Raise `UsageError` when `host` can be reached from elsewhere and calls need no token, or for a bad token.

        `token` is for calls without an instance, `admin_token` for administration; `tokens` are further ones.
        """
        callers = [*([TokenSpec(token=token)] if token else []), *tokens]
        specs = [*callers, *([TokenSpec(token=admin_token, scope="admin")] if admin_token else [])]
        self.is_open = not callers
        """Whether calls need no token."""
        if self.is_open and not is_loopback(host):
            token = "the variable TOOLCRIB_TOKEN, `--token-file FILE`, in Python `token=`"
            raise UsageError(f"{host} can be reached from other machines: set a token ({token}), or bind 127.0.0.1")
        if any(not 0x21 <= ord(character) <= 0x7E for spec in specs for character in spec.token):
            raise UsageError("the token may hold visible ASCII characters only")
        labels: dict[str, str] = {}
        for place, spec in enumerate(specs, start=1):
            label = repr(spec.principal) if spec.principal else f"number {place}, of scope {spec.scope}"
            if first := labels.get(spec.token):
                raise UsageError(f"the tokens of {first} and {label} are equal: each caller needs a token of its own")
            labels[spec.token] = label
        self._known = [(_digest(spec.token.encode()), _caller(spec), len(spec.token) >= _LONG) for spec in specs]
        self._anybody = Caller(principal=LOCAL, instances=(_ANY,)) if self.is_open else None

    @property
    def principal(self) -> str:
        """The name of the first caller there is, the local user where no token is asked for."""
        return LOCAL if self._anybody else self._known[0][1].principal

    @property
    def principals(self) -> frozenset[str]:
        """The names of all callers that have a token."""
        return frozenset(caller.principal for _, caller, _ in self._known)

    def signing_key(self, purpose: str) -> bytes:
        """Return a key for signatures of one purpose, made of the tokens of admin scope; a random one without any."""
        held = b"".join(digest for digest, caller, _ in self._known if caller.scope == "admin")
        return hmac.digest(held or secrets.token_bytes(32), purpose.encode(), "sha256")

    def caller_of(self, authorization: bytes | None, *, only_long: bool = False) -> Caller | None:
        """Return the caller with this `Authorization` header, None for an unknown one.

        Without configured tokens, a header is ignored unless it has the form of one of ours. With `only_long`, tokens
        that could be guessed are unknown.
        """
        if authorization is None or (self._anybody and not self._known):
            return self._anybody
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return self._anybody
        given = _digest(authorization[len(_SCHEME) :].strip())
        found: Caller | None = None
        for digest, caller, is_long in self._known:  # all of them, so that the time taken reveals nothing
            if hmac.compare_digest(given, digest) and (is_long or not only_long):
                found = caller
        return found


def _caller(spec: TokenSpec) -> Caller:
    name = f"token-{hashlib.sha256(spec.token.encode()).hexdigest()[:12]}"
    return Caller(principal=spec.principal or name, scope=spec.scope, instances=spec.instances)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(b"toolcrib bearer\0" + token).digest()


def _shown(header: bytes) -> str:
    """Return the value of a header for a message: a proxy may have changed what the client sent."""
    return repr(header[:100].decode("latin-1"))


def _parse_host(value: str, default: int) -> tuple[str, int] | None:
    """Return name and port of an authority, None when it is not exactly that."""
    match = _HOST.fullmatch(value.lower())
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else default
    return (match["name"], port) if 0 < port < 65536 else None


class FailedAttempts:
    """Counts failures to authenticate by address: 20 at once are free, then ten a minute. Lives as long as the server.

    One number an address (the generic cell rate algorithm): the time at which its failures are forgotten. Each failure
    moves it 6 s on, and an address whose time is more than 19 of these ahead has to wait.

    Addresses are those of the connections: behind a proxy all clients share one. So the limit never refuses a token
    that is too long to be guessed; see `Authority.caller_of`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: OrderedDict[str, float] = OrderedDict()
        """Time at which the failures of an address expire."""
        self._reported = -math.inf

    def wait(self, scope: Mapping[str, Any]) -> float:
        """Return for how many seconds the sender of an ASGI request has no attempt left; 0 in most cases."""
        if not self._counted:
            return 0.0
        counted = self._counted.get(_address(scope), 0.0)
        return max(0.0, counted - self._clock() - (_AT_ONCE - 1) * _SECONDS)

    def add(self, scope: Mapping[str, Any]) -> None:
        """Count a failure of the sender; the log names an address that has no attempt left."""
        address, now = _address(scope), self._clock()
        self._counted[address] = max(now, self._counted.pop(address, now)) + _SECONDS
        if self.wait(scope) and now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            _logger.warning("many wrong tokens from %s: further ones are answered 429", address)
        if len(self._counted) > _ADDRESSES:
            self._counted.popitem(last=False)


def _address(scope: Mapping[str, Any]) -> str:
    """Return the address of the sender; of IPv6 the network that one subscriber has."""
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))


class RequestLimits:
    """Decides whether a request is let in, from its headers alone."""

    def __init__(
        self, authority: Authority, *, host: str, hosts: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        """`hosts` are further names that this server is reached by, `origins` web origins that may call it.

        On loopback the loopback names are accepted. Elsewhere, with no `hosts` given, every well-formed name is:
        there a token is asked for, and a page that rebinds a name does not know it.
        """
        self.authority = authority
        self._failed = FailedAttempts()
        self._any_host = not is_loopback(host) and not hosts
        names = {name.lower() for name in hosts}
        self._hosts = names | _LOOPBACK | {f"[{host}]" if ":" in host else host.lower()}
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._is_local = lru_cache(maxsize=256)(self._check_host)
        self._is_known = lru_cache(maxsize=256)(self._check_origin)

    @property
    def principal(self) -> str:
        """The name of the first caller there is, the local user where no token is asked for."""
        return self.authority.principal

    def admit(self, scope: Mapping[str, Any]) -> tuple[Caller, Headers]:
        """Return the caller of an ASGI request, and the headers by lower-case name. Raises `Refusal`."""
        headers = self.check(scope["headers"])
        caller = self.identify(headers.get(b"authorization"), scope)
        if caller is None:
            error = b', error="invalid_token"' if b"authorization" in headers else b""
            challenge = (b"www-authenticate", b'Bearer realm="toolcrib"' + error)
            raise Refusal(401, "Unauthorized: send the bearer token of this server", headers=[challenge])
        return caller, headers

    def identify(self, authorization: bytes | None, scope: Mapping[str, Any]) -> Caller | None:
        """Return the caller with this `Authorization` header, as `Authority.caller_of` does, and count failures.

        Raises `Refusal` for an unknown caller at an address that had too many.
        """
        wait = self._failed.wait(scope)
        caller = self.authority.caller_of(authorization, only_long=wait > 0)
        if caller is None and authorization is not None:
            if wait:
                seconds = math.ceil(wait)
                message = f"Too many wrong tokens from this address: try again in {seconds} s"
                raise Refusal(429, message, headers=[(b"retry-after", str(seconds).encode())])
            self._failed.add(scope)
        return caller

    def check(self, raw: Sequence[tuple[bytes, bytes]]) -> Headers:
        """Return the headers of a request from anybody, by lower-case name. Raises `Refusal`."""
        headers = dict(raw)
        if len(headers) != len(raw):
            _refuse_twins(raw)
        host = headers.get(b"host", b"")
        if not self._is_local(host):
            known = "this server does not answer to Host"
            raise Refusal(421, f"Misdirected request: {known} {_shown(host)} (its key `hosts`)")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_known(origin, host):
            raise Refusal(403, f"Forbidden: requests from Origin {_shown(origin)} are not accepted (its key `origins`)")
        return headers

    def _check_host(self, value: bytes) -> bool:
        parsed = _parse_host(value.decode("latin-1"), 80)
        return parsed is not None and (self._any_host or parsed[0] in self._hosts)

    def _check_origin(self, value: bytes, host: bytes) -> bool:
        """Accept our own origin, that is scheme, name and port of the Host itself, and those that were configured."""
        text = value.decode("latin-1").lower()
        if text in self._origins:
            return True
        match = _ORIGIN.fullmatch(text)
        if match is None:
            return False
        default = _PORTS[match["scheme"]]
        origin = _parse_host(match["rest"], default)
        return origin is not None and origin == _parse_host(host.decode("latin-1"), default)


def instance_of(caller: Caller, headers: Headers) -> str:
    """Return the instance that a request is made as; empty for none. Raises `Refusal` for one that is not theirs."""
    given = headers.get(_INSTANCE_HEADER)
    if given is None:
        return caller.own
    instance = given.decode("latin-1").strip()
    if not _INSTANCE.fullmatch(instance) or not caller.may_be(instance):
        raise Refusal(403, "Forbidden: this token is not for the instance that Toolcrib-Instance names")
    return instance


def _refuse_twins(raw: Sequence[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in raw:
        if name in seen and (name in _SINGLE or name.startswith(b"mcp-param-")):
            raise Refusal(400, f"Bad request: the header {name.decode('latin-1')} is given twice", code=HEADER_MISMATCH)
        seen.add(name)

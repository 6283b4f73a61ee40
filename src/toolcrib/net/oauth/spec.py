"""OAuth settings of one server that wants an access token: its key `auth`.

    auth: {type: oauth, client_id: "…", client_secret: "${SECRET}", scopes: [read]}
    auth: {type: oauth, grant: client_credentials, client_id: "…", private_key: "${PEM}"}
    auth: {type: none}

Without `auth`, and without an `Authorization` among its headers, a server gets a login as soon as it asks for one.
Claude Code's `oauth: {clientId, callbackPort}` and Cursor's `auth: {CLIENT_ID, CLIENT_SECRET}` are understood too.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, model_validator

from ...core.settings import Port, Scalar, Section, conflicts, expected, setting

Grant = Literal["authorization_code", "client_credentials"]
"""A person says yes in a browser, or the server knows us by our credentials alone."""

ClientAuth = Literal["none", "basic", "post", "private_key_jwt"]
"""Client authentication at the token endpoint."""

CLIENT_AUTHS: Final[tuple[ClientAuth, ...]] = ("none", "basic", "post", "private_key_jwt")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("https", "http") or not parts.hostname):
        raise expected("a URL")
    return text


def _document(text: str) -> str:
    parts = urlsplit(_url(text))
    if text and (parts.scheme != "https" or parts.path in ("", "/")):
        raise expected("an https:// URL with a path")
    return text


def _listed(value: Any) -> Any:
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list | tuple):
        raise expected("a list of scopes")
    return cast("Any", value)


def _one_word(text: str) -> str:
    if len(text.split()) != 1:
        raise expected("a scope of one word")
    return text


class OAuthSpec(Section):
    """The `auth` of one server. The defaults suit most servers: everything is discovered at the first login."""

    replaced_whole = True
    spellings: ClassVar[Mapping[str, str]] = {
        "clientId": "client_id",
        "clientSecret": "client_secret",
        "CLIENT_ID": "client_id",
        "CLIENT_SECRET": "client_secret",
        "callbackPort": "redirect_port",
        "scope": "scopes",
    }

    type: Literal["oauth", "none"] = "oauth"
    """`none` never logs in; a fixed token stands in `headers`."""
    grant: Grant = "authorization_code"
    """Grant type by which the access token is obtained."""
    client_id: Scalar = ""
    """Issued by the operator of the authorization server; empty registers a client at the first login."""
    client_secret: Scalar = setting("", secret=True)
    """Secret of a registered client."""
    client_auth: ClientAuth | None = None
    """None takes what the authorization server offers."""
    private_key: Scalar = setting("", secret=True)
    """PEM, of an EC P-256, an RSA or an Ed25519 key: for `private_key_jwt`."""
    client_metadata_url: Annotated[Scalar, AfterValidator(_document)] = ""
    """An `https` URL that is our client id where the authorization server takes such ids."""
    scopes: Annotated[tuple[Annotated[Scalar, AfterValidator(_one_word)], ...], BeforeValidator(_listed)] = ()
    """Requested instead of those that the server names; empty requests the latter."""
    issuer: Annotated[Scalar, AfterValidator(_url)] = ""
    """The only authorization server that counts; empty takes the first that the server names."""
    redirect_port: Port = 0
    """Port of the redirect URI on 127.0.0.1, for a client id that was registered with one; 0 is any."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return cast("Any", value)
        if value not in ("oauth", "none"):
            raise expected("a mapping with `type: oauth` or `type: none`")
        return {"type": value}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if found := list(self._conflicts()):
            raise conflicts(found)
        return self

    @property
    def is_registered(self) -> bool:
        """Whether our client id is configured."""
        return bool(self.client_id)

    def _conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the keys that cannot work together."""
        if self.type == "none":
            yield from (((name,), "has no effect with `type: none`") for name in self.model_fields_set - {"type"})
            return
        credentials = self.client_secret or self.private_key
        if self.grant == "client_credentials" and not (self.client_id and credentials):
            yield ("grant",), "client_credentials needs `client_id`, with `client_secret` or `private_key`"
        for name in ("client_secret", "client_auth"):
            if getattr(self, name) and not self.client_id:
                yield (name,), "has no effect without `client_id`"
        needed = {"basic": "client_secret", "post": "client_secret", "private_key_jwt": "private_key"}
        if self.client_auth in needed and not getattr(self, needed[self.client_auth]):
            yield ("client_auth",), f"{self.client_auth} needs `{needed[self.client_auth]}`"

"""OAuth settings of one server that wants an access token: made by the configuration, frozen, as old as its server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["CLIENT_AUTHS", "GRANTS", "ClientAuth", "Grant", "OAuthSpec"]

Grant = Literal["authorization_code", "client_credentials"]
"""A person says yes in a browser, or the server knows us by our credentials alone."""

ClientAuth = Literal["none", "basic", "post", "private_key_jwt"]
"""How we show who we are at the token endpoint."""

GRANTS: Final[tuple[Grant, ...]] = ("authorization_code", "client_credentials")
CLIENT_AUTHS: Final[tuple[ClientAuth, ...]] = ("none", "basic", "post", "private_key_jwt")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSpec:
    """The `auth` of one server. The defaults suit most servers: everything is discovered at the first login."""

    grant: Grant = "authorization_code"
    client_id: str = ""
    """Issued by the operator of the authorization server; empty registers a client at the first login."""
    client_secret: str = field(default="", repr=False)
    client_auth: ClientAuth | None = None
    """None takes what the authorization server offers."""
    private_key: str = field(default="", repr=False)
    """PEM, of an EC P-256, an RSA or an Ed25519 key: for `private_key_jwt`."""
    client_metadata_url: str = ""
    """An `https` URL that is our client id where the authorization server takes such ids."""
    scopes: tuple[str, ...] = ()
    """Asked for instead of what the server names; empty asks for what it names."""
    issuer: str = ""
    """The only authorization server that counts; empty takes the first that the server names."""
    redirect_port: int = 0
    """Where on 127.0.0.1 the browser comes back to, for a client id that was registered with a port; 0 is any."""

    @property
    def is_registered(self) -> bool:
        """Whether our client id is configured."""
        return bool(self.client_id)

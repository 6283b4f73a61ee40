"""An MCP server that nobody here wrote with an authorization server that nobody here wrote: FastMCP, over loopback.

Both run in this process, so that a test sees what the authorization server knows and can take it back. The person who
says yes is a browser without a screen: it follows the address it is given to wherever it leads.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from peers.serving import serving, tcp_socket
from rig import PATIENCE

if TYPE_CHECKING:
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider


@dataclass
class Browser:
    """Opens addresses and follows them; `visited` is where it was."""

    visited: list[str] = field(default_factory=list[str])

    async def show(self, url: str, issuer: str) -> None:
        """Go where `url` leads."""
        with anyio.CancelScope(shield=True):  # the window stays open when the login has what it wants
            async with httpx2.AsyncClient(
                follow_redirects=True, trust_env=False, verify=False, timeout=PATIENCE
            ) as client:
                self.visited += [url, str((await client.get(url)).url)]


@dataclass
class AuthPeer:
    """A running server behind a login."""

    url: str
    issuer: str
    accounts: "InMemoryOAuthProvider"
    gate: Any
    """What FastMCP has before its endpoint."""
    requests: list[tuple[str, Mapping[str, str]]]
    """Path with query, and headers, of everything that was asked."""

    def paths(self, prefix: str = "") -> list[str]:
        """Return what was asked for, in order."""
        return [path for path, _ in self.requests if path.startswith(prefix)]

    def forget_access(self) -> None:
        """Take every access token back; refresh tokens stay good."""
        self.accounts.access_tokens.clear()

    def require(self, *scopes: str) -> None:
        """Let nobody in whose token has not all of `scopes`."""
        self.gate.required_scopes = self.gate.challenge_scopes = list(scopes)

    def forget_everybody(self) -> None:
        """Take every token back."""
        self.accounts.access_tokens.clear()
        self.accounts.refresh_tokens.clear()


@asynccontextmanager
async def auth_peer() -> AsyncGenerator[AuthPeer]:
    """Run the server until the block ends."""
    # FastMCP takes a second to import: only where a test runs the server.
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
    from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions

    with tcp_socket() as listening:
        listening.bind(("127.0.0.1", 0))
        issuer = f"http://127.0.0.1:{listening.getsockname()[1]}"
        accounts = InMemoryOAuthProvider(
            base_url=issuer,
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["read", "write", "other"], default_scopes=["read"]
            ),
            revocation_options=RevocationOptions(enabled=True),
            required_scopes=["read"],
        )
        app = _server(accounts)
        gate = next(route.endpoint for route in app.routes if isinstance(route, Route) and route.path == "/mcp")
        peer = AuthPeer(url=f"{issuer}/mcp", issuer=f"{issuer}/", accounts=accounts, gate=gate, requests=[])
        async with serving(_noting(app, peer), listening=listening):
            yield peer


def _server(accounts: "InMemoryOAuthProvider") -> Starlette:
    from fastmcp import FastMCP  # see `auth_peer`
    from fastmcp.server.dependencies import get_access_token

    mcp = FastMCP("behind-a-login", auth=accounts)

    @mcp.tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @mcp.tool(annotations={"readOnlyHint": True})
    def tell_token() -> str:
        """Say what nobody should."""
        token = get_access_token()
        return token.token if token is not None else ""

    return mcp.http_app()


def _noting(app: ASGIApp, peer: AuthPeer) -> ASGIApp:
    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            query = scope["query_string"].decode()
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            peer.requests.append((scope["path"] + (f"?{query}" if query else ""), headers))
        await app(scope, receive, send)

    return noting

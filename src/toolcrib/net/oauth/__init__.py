"""OAuth 2.1 client, as far as MCP needs it (revisions 2025-06-18 to 2026-07-28, section Authorization).

`spec` configuration of one server · `metadata` challenges, well-known documents and addresses that may receive
credentials (RFC 9728, RFC 8414, OpenID Connect Discovery) · `client_assertion` client authentication with a signed JWT
(RFC 7523) · `authorization` request of a person in a browser (PKCE, `state`, `iss`) · `tokens` client registration and
the token endpoint (RFC 6749, 7591, 7009, 8707) · `flow` all of it in order · `stored_login` what is kept of it.

Nothing is imported here: a configuration needs `spec` only, and `flow` brings the HTTP client with it.
"""

__all__: list[str] = []

"""OAuth 2.1 client, as far as MCP needs it (revisions 2025-06-18 to 2026-07-28, section Authorization).

`login` settings of one server, and its stored login · `metadata` challenges, well-known documents and addresses that
may receive credentials (RFC 9728, RFC 8414, OpenID Connect Discovery) · `tokens` client registration, client
authentication (signed JWTs too) and the token endpoint (RFC 6749, 7591, 7009, 7523, 8707) · `flow` the request of a
person in a browser (PKCE and the checks of its answer), and the steps in order.

Nothing is imported here: a configuration needs `login` only, and `flow` loads the HTTP client.
"""

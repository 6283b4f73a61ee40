"""OAuth 2.1 as a client, the part of it that MCP wants (revisions 2025-06-18 to 2026-07-28, section Authorization).

`spec` what is configured · `challenge` what a refusal says · `addresses` where credentials may go · `metadata` and
`discovery` who may let us in (RFC 9728, RFC 8414, OpenID Connect Discovery) · `clients` who we are there (configured,
client id metadata document, RFC 7591) · `assertion` a signed word instead of a secret (RFC 7523) · `authorize` and
`receiver` asking a person (PKCE, `state`, `iss`) · `tokens` the token endpoint (RFC 6749, 8707, 7009) · `flow` all of
it in order · `login` what is kept of it.

Nothing is imported here: a configuration needs `spec` only, and `flow` brings the HTTP client with it.
"""

__all__: list[str] = []

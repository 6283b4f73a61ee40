"""MCP servers as sources of tools, over the wire of every revision from 2024-11-05 to 2026-07-28.

`spec` what is configured · `limits` how much of anything · `source` the face to the crib · `connection` and `breaker`
healing · `session` and `handshake` the eras · `link` what a transport gives, `stdio`, `http` and `sse` the three of
them · `lines`, `spill`, `wire` bytes into messages · `listing`, `clean`, `headers`, `cache` what is offered ·
`results` and `relay` what comes back and what is asked back · `process`, `pipes`, `reaper`, `stderr` the child.

Nothing is imported here: a configuration needs `spec` only, and `source` brings the HTTP client with it.
"""

__all__: list[str] = []

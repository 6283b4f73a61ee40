"""The MCP server: the protocol of both eras, independent of how bytes travel.

`wire` is the JSON-RPC text, `legacy` the revisions with a handshake and a session, `modern` the stateless revision of
2026-07-28, `service` what all connections share, `connection` the pair of pipes. HTTP is `toolcrib.server.http`.
"""

"""Authorization at MCP servers.

`access` tokens of requests, and the answer to a refusal · `login_store` where logins are kept. The protocol is in
`net.oauth`; this is the part that lives as long as a server does.
"""

"""Outbound HTTP: one guarded client for every address that another party may have chosen.

`guard` addresses and hosts that may be reached, checked below the connection pool · `client` requests with limits, and
redirects checked one by one · `urls` their origins · `proxy` requests of sandboxed commands · `oauth` access tokens.

Nothing is imported here: a configuration needs `guard` only, and `client` brings the HTTP client with it.
"""

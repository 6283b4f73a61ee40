"""MCP client: transports, handshake and requests of every revision from 2024-11-05 to 2026-07-28.

    sources.mcp.source.McpSource        one a configured server; decides whether a broken call is made again
      connection.Connection             one task a server: makes links, one after another, with growing pauses
        stdio, http, sse                a `transport.Link` each: one process, or one URL (`http_exchange`)
        handshake.negotiate             the era of the link, once
        session.ClientSession           lists, calls and tasks on one link; ends with it
      server_requests.Relay             what the server sends by itself: to the client of the call it belongs to
      features.RemoteFeatures           resources and prompts

All of it runs on the crib's event loop; files of large answers are converted in worker threads.
"""

"""MCP server: parses, frames and tracks the requests of clients. `toolcrib.server` passes in what calls the crib.

The way of one `tools/call`; the answer goes back through the `Exchange` that was made for the request:

    stdio, daemon      connection.Connection.feed          one message a line
    HTTP               http_endpoint.HttpEndpoint.serve    one message a POST
                           │  jsonrpc.parse
    era of the request     legacy.LegacySession.request    revisions with `initialize`
                           modern.ModernServer.request     2026-07-28: nothing but the request
                           │  dispatch.dispatch: table of methods
    LegacyClient.call, ModernClient.call                   calls.read_call: shape of the parameters
                           │
    service.Service.run    admission: a place among the running calls
                           │
    backend.BackendSession.call                            implemented by `toolcrib.server.backend` with a crib

Everything here runs on the event loop of the process that serves; no function blocks, and no object is shared with a
thread.
"""

"""Ways in, above the root: MCP over HTTP and stdio, tools by REST.

`backend` implements the protocols of `mcp.server.backend` with a crib; `stdio` and `http` carry the bytes:

    toolcrib serve --http         http.serve_http     cli.processes.server
    toolcrib serve --no-daemon    stdio.serve_stdio   cli.processes.server
    toolcrib serve                stdio.converse      the local daemon (`toolcrib.daemon`), one a connection
    a program in the sandbox      stdio.converse      program_session.serve_program

This package is light to import; each module loads its dependencies on demand.
"""

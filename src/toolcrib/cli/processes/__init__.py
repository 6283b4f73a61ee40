"""Processes that the command line becomes or starts, and the requests between them.

    toolcrib serve (stdio)   stdio_server, the shim ──┐
    toolcrib hook claude     hook ────────────────────┼──> daemon: one for a configuration, started by the first
    toolcrib COMMAND         daemon_requests ─────────┘
    toolcrib serve --http    server, without a daemon

What is on the left lives for a moment or loads next to nothing: the daemon has the program and the configuration
loaded. Each of them does its work itself where no daemon answers; only for a shim one is started.
"""

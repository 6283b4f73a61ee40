"""The local daemon that serves all stdio clients of a user, and the shim that joins it.

A client starts `toolcrib serve` for each of its windows. Each would have servers of its own; instead each is a shim of
a few milliseconds, and one daemon for each configuration has the servers:

    client ─pipe─ shim ─┐
    client ─pipe─ shim ─┼─ socket ─ daemon: one Toolcrib, one process a server
    toolcrib log ───────┘           (a command of the command line, carried out by the daemon)

    rendezvous        where they meet (directory, socket, lock), and what they say first
    shim              the client's process; `session_record`: what it needs to go on at another daemon
    daemon            the daemon's process; `listener`: admits clients, rests, ends
    control, commands, caller    status, end, and whole commands; `running_servers`: its servers for such a command
"""

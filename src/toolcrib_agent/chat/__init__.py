"""`toolcrib chat`: a conversation in a terminal.

    command ── arguments ──> setup.open_chat ── ChatSession ──> setup.converse: welcome, then
    loop.Loop: PromptInput ── line ──┬── /command ──> commands, commands_set
        ^                            └── prompt ────> Agent.run ── events ──> TurnView ──> Screen
        └──────────────── saved after each turn (Chats)             └── Asker asks in between

All of it runs on one event loop. `-p` takes the way of `command.run_script` instead: one run, no keyboard, no screen.
"""

"""Values and interfaces that every package above uses; of Toolcrib, core imports `errors` alone.

    one call           `call`, `context`, `result`, `permission`, `call_guards`, `memory`
    what it is about   `tool`, `versions`, `schema`, `similar`, `json`, `document_tree`
    who makes it       `session`, `taint`, `budget`, `kept_secrets`; as it is stored: `saved_call`
    services           `host`, `records`, `shared_storage`, `workspace`, `sandbox`, `schedules`, `apis`: protocols that
                       the packages above implement
    guests             `contributions`, `console_view`, `entry_points`

Values are frozen and do no I/O; `session` is the one that changes. `files`, `awaited_files`, `entry_points` and
`processes` look at the machine.
"""

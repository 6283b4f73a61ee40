"""Programs that run inside of the sandbox: they see only Python itself, and no module of ours imports them."""

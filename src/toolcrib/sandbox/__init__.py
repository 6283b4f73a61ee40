"""Sandbox of commands: bubblewrap where this machine has it, none where the operator accepts that, else no commands."""

"""Policy: rules that name a tool and its arguments, modes for calls that no rule names, and approvals by people."""

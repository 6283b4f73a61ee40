"""Files, processes and threads of this machine, for the floors above."""

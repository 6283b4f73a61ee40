"""The local daemon that serves all stdio clients of a user, and the shim that joins it."""

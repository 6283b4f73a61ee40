"""Dispatch of one call: a list of steps, and the only place where a tool's body is entered."""

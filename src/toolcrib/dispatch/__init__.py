"""How one call runs: a list of steps, and the one place where a tool's body is entered."""

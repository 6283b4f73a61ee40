"""Shell commands as rules see them: every command that a text can run, and its undecidable parts."""

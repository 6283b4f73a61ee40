"""What a server of a project runs: its files, pinned by content when the user confirms the project."""

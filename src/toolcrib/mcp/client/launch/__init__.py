"""Files that a server of a project runs, pinned by content when the user confirms the project."""

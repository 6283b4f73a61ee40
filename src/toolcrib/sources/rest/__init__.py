"""Tools that are registered while everything runs: HTTP endpoints for one instance each."""

__all__: list[str] = []

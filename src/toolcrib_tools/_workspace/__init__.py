"""What the tools that work on files share: places, text, patterns, and finding files. No tools in here."""

__all__: list[str] = []

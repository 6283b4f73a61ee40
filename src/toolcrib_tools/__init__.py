"""The tools that come with Toolcrib. They are guests: they import `toolcrib.plugin` and arrive by entry point."""

__all__: list[str] = []

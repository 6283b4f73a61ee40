"""Built-in tools. They import `toolcrib.plugin` only and are loaded by entry point."""

__all__: list[str] = []

TOOLS_ARE_STATIC = True

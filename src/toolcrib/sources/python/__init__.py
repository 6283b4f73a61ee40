"""Python functions as tools: declared with `@tool` or plain, bound by their signature, run on the loop or in threads.

Loading this package loads no pydantic; adding the first function does.
"""

from .declaration import Declaration, Setting, ToolOptions, tool
from .source import PythonSource

__all__ = ["Declaration", "PythonSource", "Setting", "ToolOptions", "tool"]

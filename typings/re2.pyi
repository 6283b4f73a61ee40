"""google-re2 has no types of its own."""

from typing import Any

def __getattr__(name: str) -> Any: ...

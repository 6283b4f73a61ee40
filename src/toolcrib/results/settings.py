"""Settings of results: how much of long ones is kept, and for how long."""

from typing import Annotated, Final

from ..core.settings import Duration, Section, Size, at_most, setting

_MOST_WHOLE: Final = 16 * 1024 * 1024
"""As much as is parsed of one message of a server (`mcp.client.spec.McpLimits.inline_bytes`)."""


class RetentionSettings(Section):
    """Size limits of whole results, and size and age limits of stored ones."""

    pass_whole: Annotated[Size, at_most(_MOST_WHOLE, "16MiB")] = setting(1024 * 1024, changed_by="tool")
    """Bytes of text, and as many of structured content, up to which a result for an MCP client passes unchanged."""
    keep: Duration = setting(7 * 24 * 3600.0, changed_by="tool")
    """Time that an output is kept after it was last written."""
    quota: Size = setting(2 * 1024 * 1024 * 1024, changed_by="tool")
    """Bytes of all outputs, in blocks of 4 KiB. When full, the principal that uses most makes room for the others."""
    each: Size = setting(256 * 1024 * 1024, changed_by="tool")
    """Bytes of one output."""

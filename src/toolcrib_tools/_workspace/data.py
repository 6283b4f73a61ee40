"""Files of the workspace that hold data: JSON, or YAML without its traps."""

from __future__ import annotations

import json
from typing import Any, Final

from toolcrib.plugin import ToolFailure, UsageError, Workspace, parse_yaml

from .place import file_at

__all__ = ["ENDINGS", "data_at"]

ENDINGS: Final = (".json", ".yaml", ".yml")
_MOST_BYTES: Final = 1 << 20


async def data_at(workspace: Workspace, path: str) -> Any:
    """Return what a JSON or YAML file holds.

    Raises `ToolFailure`: for a file that is not there or of another kind, and with the line for one that is broken.
    """
    entry = await file_at(workspace, path)
    if not entry.path.endswith(ENDINGS):
        raise ToolFailure("invalid_arguments", f"{entry.path!r} is no file of {', '.join(ENDINGS)}")
    content = await workspace.read(entry.path, limit=_MOST_BYTES)
    try:
        text = content.decode("utf-8-sig")
        return json.loads(text) if entry.path.endswith(".json") else parse_yaml(text, entry.path).plain()
    except UnicodeDecodeError as error:
        raise ToolFailure("tool_error", f"{entry.path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise ToolFailure("tool_error", f"{entry.path}:{error.lineno}: this is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ToolFailure("tool_error", f"{entry.path} is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise ToolFailure("tool_error", f"{entry.path} cannot be read: {error}") from error
    except UsageError as error:
        raise ToolFailure("tool_error", str(error)) from error

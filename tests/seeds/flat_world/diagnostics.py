"""diagnostics: what the compiler says of Python files."""

from __future__ import annotations

import warnings

from toolcrib.sources.yaml.run_code import ToolContext

from .files import inside, text_files

__all__ = ["get_diagnostics"]


def get_diagnostics(context: ToolContext, path: str = ".") -> str:
    found: list[str] = []
    for file in text_files(inside(context, path)):
        if file.suffix != ".py":
            continue
        name = file.relative_to(context.call.cwd).as_posix()
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                compile(file.read_bytes(), name, "exec")
            found += [f"{name}:{warning.lineno}: warning: {warning.message}" for warning in said]
        except SyntaxError as error:
            found.append(f"{name}:{error.lineno}: error: {error.msg}")
    return "\n".join(found) or "No problems."

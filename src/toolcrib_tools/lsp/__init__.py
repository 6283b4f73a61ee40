"""Language server tools: definitions, references, types, diagnostics, renames and fixes by meaning, not by name.

Any server that speaks the Language Server Protocol, as the configuration names it under `tools.lsp`.
"""

from .changes import lsp_apply_code_action, lsp_get_code_actions, lsp_rename_symbol
from .queries import (
    lsp_document_symbols,
    lsp_find_references,
    lsp_get_diagnostics,
    lsp_goto_definition,
    lsp_hover,
    lsp_workspace_symbols,
)

__all__ = [
    "lsp_apply_code_action",
    "lsp_document_symbols",
    "lsp_find_references",
    "lsp_get_code_actions",
    "lsp_get_diagnostics",
    "lsp_goto_definition",
    "lsp_hover",
    "lsp_rename_symbol",
    "lsp_workspace_symbols",
]

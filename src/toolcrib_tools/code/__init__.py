"""Code tools: symbols, references, structure and diagnostics, over a project index that follows the files."""

from .diagnostics import get_diagnostics
from .structure import ast_search
from .symbols import find_references, knowledge_search, project_knowledge_search, symbols

__all__ = [
    "ast_search",
    "find_references",
    "get_diagnostics",
    "knowledge_search",
    "project_knowledge_search",
    "symbols",
]

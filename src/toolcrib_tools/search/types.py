"""File types by name pattern, for a search in one language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["TYPES", "type_globs"]

TYPES: Final[Mapping[str, str]] = {
    "c": "*.{c,h}",
    "cpp": "*.{cc,cpp,cxx,h,hh,hpp,hxx,inl}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "docker": "{*.dockerfile,Dockerfile*}",
    "go": "*.go",
    "html": "*.{htm,html,xhtml}",
    "java": "*.java",
    "js": "*.{cjs,js,jsx,mjs,vue}",
    "json": "*.{json,jsonc,jsonl}",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{GNUmakefile,Makefile,makefile,*.mk}",
    "md": "*.{markdown,md,mdx}",
    "php": "*.php",
    "proto": "*.proto",
    "py": "*.{py,pyi}",
    "ruby": "{*.rb,Gemfile,Rakefile}",
    "rust": "*.rs",
    "scala": "*.scala",
    "sh": "*.{bash,sh,zsh}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{cts,mts,ts,tsx}",
    "txt": "*.{rst,txt}",
    "xml": "*.{svg,xml,xsd,xsl}",
    "yaml": "*.{yaml,yml}",
}
_ALIASES: Final[Mapping[str, str]] = {
    "bash": "sh",
    "c++": "cpp",
    "csharp": "cs",
    "dockerfile": "docker",
    "javascript": "js",
    "kt": "kotlin",
    "makefile": "make",
    "markdown": "md",
    "python": "py",
    "rb": "ruby",
    "rs": "rust",
    "shell": "sh",
    "typescript": "ts",
    "yml": "yaml",
}


def type_globs(name: str) -> str | None:
    """Return the pattern of a type's names; None for a type that there is not."""
    lowered = name.lower().lstrip(".")
    return TYPES.get(_ALIASES.get(lowered, lowered))

"""THE list: kinds of sources under `sources.KIND.NAME` of a configuration. Adding one is one file, and one line here.

A file with a kind has `KIND = SourceKind(settings=…, make=…)`. Every start that reads a configuration imports it;
`make` imports what is slow to load. MCP servers, APIs, catalogs and skills have readers of their own in `config`.
"""

# pyright: reportUnusedImport=false

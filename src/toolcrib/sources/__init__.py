"""Sources of tools, one file or folder a kind. Kinds do not import one another.

    mcp           a configured MCP server                 python     functions, modules, objects; installed guests
    openapi       an HTTP API by its description          plugins    tools with a lifecycle
    yaml          a catalog: commands, endpoints, code    skills     folders with a SKILL.md

`source` is the interface that all of them have, `combinators` give one fewer tools or other names, `kinds` is the list
of those with entries under `sources` of a configuration, `function_run` runs Python functions for several kinds.
"""

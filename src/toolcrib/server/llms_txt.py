"""`/llms.txt`: for a program with a model that is given the address of a gateway and nothing else.

The form is that of llmstxt.org: a title, a summary, lists of links. Links are relative: a proxy may serve it all below
a prefix. The page is public, as probes are, and says nothing of what is behind the gateway.
"""

from typing import Final

LLMS_TXT: Final = """\
# Toolcrib

> A gateway to tools, for agents and programs. Every call passes validation, permission and a record.

Requests carry `Authorization: Bearer TOKEN`, unless the gateway serves its own machine alone and has no token.

## MCP

- [mcp](mcp): Streamable HTTP, revisions up to 2026-07-28. Find a tool with `search_tools`, run it with `call_tool`.

## REST

- [v1/tools](v1/tools): definitions of tools. `POST v1/tools/NAME` with the arguments as a JSON object calls one.
- [v1/tools/openapi.json](v1/tools/openapi.json): the same as OpenAPI 3.1.
- [openapi.json](openapi.json): registration of tools, for tokens of admin scope.

## State

- [healthz](healthz): 200 while the process serves.
- [readyz](readyz): 200 while calls are taken and recorded.
"""

"""HTTP APIs as tools, from their OpenAPI 3.0 to 3.2 description, or one of Swagger 2.0.

`spec` what is configured · `fetch`, `document`, `yamltext`, `swagger` bytes into data · `refs` references · `schema`
schemas of either version into JSON Schema 2020-12 · `parameters`, `samples` the arguments · `operation` what becomes
of them · `names`, `convert` all operations into tools · `cache` what was converted before · `targets`, `told`
operations by method and path, and for readers · `serialize`, `body`, `request`, `auth` a call as HTTP ·
`answer`, `paging` what comes back · `source` the face to the crib.

Only `document` is imported here: a configuration needs `spec` only, and `source` brings the HTTP client with it.
"""

from .description import is_openapi

__all__ = ["is_openapi"]

"""HTTP APIs as tools, from their OpenAPI 3.0 or 3.1 description.

`spec` what is configured · `fetch`, `document`, `yamltext` bytes into data · `refs` references · `schema` schemas of
either version into JSON Schema 2020-12 · `parameters`, `samples` the arguments · `operation` what becomes of them ·
`names`, `convert` all operations into tools · `cache` what was converted before · `serialize`, `body`, `request`,
`auth`, `curl` a call as HTTP · `answer`, `paging` what comes back · `source` the face to the crib.

Only `document` is imported here: a configuration needs `spec` only, and `source` brings the HTTP client with it.
"""

from .document import is_openapi

__all__ = ["is_openapi"]

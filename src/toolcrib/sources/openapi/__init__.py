"""HTTP APIs as tools, from their OpenAPI 3.0 to 3.2 description, or one of Swagger 2.0.

`spec` configuration of one API · `description` the description from a file or a URL · `schemas` its
schemas as JSON Schema 2020-12 · `parameters` arguments of an operation · `convert` operations as tools, and
earlier conversions · `endpoints` operations by method and path, for readers · `request`, `auth` one call as
HTTP · `response` its result and next page · `source` the API as a `Source`.

Only `description` is imported here: a configuration needs `spec` only, and `source` brings the HTTP client with it.
"""

from .description import is_openapi

__all__ = ["is_openapi"]

"""HTTP APIs as tools, from their OpenAPI 3.0 to 3.2 description, or one of Swagger 2.0.

`spec` configuration of one API · `description` the description from a file or a URL, by `yaml_reader` and `swagger`
(version 2.0 as 3.0) · `schemas` its schemas as JSON Schema 2020-12 · `parameters` arguments of an operation ·
`convert` operations as tools, and earlier conversions · `endpoints` operations by method and path, for readers ·
`request`, `auth` one call as HTTP · `response` its result and next page · `source` the API as a `Source`.

Nothing is imported here: a configuration needs `spec` only, and the others bring the HTTP client with them.
"""

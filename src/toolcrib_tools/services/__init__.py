"""HTTP APIs as services: described by OpenAPI, a Bruno collection or by hand; listed, previewed and called."""

from .bruno import import_bruno_collection
from .credentials import configure_service_auth
from .definitions import list_schemas, remove_service, save_schema
from .discovery import discover_service
from .endpoints import get_endpoint_schema, list_endpoints
from .requests import call_service, preview_request

__all__ = [
    "call_service",
    "configure_service_auth",
    "discover_service",
    "get_endpoint_schema",
    "import_bruno_collection",
    "list_endpoints",
    "list_schemas",
    "preview_request",
    "remove_service",
    "save_schema",
]

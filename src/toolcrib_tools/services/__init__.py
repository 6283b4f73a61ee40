"""HTTP APIs as services: described by OpenAPI, a Bruno collection or by hand; listed, previewed and called."""

from .bruno import import_bruno_collection
from .collection import configure_service_auth
from .definitions import discover_service, list_schemas, remove_service, save_schema
from .endpoints import call_service, get_endpoint_schema, list_endpoints, preview_request

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

"""HTTP APIs as services: described by OpenAPI, a Bruno collection or by hand, looked through, previewed and called."""

from .authorizing import configure_service_auth
from .calling import call_service, preview_request
from .describing import list_schemas, remove_service, save_schema
from .discovering import discover_service
from .importing import import_bruno_collection
from .looking import get_endpoint_schema, list_endpoints

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

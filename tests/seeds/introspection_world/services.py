"""Pages, and services that are called by their endpoints."""

from __future__ import annotations

from toolcrib.errors import ToolFailure

from .state import WORLD, Record, found

__all__ = [
    "call_service",
    "configure_service_auth",
    "discover_service",
    "fetch_url",
    "fetch_url_post",
    "get_endpoint_schema",
    "import_bruno_collection",
    "list_endpoints",
    "list_schemas",
    "preview_request",
    "save_schema",
]


def fetch_url(url: str, mode: str = "text", headers: Record | None = None, no_cache: bool = False) -> Record:
    if url not in WORLD.pages:
        raise ToolFailure("tool_error", f"404 for {url}")
    text = WORLD.pages[url]
    shown = f"<p>{text}</p>" if mode == "html" else text
    return {"url": url, "content": shown, "sent": headers or {}, "from_cache": not no_cache}


def fetch_url_post(url: str, body: str, headers: Record | None = None) -> Record:
    WORLD.posted.append({"url": url, "body": body, "headers": headers or {}})
    return {"url": url, "status": 201}


def discover_service(source: str, alias: str) -> Record:
    endpoints: Record = {name: {} for name in source.split(",") if name}
    WORLD.services[alias] = {"endpoints": endpoints, "auth": {"kind": "none"}, "schemas": {}}
    return {"service": alias, "endpoints": len(endpoints)}


def _service(name: str) -> Record:
    return found(WORLD.services, name, "service")


def list_endpoints(service: str) -> Record:
    return {"service": service, "endpoints": list(_service(service)["endpoints"])}


def get_endpoint_schema(service: str, endpoint: str) -> Record:
    found(_service(service)["endpoints"], endpoint, "endpoint")
    return {"endpoint": endpoint, "schema": _service(service)["schemas"].get(endpoint, {})}


def preview_request(method: str, service: str, endpoint: str, body: Record | None = None) -> Record:
    found(_service(service)["endpoints"], endpoint, "endpoint")
    auth = _service(service)["auth"]["kind"]
    return {"method": method.upper(), "url": f"https://{service}/{endpoint}", "body": body or {}, "auth": auth}


def call_service(method: str, service: str, endpoint: str, body: Record | None = None) -> Record:
    request = preview_request(method, service, endpoint, body)
    WORLD.posted.append(request)
    return {"status": 200, "request": request}


def save_schema(service: str, endpoint: str, schema: Record) -> Record:
    _service(service)["schemas"][endpoint] = schema
    return {"saved": f"{service}/{endpoint}"}


def list_schemas(service: str = "") -> Record:
    chosen = [service] if service else list(WORLD.services)
    return {"schemas": [f"{name}/{endpoint}" for name in chosen for endpoint in _service(name)["schemas"]]}


def import_bruno_collection(path: str) -> Record:
    names = [line.strip() for line in WORLD.text(path).splitlines() if line.strip()]
    return discover_service(",".join(names), path.rpartition("/")[2])


def configure_service_auth(service: str, kind: str, value: str = "") -> Record:
    _service(service)["auth"] = {"kind": kind, "value": value}
    return {"service": service, "auth": kind}

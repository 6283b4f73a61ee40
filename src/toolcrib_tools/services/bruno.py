"""Bruno collections as services: the conversion to OpenAPI, and the import tool."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, as_list, as_mapping

from .._records import names_of
from .._workspace.place import entry_at, workspace_of, workspace_tool
from .bruno_format import Bru, Pair, read_bru
from .collection import Alias, Service, base_of, keep
from .definitions import summary_of

_VARIABLE: Final = re.compile(r"\{\{\s*+([^{}\s](?:[^{}]*[^{}\s])?)\s*+\}\}")
_METHODS: Final = ("get", "post", "put", "patch", "delete", "head", "options")
_KINDS: Final = ("http", "graphql", "http-request", "graphql-request")
_SECRET: Final = re.compile(
    r"auth|cookie|pass(word|wd|phrase)|secret|token|api.?key|access.?key|credential", re.IGNORECASE
)
_TURNS: Final = 5
"""Rounds of substitution of variables by variables."""
_PUT: Final = 100_000
"""Characters that variables may add to one text: collections come from outside and may nest variables without end."""
_OURS: Final = ("accept", "content-type", "content-length", "host", "user-agent")
_MEDIA: Final[Mapping[str, str]] = {
    "text": "text/plain",
    "xml": "application/xml",
    "sparql": "application/sparql-query",
    "file": "application/octet-stream",
}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_WORDS: Final = re.compile(r"[^A-Za-z0-9_-]+")

_MOST_FILES: Final = 5_000
_MOST_BYTES: Final = 1 << 20
"""Bytes of one file."""
_PROBLEMS: Final = 20


class BrunoRequest(Struct, frozen=True, kw_only=True):
    """A request of a collection, with what its folders say."""

    file: str
    """Relative to the collection."""
    bru: Bru
    folders: Sequence[Bru] = ()
    """Contents of `folder.bru` in the enclosing folders, the outermost first."""


class Collection(Struct, frozen=True, kw_only=True):
    """A collection as it was read."""

    name: str
    root: Bru = field(default_factory=Bru)
    """Content of `collection.bru`."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the chosen environment."""
    requests: Sequence[BrunoRequest] = ()


def to_openapi(collection: Collection, base_url: str) -> tuple[dict[str, Any], list[str]]:
    """Return the description of a collection, and what of it cannot be taken.

    `base_url` stands for the variable that addresses begin with; empty takes what the variables say, and of several
    origins the one that most requests go to.
    """
    return _Description(collection, base_url).made()


class _Call(Struct, frozen=True, kw_only=True):
    """A request whose address is known."""

    request: BrunoRequest
    method: str
    origin: str
    path: str
    variables: Mapping[str, str]


class _Description:
    """One run over one collection."""

    def __init__(self, collection: Collection, base_url: str) -> None:
        self._collection = collection
        self._base = base_url.rstrip("/")
        self._problems: list[str] = []
        self._schemes: dict[str, dict[str, Any]] = {}
        self._taken: set[str] = set()

    def made(self) -> tuple[dict[str, Any], list[str]]:
        calls = [call for request in self._collection.requests if (call := self._call(request)) is not None]
        origin = self._base or self._commonest(calls)
        paths: dict[str, dict[str, Any]] = {}
        for call in calls:
            if call.origin != origin:
                self._problems.append(f"{call.request.file}: not offered: it goes to {call.origin}, not to {origin}")
                continue
            item = paths.setdefault(call.path, {})
            if call.method in item:
                self._again(item[call.method], call)
            else:
                item[call.method] = self._operation(call)
        document: dict[str, Any] = {
            "openapi": "3.1.0",
            "info": {"title": self._collection.name, "description": self._collection.root.texts.get("docs", "")},
            "servers": [{"url": origin}] if origin else [],
            "paths": paths,
        }
        if self._schemes:
            document["components"] = {"securitySchemes": self._schemes}
        return document, self._problems

    def _call(self, request: BrunoRequest) -> _Call | None:
        """Return the target of a request; None, and a problem, if it cannot be determined."""
        bru = request.bru
        method = next((name for name in _METHODS if name in bru.pairs), "")
        if not method and "http" in bru.pairs:
            method = bru.get("http", "method").lower()
        kind = bru.get("meta", "type") or "http"
        url = bru.get(method or "http", "url")
        if kind not in _KINDS or method not in _METHODS or not url:
            what = "it has no method and address that are known" if kind in _KINDS else f"it is a request of {kind}"
            self._problems.append(f"{request.file}: not offered: {what}")
            return None
        variables = self._variables(request)
        try:
            origin, path = self._placed(url.split("?", 1)[0].split("#", 1)[0], variables)
        except ValueError as error:
            self._problems.append(f"{request.file}: not offered: {error}")
            return None
        return _Call(request=request, method=method, origin=origin, path=path, variables=variables)

    def _placed(self, url: str, variables: Mapping[str, str]) -> tuple[str, str]:
        """Return the origin and the path of an address. Raises `ValueError` if a variable is missing."""
        leading = _VARIABLE.match(url)
        if self._base and leading is not None and not _filled(leading[0], {}).startswith("http"):
            return self._base, _template(_filled(url[leading.end() :], variables))
        whole = _filled(url, variables)
        if missing := _VARIABLE.match(whole):
            raise ValueError(f"its address needs the variable {missing[1]}: name an environment, or give base_url")
        whole = whole if re.match(r"https?://", whole, re.IGNORECASE) else f"http://{whole}"
        if self._base and whole.startswith(f"{self._base}/"):
            return self._base, _template(whole.removeprefix(self._base))
        parts = urlsplit(_VARIABLE.sub(r"{\1}", whole))
        if not parts.hostname or "{" in parts.netloc:
            raise ValueError(f"{whole[:200]!r} is not an address")
        return f"{parts.scheme}://{parts.netloc}", _template(parts.path)

    def _variables(self, request: BrunoRequest) -> Mapping[str, str]:
        """Return the values of variables in a request: its own, its folders', the environment's, the collection's."""
        named = [
            self._collection.root.mapping("vars:pre-request"),
            self._collection.variables,
            *(folder.mapping("vars:pre-request") for folder in request.folders),
            request.bru.mapping("vars:pre-request"),
        ]
        merged = {name: value for variables in named for name, value in variables.items()}
        return {name: value for name, value in merged.items() if not _SECRET.search(name)}

    @staticmethod
    def _commonest(calls: Iterable[_Call]) -> str:
        counted = Counter(call.origin for call in calls)
        return counted.most_common(1)[0][0] if counted else ""

    def _operation(self, call: _Call) -> dict[str, Any]:
        bru = call.request.bru
        name = bru.get("meta", "name") or call.request.file.rpartition("/")[2].removesuffix(".bru")
        made: dict[str, Any] = {"operationId": self._identity(name, call), "summary": name}
        folder = call.request.file.rpartition("/")[0]
        made |= {"tags": [folder]} if folder else {}
        made |= {"description": bru.texts["docs"]} if bru.texts.get("docs") else {}
        made["parameters"] = [*self._placed_parameters(call), *self._queried(call), *self._headed(call)]
        if (body := self._body(call)) is not None:
            made["requestBody"] = {"content": dict([body])}
        made |= self._security(call)
        made["responses"] = {"default": {"description": "What the service answers."}}
        return made

    def _identity(self, name: str, call: _Call) -> str:
        base = _WORDS.sub("_", name).strip("_").lower() or call.method
        if base in self._taken:
            base = _WORDS.sub("_", call.request.file.removesuffix(".bru")).strip("_").lower()
        self._taken.add(base)
        return base

    def _again(self, operation: dict[str, Any], call: _Call) -> None:
        """Take the body of a second request to the same endpoint as another example."""
        body = self._body(call)
        content = operation.get("requestBody", {}).get("content", {})
        if body is not None and body[0] in content and "example" in body[1] and "example" in content[body[0]]:
            first = content[body[0]]
            first["examples"] = {"1": {"value": first.pop("example")}, "2": {"value": body[1]["example"]}}
        reason = f"the same endpoint as {operation['summary']!r}, which is offered"
        self._problems.append(f"{call.request.file}: {reason}")

    @staticmethod
    def _placed_parameters(call: _Call) -> Iterable[dict[str, Any]]:
        values = call.request.bru.mapping("params:path")
        for name in re.findall(r"\{([^{}/]+)\}", call.path):
            example = _filled(values.get(name, ""), call.variables)
            made = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            yield made | ({"example": example} if _is_known(example, name) else {})

    @staticmethod
    def _queried(call: _Call) -> Iterable[dict[str, Any]]:
        bru = call.request.bru
        pairs = bru.pairs.get("params:query") or bru.pairs.get("query")
        if pairs is None:
            url = bru.get(call.method, "url") or bru.get("http", "url")
            pairs = [Pair(key=key, value=value) for key, value in parse_qsl(url.partition("?")[2], True)]
        for name, pair in {pair.key: pair for pair in pairs if pair.key}.items():
            value = _filled(pair.value, call.variables)
            made = {"name": name, "in": "query", "schema": {"type": "string"}}
            yield made | ({"example": value} if pair.enabled and _is_known(value, name) else {})

    def _headed(self, call: _Call) -> Iterable[dict[str, Any]]:
        """Yield the headers; one with a value is sent unless another is given."""
        levels = [self._collection.root, *call.request.folders, call.request.bru]
        pairs = {pair.key.lower(): pair for bru in levels for pair in bru.pairs.get("headers", [])}
        for name, pair in pairs.items():
            if name in _OURS or _SECRET.search(name):
                continue
            if not _TOKEN.fullmatch(name):
                self._problems.append(f"{call.request.file}: {pair.key!r} is not a header name: it is left out")
                continue
            value = _filled(pair.value, call.variables)
            made = {"name": pair.key, "in": "header", "schema": {"type": "string"}}
            yield made | ({"x-send": value} if pair.enabled and _is_known(value, name) else {})

    def _body(self, call: _Call) -> tuple[str, dict[str, Any]] | None:
        """Return the media type of a body and what it looks like."""
        bru = call.request.bru
        mode = bru.get(call.method, "body") or bru.get("http", "body")
        text = _filled(bru.texts.get(f"body:{mode}", bru.texts.get("body", "")), call.variables)
        match mode:
            case "" | "none":
                return None
            case "json":
                return "application/json", _of_json(text)
            case "graphql":
                given = _of_json(_filled(bru.texts.get("body:graphql:vars", ""), call.variables)).get("example", {})
                fields = {"query": {"type": "string"}, "variables": {"type": "object"}}
                schema = {"type": "object", "properties": fields, "required": ["query"]}
                return "application/json", {"schema": schema, "example": {"query": text, "variables": given}}
            case "formUrlEncoded" | "form-urlencoded":
                return "application/x-www-form-urlencoded", _of_pairs(bru.pairs.get("body:form-urlencoded", []), call)
            case "multipartForm" | "multipart-form":
                return "multipart/form-data", _of_pairs(bru.pairs.get("body:multipart-form", []), call)
            case _:
                return _MEDIA.get(mode, "text/plain"), {"schema": {"type": "string"}}

    def _security(self, call: _Call) -> dict[str, Any]:
        """Return which login a request wants, and note how it goes."""
        levels = [call.request.bru, *reversed(call.request.folders), self._collection.root]
        modes = [
            call.request.bru.get(call.method, "auth") or call.request.bru.get("http", "auth"),
            *(bru.get("auth", "mode") for bru in levels[1:]),
        ]
        for bru, mode in zip(levels, modes, strict=True):
            if mode == "none":
                return {"security": []}
            if mode and mode != "inherit":
                name = self._scheme(mode, bru, call)
                return {"security": [{name: []}]} if name else {}
        return {}

    def _scheme(self, mode: str, bru: Bru, call: _Call) -> str:
        given = {key: _filled(value, call.variables) for key, value in bru.mapping(f"auth:{mode}").items()}
        match mode:
            case "bearer" | "basic" | "digest":
                scheme: dict[str, Any] = {"type": "http", "scheme": mode}
            case "apikey":
                where = "query" if given.get("placement") == "queryparams" else "header"
                scheme = {"type": "apiKey", "name": given.get("key", ""), "in": where}
            case "oauth2" if given.get("grant_type") == "client_credentials":
                scopes = dict.fromkeys(given.get("scope", "").split(), "")
                flow = {"tokenUrl": given.get("access_token_url", ""), "scopes": scopes}
                scheme = {"type": "oauth2", "flows": {"clientCredentials": flow}}
            case _:
                self._problems.append(f"{call.request.file}: its login ({mode}) is not known here")
                return ""
        same = (name for name, known in self._schemes.items() if known == scheme)
        name = next(same, mode if mode not in self._schemes else f"{mode}_{len(self._schemes) + 1}")
        self._schemes[name] = scheme
        return name


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with its variables filled in; unknown ones stay."""
    room = _PUT

    def put(found: re.Match[str]) -> str:
        nonlocal room
        value = variables.get(found[1], found[0])
        room -= len(value)
        return value if room >= 0 else found[0]

    for _ in range(_TURNS):
        filled = _VARIABLE.sub(put, text)
        if filled == text:
            break
        text = filled
    return text


def _template(path: str) -> str:
    """Return a path with places as OpenAPI writes them: `:id` and what no variable fills in."""
    path = _VARIABLE.sub(lambda found: f"{{{_WORDS.sub('_', found[1])}}}", path)
    steps = (f"{{{step[1:]}}}" if step.startswith(":") and len(step) > 1 else step for step in path.split("/"))
    return f"/{'/'.join(steps).lstrip('/')}"


def _is_known(value: str, name: str) -> bool:
    """True if a value may be shown: it exists, has no unknown variable, and its name does not mark a secret."""
    return bool(value) and not _VARIABLE.search(value) and not _SECRET.search(name)


def _of_json(text: str) -> dict[str, Any]:
    """Return the schema of a JSON body by its example; one with variables inside may be no JSON as it stands."""
    quoted = _VARIABLE.sub(lambda found: found[0].replace('"', "'"), text)
    for attempt in (quoted, _VARIABLE.sub("null", quoted)):
        try:
            value: Any = json.loads(attempt)
        except (ValueError, RecursionError):
            continue
        kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
        return {"schema": {"type": kind} if kind else {}, "example": _without_secrets(value)}
    return {"schema": {"description": f"As in: {text[:500]}"} if text.strip() else {}}


def _of_pairs(pairs: Sequence[Pair], call: _Call) -> dict[str, Any]:
    """Return the schema of a form by its fields."""
    properties: dict[str, Any] = {}
    for pair in pairs:
        is_file = pair.value.startswith("@file(")
        value = _filled(pair.value, call.variables)
        field_schema: dict[str, Any] = {"type": "string", **({"format": "binary"} if is_file else {})}
        if pair.enabled and not is_file and _is_known(value, pair.key):
            field_schema["example"] = value
        properties[pair.key] = field_schema
    return {"schema": {"type": "object", "properties": properties}}


def _without_secrets(value: Any) -> Any:
    """Return an example without what stands under the name of a secret."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {name: "***" if _SECRET.search(name) else _without_secrets(inner) for name, inner in given.items()}
    return [_without_secrets(inner) for inner in cast("list[Any]", value)] if isinstance(value, list) else value


@workspace_tool(
    op="x.service.import_bruno",
    category="api",
    kind="write",
    idempotent=True,
    tags=["bruno", "bru", "rest", "http", "openapi", "endpoints"],
    timeout=120,
    examples=[
        {"path": "api-collection", "service_name": "shop", "environment": "Local"},
        {"path": "api-collection", "service_name": "shop", "base_url": "https://shop.example.org"},
    ],
    policy={
        "edge_cases": [
            "Tokens and passwords that stand in the files are not taken over: configure_service_auth sets up a login.",
            "Scripts and tests of the collection are not run.",
        ]
    },
)
async def import_bruno_collection(
    path: Annotated[str, Field(min_length=1, max_length=1_000)],
    service_name: Alias,
    ctx: Context,
    base_url: Annotated[str, Field(max_length=2_000)] = "",
    environment: Annotated[str, Field(max_length=200)] = "",
) -> dict[str, Any]:
    """Import the requests of a Bruno collection (.bru files) as the endpoints of a service, to look through and call.

    It is kept for later conversations. Returns how many endpoints there are, the logins, and what was left out.

    Args:
        path: Folder of the collection, the one with bruno.json.
        service_name: Alias to call the service by.
        base_url: Address of the service, in the place of the variable that addresses begin with.
        environment: Environment whose variables are filled in; the only one needs no saying.
    """
    workspace = workspace_of(ctx)
    folder, files = await _files(workspace, path)
    read = await workspace.read_many([str(folder / name) for name in files], limit=_MOST_BYTES)
    texts: dict[str, str] = {}
    problems: list[str] = []
    for name, content in zip(files, read, strict=True):
        if isinstance(content, ToolFailure):
            problems.append(f"{name}: {content.message}")
        else:
            texts[name] = content.decode("utf-8", "replace")
    address = base_of(base_url, (), "") if base_url.strip() else ""
    document, more = await to_thread.run_sync(_document, texts, environment.strip(), address, problems)
    if not document["paths"]:
        raise ToolFailure("invalid_arguments", f"path: {path!r} has no request to import; {'; '.join(more[:5])}")
    base = base_of(address, tuple(server["url"] for server in document["servers"]), "")
    made = await ctx.lent.apis.put(ctx.principal, service_name, document)
    service = Service(name=service_name, base_url=base, source=f"Bruno collection {folder}")
    summary = summary_of(await keep(ctx, service, made), made)
    return summary | ({"left_out": more[:_PROBLEMS], "left_out_total": len(more)} if more else {})


async def _files(workspace: Workspace, path: str) -> tuple[PurePosixPath, list[str]]:
    """Return the folder of a collection and the files in it that belong to it, by their paths below it."""
    entry = await entry_at(workspace, path)
    folder = PurePosixPath(entry.path)
    if entry.kind != "folder":
        folder = folder.parent
    entries = await workspace.walk(str(folder), limit=_MOST_FILES + 1)
    if len(entries) > _MOST_FILES:
        raise ToolFailure(
            "too_large", f"path: {path!r} has more than {_MOST_FILES:,} files", hint="name the collection"
        )
    names = [str(PurePosixPath(one.path).relative_to(folder)) for one in entries if one.kind == "file"]
    if "bruno.json" not in names:
        is_open = "opencollection.yml" in names
        what = "is an OpenCollection (YAML), which is not read" if is_open else "has no bruno.json"
        found = sorted(str(PurePosixPath(name).parent) for name in names if name.endswith("/bruno.json"))
        hint = f"collections below it: {', '.join(found[:10])}" if found else "name the folder with bruno.json"
        raise ToolFailure("invalid_arguments", f"path: {path!r} {what}", hint=hint)
    return folder, sorted(name for name in names if name.endswith(".bru") or name == "bruno.json")


def _document(
    texts: Mapping[str, str], environment: str, base_url: str, problems: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the description of a collection and what is wrong with it. Raises `ToolFailure`."""
    settings = _settings(texts.get("bruno.json", ""))
    parsed: dict[str, Bru] = {}
    for name, text in texts.items():
        ignored = any(name == skipped or name.startswith(f"{skipped}/") for skipped in settings["ignore"])
        if not name.endswith(".bru") or ignored:
            continue
        try:
            parsed[name] = read_bru(text)
        except ValueError as error:
            problems.append(f"{name}: not read: {error}")
    environments = {
        PurePosixPath(name).stem: bru for name, bru in parsed.items() if re.fullmatch(r"environments/[^/]+", name)
    }
    chosen = _choose(environments, environment)
    requests = [
        BrunoRequest(file=name, bru=bru, folders=_folders(parsed, name))
        for name, bru in sorted(parsed.items(), key=lambda one: (one[0].rpartition("/")[0], _order(one[1]), one[0]))
        if not name.startswith("environments/") and PurePosixPath(name).name not in ("collection.bru", "folder.bru")
    ]
    collection = Collection(
        name=settings["name"],
        root=parsed.get("collection.bru", Bru()),
        variables=environments[chosen].mapping("vars") if chosen else {},
        requests=requests,
    )
    document, more = to_openapi(collection, base_url)
    return document, [*problems, *more]


def _settings(text: str) -> dict[str, Any]:
    try:
        read: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolFailure("invalid_arguments", f"path: its bruno.json is not JSON: {error}") from None
    given = as_mapping(read)
    names = as_list(given.get("ignore"))
    return {"name": str(given.get("name") or "collection"), "ignore": [str(name).strip("/") for name in names]}


def _choose(environments: Mapping[str, Bru], wanted: str) -> str:
    """Return the name of the environment that is used, an empty one for none. Raises `ToolFailure`."""
    if wanted and wanted not in environments:
        raise ToolFailure("not_found", f"environment: there is no {wanted!r}", hint=names_of(sorted(environments)))
    return wanted or (next(iter(environments)) if len(environments) == 1 else "")


def _folders(parsed: Mapping[str, Bru], name: str) -> list[Bru]:
    around = reversed([str(parent) for parent in PurePosixPath(name).parents if str(parent) != "."])
    return [parsed[f"{folder}/folder.bru"] for folder in around if f"{folder}/folder.bru" in parsed]


def _order(bru: Bru) -> float:
    try:
        return float(bru.get("meta", "seq") or "inf")
    except ValueError:
        return float("inf")

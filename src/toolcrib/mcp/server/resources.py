"""Resources, prompts, completion and skills on the wire of both eras.

`resources/read` and `prompts/get` run like `tools/call`: admission, pipeline, questions to the client, record. Their
failures are JSON-RPC errors, because these results have no member for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from msgspec.structs import replace

from ...core.json import as_mapping, dumps
from ...core.result import ToolResult
from ...core.server_features import EMPTY_ROLE, PROMPT_DESCRIPTION, ROLE, ServerFeatures
from ...errors import ToolFailure
from ..jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, SKILLS_EXTENSION, Request, RpcError
from .backend import Resources
from .calls import ToolCall, read_call, result_meta
from .exchange import Exchange

CALL_METHODS: Final = ("resources/read", "prompts/get")
"""The methods that run like a call."""

LIST_METHODS: Final[Mapping[str, str]] = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Method → the key of the entries."""

SKILLS: Final = SKILLS_EXTENSION
"""The extension (SEP-2640): files of skills are resources, and `skills/list` says what belongs together."""

SKILL_METHODS: Final = ("resources/directory/read", "skills/get", "skills/list")
"""Methods to which declaring the extension, with these settings, commits a server."""

SKILL_SETTINGS: Final[Mapping[str, Any]] = {"directoryRead": True}

_SKILL_SCHEME: Final = "skill://"
_FOLDER: Final = "inode/directory"


def read_resource_call(
    request: Request, *, log_level: str = "", client: str | None = None, exchange: Exchange | None = None
) -> ToolCall:
    """Check the parameters of a `resources/read` or `prompts/get`, as `read_call` does those of a call."""
    params = request.params
    if request.method == "resources/read":
        arguments: dict[str, Any] = {"uri": _text(params, "uri")}
    else:
        arguments = {"name": _text(params, "name"), "arguments": _texts(params, "arguments", "arguments")}
    # No tool has a name with a slash: a sealed state of one is never taken for a state of the other.
    params = {**params, "name": request.method, "arguments": arguments}
    call = read_call(params, log_level=log_level, client=client, exchange=exchange)
    return replace(call, method=request.method)


def resource_body(call: ToolCall, result: ToolResult, *, modern: bool, stamp: Mapping[str, Any] | None = None) -> bytes:
    """Return the JSON text of a `ReadResourceResult` or `GetPromptResult`. Raises `RpcError` for a failure."""
    if result.error is not None:
        raise _refusal(call, result, modern=modern)
    is_read = call.method == "resources/read"
    shown: dict[str, Any] = {"resultType": "complete"} if modern else {}
    if is_read:
        shown["contents"] = [block["resource"] for block in result.content if block.get("type") == "resource"]
    else:
        spoken = [block for block in result.content if _role(block) not in (None, EMPTY_ROLE)]
        if spoken and PROMPT_DESCRIPTION in spoken[0]["_meta"]:
            shown["description"] = spoken[0]["_meta"][PROMPT_DESCRIPTION]
        shown["messages"] = [_message(block) for block in spoken]
    if "artifact" in result.meta:
        message = f"it is too large to be sent whole; it is kept as artifact {result.meta['artifact']}"
        raise RpcError(INTERNAL_ERROR, message, {"code": "too_large"})
    if modern and is_read:
        shown |= {"ttlMs": 0, "cacheScope": "private"}
    meta = {**result_meta(result), **(stamp or {})}
    return dumps({**shown, "_meta": meta} if meta else shown)


def refuse_cursor(request: Request) -> None:
    """Raise `RpcError` with INVALID_PARAMS for a cursor: lists have one page."""
    if request.params.get("cursor") is not None:
        raise RpcError(INVALID_PARAMS, 'Invalid params: "cursor" is not ours; the list has one page')


def list_body(request: Request, features: ServerFeatures, head: Mapping[str, Any]) -> bytes:
    """Return the JSON text of a list, after what `head` says. Raises `RpcError` with INVALID_PARAMS for a cursor."""
    refuse_cursor(request)
    key = LIST_METHODS[request.method]
    entries = {"prompts": features.prompts, "resources": features.resources, "resourceTemplates": features.templates}
    return dumps({**head, key: entries[key]})


def skills_body(request: Request, resources: Resources, head: Mapping[str, Any]) -> bytes:
    """Return the JSON text of what one of `SKILL_METHODS` answers with. Raises `RpcError` with INVALID_PARAMS."""
    refuse_cursor(request)
    if request.method == "skills/list":
        return dumps({**head, "skills": resources.skills})
    uri = _text(request.params, "uri")
    if request.method == "skills/get":
        skill = next((entry for entry in resources.skills if entry["uri"] == uri), None)
        if skill is None:
            raise RpcError(INVALID_PARAMS, f"no skill has the URI {uri[:300]!r}", {"uri": uri})
        return dumps({**head, "skill": skill})
    children = {entry["uri"]: entry for entry in _children(uri.removesuffix("/") + "/", resources.features)}
    if not children:
        raise RpcError(INVALID_PARAMS, f"no folder of a skill has the URI {uri[:300]!r}", {"uri": uri})
    return dumps({**head, "resources": list(children.values())})


def _children(folder: str, features: ServerFeatures) -> Iterator[Mapping[str, Any]]:
    """Yield what is directly in a folder of a skill, a folder in it once for each file below."""
    for entry in features.resources if folder.startswith(_SKILL_SCHEME) and folder != _SKILL_SCHEME else ():
        name, _, below = entry["uri"].removeprefix(folder).partition("/")
        if not entry["uri"].startswith(folder):
            continue
        yield {"uri": folder + name, "name": unquote(name), "mimeType": _FOLDER} if below else entry


async def complete(request: Request, resources: Resources, head: Mapping[str, Any]) -> bytes:
    """Return the JSON text of a completion. Raises `RpcError`."""
    ref, argument = _object(request.params, "ref"), _object(request.params, "argument")
    kind = ref.get("type")
    if kind not in ("ref/prompt", "ref/resource"):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "ref.type" must be ref/prompt or ref/resource')
    named = _text(ref, "name" if kind == "ref/prompt" else "uri")
    asked: dict[str, Any] = {"argument": {"name": _text(argument, "name"), "value": _text(argument, "value")}}
    if request.params.get("context") is not None:
        asked["context"] = {"arguments": _texts(_object(request.params, "context"), "arguments", "context.arguments")}
    try:
        proposed = await resources.complete(kind, named, asked)
    except ToolFailure as failure:
        raise rpc_of(failure) from None
    return dumps({**head, "completion": proposed})


def rpc_of(failure: ToolFailure) -> RpcError:
    """Return the error of the protocol for a failure."""
    code = INVALID_PARAMS if failure.code in ("invalid_arguments", "not_found") else INTERNAL_ERROR
    message = f"{failure.message}. {failure.hint}" if failure.hint else failure.message
    return RpcError(code, message, {"code": failure.code})


def _refusal(call: ToolCall, result: ToolResult, *, modern: bool) -> RpcError:
    error = result.error
    assert error is not None, "it failed"
    failure = rpc_of(ToolFailure(error.code, error.message, hint=error.hint))
    data = {**failure.data, "hint": error.hint} if error.hint else failure.data
    if call.method == "resources/read" and failure.code == INVALID_PARAMS:
        data = {**data, "uri": call.arguments["uri"]}
        return RpcError(INVALID_PARAMS if modern else RESOURCE_NOT_FOUND, f"Resource not found: {error.message}", data)
    return RpcError(failure.code, error.message, data)


def _message(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block of a prompt as the message that it was."""
    meta = {key: value for key, value in block["_meta"].items() if key not in (ROLE, PROMPT_DESCRIPTION)}
    content = {key: value for key, value in block.items() if key != "_meta"}
    return {"role": _role(block), "content": {**content, "_meta": meta} if meta else content}


def _role(block: Mapping[str, Any]) -> Any:
    return as_mapping(block.get("_meta")).get(ROLE)


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if isinstance(value, str):
        return value
    raise RpcError(INVALID_PARAMS, f'Invalid params: "{key}" must be a string')


def _object(params: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = params.get(key)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise RpcError(INVALID_PARAMS, f'Invalid params: "{key}" must be an object')


def _texts(params: Mapping[str, Any], key: str, where: str) -> Mapping[str, str]:
    value = params.get(key)
    texts = as_mapping(value)
    if value is not None and (not isinstance(value, dict) or not all(isinstance(text, str) for text in texts.values())):
        raise RpcError(INVALID_PARAMS, f'Invalid params: "{where}" must be an object of strings')
    return texts

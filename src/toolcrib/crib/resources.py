"""Resources and prompts of servers, for sessions: listed, read through the one pipeline, completed, watched.

Every read of a resource and every prompt is a call of a tool of ours that only reads (`read_resource`, `get_prompt`):
decided on, limited, redacted, marked with where it comes from, and recorded, whether a model called the tool or an MCP
client asked by the protocol's own methods. Lists and completions are not calls and leave no record.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Unpack

from msgspec.structs import replace

from ..catalog.resources import RESOURCES, FeaturePlace, prefixed
from ..core.context import Context
from ..core.result import ToolResult
from ..core.sanitize import clean_text
from ..core.server_features import WATCHED, FeatureReader, ServerFeatures, WithFeatures, WithSkills
from ..core.session import LOCAL, SessionState
from ..core.tool import READS, Annotations, Tool
from ..disclosure.base import VisibleCatalog
from ..errors import ToolFailure
from ..policy.decision import Policy
from ..results.redaction.redactor import Redactor
from ..sources.source import BaseSource, Publish, Source
from .catalog_ingest import CatalogIngest
from .options import CallOptions
from .views import Views

_COMPLETION_SECONDS: Final = 10.0
_SHARE: Final = WATCHED // 2
"""Resources of one source that a principal other than LOCAL watches at a time, so that the others have some too."""

Send = Callable[[str, Any, CallOptions], Awaitable[ToolResult]]
"""Makes a call of a session by the catalog's name of a tool: its result is neither cut nor in an envelope."""

_READS_OUTSIDE: Final = Annotations(read_only=True, destructive=False, idempotent=True, open_world=True)
_SERVER: Final = {"type": "string", "default": "", "description": "Only those of this server."}

_URI: Final = {"type": "string", "description": "Its URI, as a list or a link shows it."}
"""Under a name that is not a link's: what asks in a tainted session is a web address, not any URI of a server."""
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}, "default": {}}


class ResourceRegistry:
    """The resources and prompts of all sources, and the way to them. Lives as long as the crib."""

    def __init__(
        self, ingest: CatalogIngest, sources: Mapping[str, Source], views: Views, policy: Policy, redactor: Redactor
    ) -> None:
        """`ingest` has the resources that the mounted `sources` offer; `redactor` takes secrets out of completions."""
        self.features = ingest.features
        self.tools = ResourceTools(self)
        """The source of the tools that read resources and get prompts."""
        self._views = views
        self._policy = policy
        self._sources = sources
        self._may_have_resources = ingest.may_have_resources
        self._redactor = redactor
        ingest.on_features(self.tools.look)
        self._watchers: dict[FeaturePlace, dict[object, tuple[str, Callable[[], None]]]] = {}
        """Principal and listener of each subscription."""

    def open(self, state: SessionState, send: Send) -> SessionResources:
        """Return the resources and prompts as one session has them."""
        return SessionResources(self, state, send)

    def tool(self, state: SessionState, name: str) -> Tool | None:
        """Return our own tool of that name when the session may call it."""
        visible = self._views.visible(state)
        tool = visible.catalog.get(name)
        if tool is None or tool.source != RESOURCES or not state.admits(tool) or state.is_disabled(name):
            return None
        return None if visible.is_denied(tool) else tool

    def admits(self, visible: VisibleCatalog) -> Callable[[str], bool]:
        """Return which sources a session may know of: one that is cut down to some tools knows only their sources.

        A source without tools is visible to each session that may read resources, and one that a rule denies to none.
        """
        state, tools = visible.session, visible.catalog.tools.values()
        hidden = set[str]()
        if state.scope.allowed is not None or state.scope.exact is not None:
            hidden = {tool.source for tool in tools} - {tool.source for tool in tools if state.admits(tool)}

        def admits(source: str) -> bool:
            stand_in = self._stand_in(FeaturePlace(source=source, name=""), "read_resource")
            return source not in hidden and not visible.is_denied(stand_in)

        return admits if hidden or visible.denies else _anybody

    def visible(self, state: SessionState) -> ServerFeatures:
        """Return the features that a session may see."""
        features = self.features.admitted(self.admits(self._views.visible(state)))
        if self.tool(state, "read_resource") is None:
            features = replace(features, resources=(), templates=(), reads=False)
        return features if self.tool(state, "get_prompt") is not None else replace(features, prompts=())

    @property
    def may_exist(self) -> bool:
        """Whether there are resources, or a source may bring some: by its first listing, or by a review."""
        mounted = self._sources.items()
        return any(isinstance(source, WithFeatures) and self._may_have_resources(name) for name, source in mounted)

    def skills(self, state: SessionState) -> tuple[Mapping[str, Any], ...]:
        """Return the skills whose files a session may read, as the MCP skills extension lists them."""
        if self.tool(state, "read_resource") is None:
            return ()
        admits = self.admits(self._views.visible(state))
        having = (self._sources.get(name) for name in self.features.sources if admits(name))
        return tuple(entry for source in having if isinstance(source, WithSkills) for entry in source.skill_entries())

    def listed(self, context: Context, server: str) -> tuple[ServerFeatures, bool]:
        """Return the features that the session of a call may see, and whether some are untrusted."""
        visible = self._views.visible_of(context)
        admits = self.admits(visible)
        there = [name for name in self.features.sources if admits(name) and server in ("", name)]
        untrusted = any(self._trust(FeaturePlace(source=name, name="")) == "untrusted" for name in there)
        return self.features.admitted(there.__contains__), untrusted

    async def read(self, uri: str, context: Context) -> ToolResult:
        """Read a resource. Raises `ToolFailure` for one that is not there; what the server says is a result."""
        visible = self._views.visible_of(context)
        place = self.features.resource(uri, self.admits(visible))
        self._check(visible.session, place, "read_resource", {"uri": place.name})
        result = await self._with_source(place, lambda: self._reader(place.source).read(place.name, context))
        return result if uri == place.name else _under(result, place.source)

    async def get(self, name: str, arguments: Mapping[str, str], context: Context) -> ToolResult:
        """Get a prompt. Raises as `read` does."""
        visible = self._views.visible_of(context)
        place = self.features.prompt(name, self.admits(visible))
        self._check(visible.session, place, "get_prompt", {"name": place.name, "arguments": arguments})
        return await self._with_source(place, lambda: self._reader(place.source).prompt(place.name, arguments, context))

    async def complete(
        self, state: SessionState, kind: str, named: str, params: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return a server's completions for an argument of a prompt (`ref/prompt`) or a template (`ref/resource`).

        Raises `ToolFailure`.
        """
        admits = self.admits(self._views.visible(state))
        is_prompt = kind == "ref/prompt"
        tool = "get_prompt" if is_prompt else "read_resource"
        if self.tool(state, tool) is None:
            raise ToolFailure("not_found", f"there is no {named[:200]!r} here")
        place = self.features.prompt(named, admits) if is_prompt else self.features.template(named, admits)
        key = "name" if is_prompt else "uri"
        self._check(state, place, tool, {key: place.name})
        context = Context(
            call_id="",
            session_key=state.key,
            principal=state.principal,
            deadline=time.monotonic() + _COMPLETION_SECONDS,
        )
        asked = {**params, "ref": {"type": kind, key: place.name}}
        with self._masked(state):
            completed = await self._reader(place.source).complete(asked, context)
        return self._redactor.of(state.principal).value(completed)

    async def watch(self, state: SessionState, uri: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `changed` whenever the server says that the resource did; returns how to stop. Raises `ToolFailure`."""
        if self.tool(state, "read_resource") is None:
            raise ToolFailure("not_found", f"there is no resource {uri[:300]!r}")
        place = self.features.resource(uri, self.admits(self._views.visible(state)))
        self._check(state, place, "read_resource", {"uri": place.name})
        self._check_share(place, state.principal)
        reader = self._reader(place.source)
        reader.on_update = partial(self._updated, place.source)
        token = object()
        self._watchers.setdefault(place, {})[token] = (state.principal, changed)

        def forget() -> bool:
            watchers = self._watchers.get(place, {})
            was_there = watchers.pop(token, None) is not None
            if not watchers:
                self._watchers.pop(place, None)
            return was_there

        async def stop() -> None:
            if forget():
                await reader.unwatch(place.name)

        try:
            with self._masked(state):
                await reader.watch(place.name)
        except BaseException:
            forget()
            raise
        return stop

    @contextmanager
    def _masked(self, state: SessionState) -> Generator[None]:
        """Mask secrets, and remove invisible characters, in what a server says of a failure."""
        try:
            yield
        except ToolFailure as failure:
            message = clean_text(self._redactor.of(state.principal).value(failure.message))[0]
            raise ToolFailure(failure.code, message, hint=failure.hint, details=failure.details) from None

    def _check_share(self, wanted: FeaturePlace, principal: str) -> None:
        """Raise `ToolFailure("overloaded")` where the principal watches as much of the source as it may."""
        if principal == LOCAL:
            return
        watched = sum(
            place.source == wanted.source and place != wanted and any(by == principal for by, _ in watchers.values())
            for place, watchers in self._watchers.items()
        )
        if watched >= _SHARE:
            raise ToolFailure(
                "overloaded",
                f"{principal} watches {_SHARE} resources of {wanted.source} already: half of the {WATCHED} of all",
                hint="Unsubscribe from some of them, or read the resource when it is needed.",
            )

    def _updated(self, source: str, uri: str) -> None:
        for _, changed in tuple(self._watchers.get(FeaturePlace(source=source, name=uri), {}).values()):
            changed()

    def _reader(self, source: str) -> FeatureReader:
        mounted = self._sources.get(source)
        if not isinstance(mounted, WithFeatures):
            raise ToolFailure("unavailable", f"source {source!r} is not there any more")
        return mounted.features

    def _stand_in(self, place: FeaturePlace, name: str) -> Tool:
        """Return a tool of the source itself, by which rules and trust of its tools hold for what is read there."""
        mounted = self._sources.get(place.source)
        return Tool(
            name=f"{place.source}__{name}",
            source=place.source,
            local_name=name,
            origin=mounted.state.kind if mounted is not None else "",
            traits=mounted.features.traits if isinstance(mounted, WithFeatures) else (),
            annotations=_READS_OUTSIDE,
        )

    def _trust(self, place: FeaturePlace) -> str:
        return self._policy.taint.trust_of(self._stand_in(place, "read_resource"))

    def _check(self, state: SessionState, place: FeaturePlace, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolFailure("denied")` where a rule denies everything of this source, or just this."""
        decision = self._policy.decide(self._stand_in(place, name), arguments, state)
        if decision.effect == "deny":
            raise ToolFailure("denied", f"{place.name[:200]} of {place.source} is denied: {decision.rule}")

    async def _with_source(self, place: FeaturePlace, ask: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Add the source to a result; a failure becomes a result of that source too."""
        try:
            result = await ask()
        except ToolFailure as failure:
            result = ToolResult.of_failure(failure)
        if result.input_required is not None:
            return result
        return result.with_meta(source=place.source, trust=self._trust(place))


class SessionResources:
    """Resources, prompts and skills of one session. Holds nothing that must be closed."""

    def __init__(self, registry: ResourceRegistry, state: SessionState, send: Send) -> None:
        """Made by `Session.resources`."""
        self._registry = registry
        self._state = state
        self._send = send

    @property
    def version(self) -> int:
        """Another number whenever `features` may be another."""
        return self._registry.features.version

    @property
    def features(self) -> ServerFeatures:
        """Resources, templates and prompts, by the names to ask for."""
        return self._registry.visible(self._state)

    @property
    def may_exist(self) -> bool:
        """Whether there are resources, or a source may bring some: by its first listing, or by a review."""
        return self._registry.may_exist

    @property
    def skills(self) -> tuple[Mapping[str, Any], ...]:
        """Answer to `skills/list` of the MCP skills extension."""
        return self._registry.skills(self._state)

    async def read(self, uri: str, **options: Unpack[CallOptions]) -> ToolResult:
        """Read a resource: one `resource` block a content. Failures are in the result."""
        if any(entry["uri"] == uri for entry in self.features.resources):
            self._state.taint.links[uri] = None  # reading a listed address unchanged discloses nothing
        return await self._call("read_resource", {"resource": uri}, options)

    async def get(self, name: str, arguments: Mapping[str, str], **options: Unpack[CallOptions]) -> ToolResult:
        """Get a prompt: one block a message, who says it in its `_meta` (`core.server_features.ROLE`)."""
        return await self._call("get_prompt", {"name": name, "arguments": arguments}, options)

    async def complete(self, kind: str, named: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the `completion` for an argument of the prompt or template `named`. Raises `ToolFailure`."""
        return await self._registry.complete(self._state, kind, named, params)

    async def watch(self, uri: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `changed` whenever the resource did, until what is returned was called. Raises `ToolFailure`."""
        return await self._registry.watch(self._state, uri, changed)

    async def _call(self, tool: str, arguments: Mapping[str, Any], options: CallOptions) -> ToolResult:
        if self._registry.tool(self._state, tool) is None:
            failure = ToolFailure("not_found", f"there is no {next(iter(arguments.values()))!r} here"[:300])
            return ToolResult.of_failure(failure)
        return await self._send(tool, arguments, options)


class ResourceTools(BaseSource):
    """A source of four tools, for models whose client reads no resources and gets no prompts; there while some are."""

    def __init__(self, registry: ResourceRegistry) -> None:
        """Made by `ResourceRegistry`."""
        super().__init__(RESOURCES, "resources")
        self._registry = registry

    async def open(self, publish: Publish) -> None:
        """Offer what is wanted now."""
        await super().open(publish)
        self.look()

    def look(self) -> None:
        """Publish the tools for the present features, when that is another set. Does nothing before `open`."""
        features = self._registry.features
        wanted: tuple[Tool, ...] = (
            *(_LISTING if features.lists_resources else ()),
            *(_READING if features.has_resources else ()),  # of a link in a result, too
            *(_PROMPTING if features.has_prompts else ()),
        )
        if self._publish is not None:
            self.offer(*wanted, problems=features.problems)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Carry out one of the tools. Raises `ToolFailure`."""
        registry = self._registry
        if tool.local_name == "read_resource":
            return await registry.read(str(arguments["resource"]), context)
        if tool.local_name == "get_prompt":
            return await registry.get(str(arguments["name"]), arguments["arguments"], context)
        features, untrusted = registry.listed(context, str(arguments["server"]))
        if tool.local_name == "list_prompts":
            listed: dict[str, Any] = {"prompts": list(features.prompts)}
        else:
            listed = {"resources": list(features.resources), "templates": list(features.templates)}
        result = ToolResult.of_json(listed)
        return result.with_meta(source=RESOURCES, trust="untrusted" if untrusted else "local")


def _under(result: ToolResult, source: str) -> ToolResult:
    """Return a resource that was asked for by a prefixed URI with its contents named likewise."""
    blocks = [
        {**block, "resource": {**block["resource"], "uri": prefixed(source, block["resource"]["uri"])}}
        if block.get("type") == "resource"
        else block
        for block in result.content
    ]
    return replace(result, content=tuple(blocks))


def _anybody(source: str) -> bool:
    return True


def _tool(name: str, op: str, description: str, annotations: Annotations, properties: Mapping[str, Any]) -> Tool:
    required = [key for key, schema in properties.items() if "default" not in schema]
    return Tool(
        name=name,
        local_name=name,
        source=RESOURCES,
        op=op,
        description=description,
        input_schema={
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        annotations=annotations,
        category="resources",
    )


_LISTING: Final = (
    _tool(
        "list_resources",
        "x.resource.list",
        "The resources and URI templates that servers offer.",
        READS,
        {"server": _SERVER},
    ),
)
_READING: Final = (
    _tool("read_resource", "x.resource.read", "Read a resource of a server.", _READS_OUTSIDE, {"resource": _URI}),
)
_PROMPTING: Final = (
    _tool(
        "list_prompts",
        "x.server_prompt.list",
        "The prompts that servers offer, with their arguments.",
        READS,
        {"server": _SERVER},
    ),
    _tool(
        "get_prompt",
        "x.server_prompt.get",
        "Get a prompt of a server, with its arguments filled in.",
        _READS_OUTSIDE,
        {"name": {"type": "string"}, "arguments": _TEXTS},
    ),
)

"""Resources and prompts of all sources, under unambiguous names.

A resource keeps its URI where one source alone has it. What several have is shown as `toolcrib://SOURCE/` and that
URI, by each of them, and the bare URI is refused: which source answers never depends on who came first. A URI with
that prefix always means that source, listed or not (security.md T30). Prompts are named as tools are.

Views of MCP Apps are recognised by their scheme, which stays: `ui://x` is shown as `ui://toolcrib/SOURCE/x`, and so are
the links of tools to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from msgspec import Struct, field

from ..core.events import Problem
from ..core.patterns import regex
from ..core.server_features import NO_FEATURES, ServerFeatures
from ..core.similar import nearest
from ..errors import ToolFailure
from . import names as naming

RESOURCES: Final = "resources"
"""The source of the tools that read resources."""

_SCHEME: Final = "toolcrib://"
_UI_SCHEME: Final = "ui://"
_UI_PREFIX: Final = "ui://toolcrib/"
_UI_LINKS: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of a tool's `_meta` that name its view, beside `ui.resourceUri`."""
_TEMPLATE_EXPRESSION: Final = regex(r"\{([+#./;?&]?)[^{}]*\}")


class FeaturePlace(Struct, frozen=True, kw_only=True):
    """Owner of a resource or prompt, and its name there."""

    source: str
    name: str


class _SourceFeatures(Struct):
    prefix: bool
    features: ServerFeatures = NO_FEATURES
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names in use → the source's own."""


class FeatureRegistry:
    """Mutable, one for a crib, used from one event loop."""

    def __init__(self) -> None:
        """Start empty."""
        self._layers: dict[str, _SourceFeatures] = {}
        self._prompts: dict[str, FeaturePlace] = {}
        self._shared_uris: Mapping[str, frozenset[str]] = {"uri": frozenset(), "uriTemplate": frozenset()}
        self.ui_owners: frozenset[tuple[str, str]] = frozenset()
        """The sources that serve resources, and the views that they list: what `linked` depends on."""
        self.version = 0
        """Another number after every change."""
        self.problems: tuple[Problem, ...] = ()
        """The prompts whose names were taken."""

    def declare(self, source: str, *, prefix: bool) -> None:
        """Give `source` its place in the order; again is harmless. `prefix` as for its tools."""
        self._layers.setdefault(source, _SourceFeatures(prefix=prefix))

    def put(self, source: str, features: ServerFeatures) -> bool:
        """Replace the features of `source`; return whether anything changed."""
        self.declare(source, prefix=True)
        layer = self._layers[source]
        if layer.features == features:
            return False
        layer.features = features
        self._rebuild()
        self.version += 1
        return True

    def remove(self, source: str) -> bool:
        """Forget `source`; return whether anything changed."""
        changed = source in self._layers and self.put(source, NO_FEATURES)
        self._layers.pop(source, None)
        return changed

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources that have resources or prompts."""
        return tuple(name for name, layer in self._layers.items() if not layer.features.is_empty)

    @property
    def has_resources(self) -> bool:
        """Whether any source serves resources."""
        return any(layer.features.reads for layer in self._layers.values())

    @property
    def lists_resources(self) -> bool:
        """Whether any source lists a resource or a template: many serve none, though they declare that they do."""
        return any(layer.features.resources or layer.features.templates for layer in self._layers.values())

    @property
    def has_prompts(self) -> bool:
        """Whether any source has prompts."""
        return bool(self._prompts)

    def admitted(self, admits: Callable[[str], bool]) -> ServerFeatures:
        """Return the features of the sources that `admits` lets through, by the names in use."""
        layers = [(name, layer) for name, layer in self._layers.items() if admits(name)]
        return ServerFeatures(
            resources=tuple(
                self._with_public_uri(name, entry, "uri")
                for name, layer in layers
                for entry in layer.features.resources
            ),
            templates=tuple(
                self._with_public_uri(name, entry, "uriTemplate")
                for name, layer in layers
                for entry in layer.features.templates
            ),
            prompts=tuple(prompt for name, layer in layers for prompt in self._prompts_of(name, layer)),
            reads=any(layer.features.reads for _, layer in layers),
        )

    def resource(self, uri: str, admits: Callable[[str], bool]) -> FeaturePlace:
        """Return the place of the resource. Raises `ToolFailure("not_found")` when no source has it, or several might.

        An unlisted URI goes to the only source that serves resources; with several sources no source is asked, nor for
        a URI that names an unknown source.
        """
        readers = [name for name, layer in self._layers.items() if layer.features.reads and admits(name)]
        source, own = _split_prefixed(uri)
        if source in readers and own:
            return FeaturePlace(source=source, name=own)
        for having in (self._sources_listing(uri, readers), self._sources_matching(uri, readers)):
            if len(having) == 1:
                return FeaturePlace(source=having[0], name=uri)
            if having:
                raise _ambiguous(uri, having)
        if len(readers) == 1 and not _is_ours(uri):
            return FeaturePlace(source=readers[0], name=uri)
        raise ToolFailure(
            "not_found",
            f"unknown resource {uri[:300]!r}",
            hint=f"One that a server does not list is read as {_SCHEME}SERVER/ and its URI." if readers else "",
        )

    def template(self, template: str, admits: Callable[[str], bool]) -> FeaturePlace:
        """Return the owner of that URI template, or failing that of the resource. Raises `ToolFailure("not_found")`."""
        for name, layer in self._layers.items():
            for entry in layer.features.templates if admits(name) else ():
                if self._public_uri(name, str(entry["uriTemplate"]), "uriTemplate") == template:
                    return FeaturePlace(source=name, name=str(entry["uriTemplate"]))
        return self.resource(template, admits)

    def prompt(self, name: str, admits: Callable[[str], bool]) -> FeaturePlace:
        """Return the owner of the prompt. Raises `ToolFailure("not_found")` with the nearest names."""
        place = self._prompts.get(name)
        if place is not None and admits(place.source):
            return place
        known = [other for other, where in self._prompts.items() if admits(where.source)]
        close = nearest(name, known)
        hint = f"did you mean {', '.join(close)}?" if close else ""
        raise ToolFailure("not_found", f"unknown prompt {name[:200]!r}", hint=hint)

    def linked(self, source: str, meta: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the `_meta` of a tool with the URI of its view as a client has to read it; the same without one."""
        changed: dict[str, Any] = {key: self._public_view_uri(source, meta[key]) for key in _UI_LINKS if key in meta}
        ui = meta.get("ui")
        if isinstance(ui, Mapping) and "resourceUri" in ui:
            known = cast("Mapping[str, Any]", ui)
            changed["ui"] = {**known, "resourceUri": self._public_view_uri(source, known["resourceUri"])}
        return {**meta, **changed} if any(meta[key] != value for key, value in changed.items()) else meta

    def _public_view_uri(self, source: str, uri: Any) -> Any:
        """Return the URI of a view of that source: the bare one only where it means that source."""
        layer = self._layers.get(source)
        if not isinstance(uri, str) or not uri.startswith(_UI_SCHEME) or layer is None or not layer.features.reads:
            return uri
        try:
            is_bare = self.resource(uri, lambda _: True) == FeaturePlace(source=source, name=uri)
        except ToolFailure:
            is_bare = False
        return uri if is_bare else prefixed(source, uri)

    def _with_public_uri(self, source: str, entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        named = self._public_uri(source, str(entry[key]), key)
        return entry if named == entry[key] else {**entry, key: named}

    def _public_uri(self, source: str, uri: str, key: str) -> str:
        # A server that uses our prefix itself must not take another's place.
        return prefixed(source, uri) if _is_ours(uri) or uri in self._shared_uris[key] else uri

    def _prompts_of(self, source: str, layer: _SourceFeatures) -> Iterable[Mapping[str, Any]]:
        by_local = {str(entry["name"]): entry for entry in layer.features.prompts}
        for name, local in layer.prompts.items():
            if self._prompts[name].source == source:
                yield by_local[local] if name == local else {**by_local[local], "name": name}

    def _sources_listing(self, uri: str, readers: Iterable[str]) -> list[str]:
        return [name for name in readers if any(entry["uri"] == uri for entry in self._layers[name].features.resources)]

    def _sources_matching(self, uri: str, readers: Iterable[str]) -> list[str]:
        return [
            name
            for name in readers
            if any(matches(str(entry["uriTemplate"]), uri) for entry in self._layers[name].features.templates)
        ]

    def _rebuild(self) -> None:
        """Find out anew which names several sources have."""
        all_features = [layer.features for layer in self._layers.values()]
        self._shared_uris = {
            "uri": _duplicates(entry["uri"] for features in all_features for entry in features.resources),
            "uriTemplate": _duplicates(
                entry["uriTemplate"] for features in all_features for entry in features.templates
            ),
        }
        self.ui_owners = frozenset(_ui_owners(self._layers))
        self._prompts, problems = {}, list[Problem]()
        for source, layer in self._layers.items():
            names: dict[str, str] = {}
            for entry in layer.features.prompts:
                local = str(entry["name"])
                name = naming.qualify(source, local) if layer.prefix else local
                name = naming.declared(name, source, local) if layer.prefix else name
                if name in self._prompts:
                    problems.append(_name_taken(source, local, name, self._prompts[name]))
                    continue
                names[name] = local
                self._prompts[name] = FeaturePlace(source=source, name=local)
            layer.prompts = names
        self.problems = tuple(problems)


def matches(template: str, uri: str) -> bool:
    """Whether `uri` may be an expansion of the URI template (RFC 6570): in time proportional to both, for any template.

    Each literal is matched at its first occurrence; the last one must end the URI.

    No regular expression, because a template is a server's text: a hostile one cannot take long.
    """
    pieces = _TEMPLATE_EXPRESSION.split(template)
    literals, operators = pieces[::2], pieces[1::2]
    if not uri.startswith(literals[0]):
        return False
    at = len(literals[0])
    for place, (operator, literal) in enumerate(zip(operators, literals[1:], strict=True)):
        is_last = place == len(operators) - 1
        end = len(uri) - len(literal) if is_last else uri.find(literal, at)
        if end < at or not uri.startswith(literal, end):
            return False
        value = uri[at:end]
        if not operator and (not value or any(mark in value for mark in "/?#")):
            return False
        at = end + len(literal)
    return at == len(uri)


def prefixed(source: str, uri: str) -> str:
    """Return the URI that identifies a resource of that source even when others have the same URI."""
    if uri.startswith(_UI_SCHEME):
        return f"{_UI_PREFIX}{quote(source, safe='')}/{uri.removeprefix(_UI_SCHEME)}"
    return f"{_SCHEME}{quote(source, safe='')}/{uri}"


def _is_ours(uri: str) -> bool:
    return uri.startswith((_SCHEME, _UI_PREFIX))


def _split_prefixed(uri: str) -> tuple[str, str]:
    """Return the source and its own URI that a prefixed URI names; empty texts for any other."""
    for prefix, scheme in ((_SCHEME, ""), (_UI_PREFIX, _UI_SCHEME)):
        if uri.startswith(prefix):
            owner, _, rest = uri.removeprefix(prefix).partition("/")
            return (unquote(owner), f"{scheme}{rest}") if rest else ("", "")
    return "", ""


def _ui_owners(layers: Mapping[str, _SourceFeatures]) -> Iterable[tuple[str, str]]:
    for name, layer in layers.items():
        if layer.features.reads:
            yield name, ""
        uris = (entry["uri"] for entry in layer.features.resources)
        templates = (entry["uriTemplate"] for entry in layer.features.templates)
        yield from ((name, str(uri)) for uri in (*uris, *templates) if str(uri).startswith(_UI_SCHEME))


def _duplicates(names: Iterable[Any]) -> frozenset[str]:
    return frozenset(str(name) for name, count in Counter(names).items() if count > 1)


def _ambiguous(uri: str, sources: Iterable[str]) -> ToolFailure:
    meant = " or ".join(prefixed(source, uri[:300]) for source in sources)
    return ToolFailure("not_found", f"several servers have {uri[:300]!r}", hint=f"Read {meant}.")


def _name_taken(source: str, local: str, name: str, by: FeaturePlace) -> Problem:
    return Problem(
        source=source,
        code="collision",
        message=f"its prompt {ascii(local)[1:-1][:200]} is not offered: {by.source} has the name {name} already",
        hint="give one of the servers another name",
    )

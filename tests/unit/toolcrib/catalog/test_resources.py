"""Names of what several sources features beside tools: never mixed up, whoever came first."""

import time

import pytest

from toolcrib.catalog.resources import FeaturePlace, FeatureRegistry, matches
from toolcrib.core.events import Problem
from toolcrib.core.server_features import ServerFeatures
from toolcrib.errors import ToolFailure


def features(*uris: str, templates: tuple[str, ...] = (), prompts: tuple[str, ...] = ()) -> ServerFeatures:
    return ServerFeatures(
        resources=tuple({"uri": uri, "name": uri} for uri in uris),
        templates=tuple({"uriTemplate": template, "name": template} for template in templates),
        prompts=tuple({"name": name} for name in prompts),
        reads=bool(uris or templates),
    )


def everybody(source: str) -> bool:
    return True


def registry_of(**each: ServerFeatures) -> FeatureRegistry:
    registry = FeatureRegistry()
    for source, one in each.items():
        registry.put(source, one)
    return registry


def test_a_uri_that_one_source_has_is_passed_through() -> None:
    registry = registry_of(a=features("x:1"), b=features("x:2"))

    assert [entry["uri"] for entry in registry.admitted(everybody).resources] == ["x:1", "x:2"]
    assert registry.resource("x:2", everybody) == FeaturePlace(source="b", name="x:2")


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_uri_that_two_sources_have_belongs_to_neither_whoever_came_first(first: str) -> None:
    second = {"a": "b", "b": "a"}[first]
    registry = registry_of(**{first: features("x:1"), second: features("x:1")})

    assert sorted(str(entry["uri"]) for entry in registry.admitted(everybody).resources) == [
        "toolcrib://a/x:1",
        "toolcrib://b/x:1",
    ]
    assert registry.resource("toolcrib://b/x:1", everybody) == FeaturePlace(source="b", name="x:1")
    with pytest.raises(ToolFailure, match="several servers have 'x:1'"):
        registry.resource("x:1", everybody)


def test_a_prefixed_uri_always_means_its_source() -> None:
    registry = registry_of(a=features("toolcrib://b/x:1"), b=features("x:1"))

    assert [entry["uri"] for entry in registry.admitted(everybody).resources] == [
        "toolcrib://a/toolcrib://b/x:1",
        "x:1",
    ]
    assert registry.resource("toolcrib://b/x:1", everybody) == FeaturePlace(source="b", name="x:1")
    assert registry.resource("toolcrib://a/toolcrib://b/x:1", everybody) == FeaturePlace(
        source="a", name="toolcrib://b/x:1"
    )


def test_views_of_apps_keep_their_scheme_and_the_links_of_tools_lead_to_their_own() -> None:
    shared, meta = "ui://x/view", {"ui": {"resourceUri": "ui://x/view"}, "other": 1}
    alone, both = registry_of(a=features(shared)), registry_of(a=features(shared), b=features(shared, "ui://b/own"))

    assert [entry["uri"] for entry in both.admitted(everybody).resources] == [
        "ui://toolcrib/a/x/view",
        "ui://toolcrib/b/x/view",
        "ui://b/own",
    ]
    assert both.resource("ui://toolcrib/b/x/view", everybody) == FeaturePlace(source="b", name=shared)
    assert alone.linked("a", meta) is meta
    assert both.linked("a", meta) == {"ui": {"resourceUri": "ui://toolcrib/a/x/view"}, "other": 1}
    assert both.linked("b", {"openai/outputTemplate": "ui://b/own"}) == {"openai/outputTemplate": "ui://b/own"}
    unlisted = {"ui/resourceUri": "ui://b/hidden"}
    assert both.linked("b", unlisted) == {"ui/resourceUri": "ui://toolcrib/b/b/hidden"}


def test_a_server_that_uses_our_prefix_for_views_takes_no_other_place() -> None:
    registry = registry_of(a=features("ui://toolcrib/b/x"), b=features("ui://x"))

    assert [entry["uri"] for entry in registry.admitted(everybody).resources] == [
        "ui://toolcrib/a/toolcrib/b/x",
        "ui://x",
    ]
    assert registry.resource("ui://toolcrib/b/x", everybody) == FeaturePlace(source="b", name="ui://x")


def test_a_uri_that_nobody_lists_goes_to_the_only_source_and_to_none_of_several() -> None:
    one, two = registry_of(a=features("x:1")), registry_of(a=features("x:1"), b=features("y:1"))

    assert one.resource("z:1", everybody) == FeaturePlace(source="a", name="z:1")
    with pytest.raises(ToolFailure) as raised:
        two.resource("z:1", everybody)
    assert (raised.value.code, raised.value.hint) == (
        "not_found",
        "One that a server does not list is read as toolcrib://SERVER/ and its URI.",
    )
    assert two.resource("toolcrib://b/z:1", everybody) == FeaturePlace(source="b", name="z:1")


def test_a_template_says_whose_a_uri_is() -> None:
    registry = registry_of(a=features(templates=("file:///{+path}",)), b=features(templates=("db://{table}/{id}",)))

    assert registry.resource("db://users/7", everybody) == FeaturePlace(source="b", name="db://users/7")
    assert registry.resource("file:///etc/hosts", everybody) == FeaturePlace(source="a", name="file:///etc/hosts")


def test_what_is_out_of_scope_cannot_be_read_by_any_name() -> None:
    registry = registry_of(a=features("x:1", prompts=("p",)), b=features("y:1"))

    def only_b(source: str) -> bool:
        return source == "b"

    assert registry.admitted(only_b) == features("y:1")
    assert registry.resource("x:1", only_b) == FeaturePlace(source="b", name="x:1")  # b is asked, and a is not
    with pytest.raises(ToolFailure, match="'toolcrib://a/x:1'"):
        registry.resource("toolcrib://a/x:1", only_b)
    with pytest.raises(ToolFailure, match="'a__p'"):
        registry.prompt("a__p", only_b)


def test_prompts_are_named_like_tools_and_the_second_of_a_name_is_a_problem() -> None:
    registry = FeatureRegistry()
    for source, prefix in (("a", True), ("b", False), ("c", False)):
        registry.declare(source, prefix=prefix)
        registry.put(source, features(prompts=("greet",)))

    assert [entry["name"] for entry in registry.admitted(everybody).prompts] == ["a__greet", "greet"]
    assert registry.prompt("greet", everybody) == FeaturePlace(source="b", name="greet")
    assert registry.problems == (
        Problem(
            source="c",
            code="collision",
            message="its prompt greet is not offered: b has the name greet already",
            hint="give one of the servers another name",
        ),
    )


def test_what_is_taken_away_frees_its_names() -> None:
    registry = registry_of(a=features("x:1"), b=features("x:1"))
    before = registry.version

    assert (registry.remove("a"), registry.remove("a")) == (True, False)
    assert registry.version != before
    assert registry.resource("x:1", everybody) == FeaturePlace(source="b", name="x:1")


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("x://{id}/data", "x://7/data", True),
        ("x://{id}/data", "x://7/8/data", False),
        ("x://{id}/data", "x:///data", False),
        ("x://{id}", "x://7/data", False),
        ("x://{+path}", "x://7/data", True),
        ("x://a{?q,r}", "x://a", True),
        ("x://a{?q,r}", "x://a?q=1", True),
        ("x://a", "x://a", True),
        ("x://a", "x://ab", False),
        ("x://{a}-{b}", "x://1-2", True),
    ],
)
def test_a_template_fits_what_it_can_make(template: str, uri: str, fits: bool) -> None:
    assert matches(template, uri) is fits


def test_no_template_takes_long_to_match() -> None:
    template, uri = "x:" + "{+a}b" * 300 + "c", "x:" + "b" * 2000
    began = time.monotonic()

    assert not matches(template, uri)
    assert time.monotonic() - began < 10

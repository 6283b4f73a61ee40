"""Groups of skills expand to names and tags, whoever chose them and however they are spelled."""

from toolcrib.catalog.skill_groups import Expansion, SkillGroup, SkillGroups

GROUPS = SkillGroups.of(
    {
        "writing": {"description": "texts", "skills": ["style-learner", "humanizer"]},
        "data_analysis": {
            "description": "tables",
            "skills": ["excel-analyzer", "csv-processor"],
            "capabilities": ["data_processing", "visualization"],
        },
        "_always": {"skills": ["local-search"], "capabilities": ["files"]},
    }
)


def test_groups_expand_to_skills_and_tags_and_the_one_that_always_counts_is_with_them() -> None:
    assert GROUPS.expand(["data-analysis", "writing", "writing"]) == Expansion(
        skills=("local-search", "excel-analyzer", "csv-processor", "style-learner", "humanizer"),
        capabilities=("files", "data_processing", "visualization"),
    )


def test_a_name_that_is_no_group_is_told_and_the_others_count() -> None:
    assert GROUPS.expand(["nothing"]) == Expansion(
        skills=("local-search",), capabilities=("files",), unknown=("nothing",)
    )


def test_a_group_may_be_a_bare_list() -> None:
    assert SkillGroups.of({"a": ["x", "y"]}).groups == (SkillGroup(name="a", skills=("x", "y")),)


def test_what_is_wrong_in_one_group_is_told_and_hides_no_other() -> None:
    groups = SkillGroups.of({"a": 5, "b": {"skils": ["x"]}, "c": {"skills": ["x", 3]}})

    assert [(group.name, group.skills) for group in groups.groups] == [("b", ()), ("c", ("x",))]
    assert groups.problems == (
        "skill_groups.a: a mapping with `skills` was expected",
        "skill_groups.b.skils: unknown key, not used; did you mean 'skills'?",
        "skill_groups.c.skills: a list of names was expected; other items are left out",
    )


def test_what_is_no_mapping_at_all_gives_no_groups() -> None:
    assert SkillGroups.of([1]).problems == ("skill_groups: a mapping from group to its skills was expected",)


def test_a_skill_knows_its_groups_by_any_spelling() -> None:
    assert [group.name for group in GROUPS.of_skill("excel_analyzer")] == ["data_analysis"]


def test_a_skill_that_a_text_names_adds_its_group_to_those_that_were_chosen() -> None:
    assert GROUPS.named_in("run the Style Learner on this", ["data_analysis"]) == ("data_analysis", "writing")
    assert GROUPS.named_in("lifestyle learnership; local-search") == ()


def test_the_description_names_groups_and_some_skills_but_not_the_group_that_always_counts() -> None:
    many = SkillGroups.of({"big": {"skills": list("abcdefgh")}})

    assert GROUPS.described() == (
        "- writing: texts (style-learner, humanizer)\n- data_analysis: tables (excel-analyzer, csv-processor)"
    )
    assert many.described() == "- big: (a, b, c, d, e, f, 2 more)"


def test_groups_of_two_places_are_put_together() -> None:
    other = SkillGroups.of({"writing": ["poet"], "new": ["x"]})

    joined = GROUPS.joined(other)

    assert joined.expand(["writing", "new"]).skills == ("local-search", "style-learner", "humanizer", "poet", "x")
    assert joined.groups[0].description == "texts"

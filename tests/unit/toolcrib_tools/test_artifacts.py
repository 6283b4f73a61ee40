"""What an agent made: a file needs another look as soon as what it was made from is another one, whoever changed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib_tools import artifacts, files
from toolcrib_tools.artifacts import collection
from unit.toolcrib_tools.telling import refused, told

GUESTS = (artifacts, files)


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    for name, text in {
        "src/api.py": "def orders(): ...\n",
        "src/models.py": "class Order: ...\n",
        "docs/api.md": "# API\n",
        "site/api.html": "<h1>API</h1>\n",
        "tests/test_api.py": "def test_orders(): ...\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


async def track(session: Session, path: str, *related: str, kind: str = "document", **more: Any) -> dict[str, Any]:
    """Track a file; return how it stands without the time."""
    described = {"artifact_type": kind, "description": f"on {path}", "related_to": list(related)}
    made = await told(session, "track_artifact", path=path, **described, **more)
    assert made.pop("tracked").startswith("20")
    return dict(made)


async def standing(session: Session, **asked: Any) -> dict[str, list[str]]:
    """Why each listed artifact needs a look, by path."""
    listed = await told(session, "list_tracked_artifacts", **asked)
    return {one["path"]: one["reasons"] for one in listed["artifacts"]}


async def test_a_tracked_file_is_told_with_what_it_was_made_from(session: Session) -> None:
    made = await track(session, "./docs//api.md", "src/api.py", "src/api.py", tags=["api", " api"], notes="n")

    assert made == {
        "path": "docs/api.md",
        "artifact_type": "document",
        "description": "on ./docs//api.md",
        "tags": ["api"],
        "notes": "n",
        "related_to": ["src/api.py"],
        "status": "current",
        "reasons": [],
        "changed": False,
        "reviewed": None,
    }


@pytest.mark.parametrize("how", ["by a tool", "outside", "removed"])
async def test_a_change_of_what_it_was_made_from_is_noticed_whoever_made_it(
    session: Session, folder: Path, how: str
) -> None:
    await track(session, "docs/api.md", "src/api.py", "src/models.py")
    await track(session, "tests/test_api.py", "src/models.py", kind="test")
    if how == "by a tool":
        await told(session, "edit_file", path="src/api.py", search="orders", replace="items")
    elif how == "outside":
        (folder / "src/api.py").write_text("def items(): ...\n")
    else:
        (folder / "src/api.py").unlink()

    reason = "src/api.py is not there any more" if how == "removed" else "src/api.py has changed since"
    assert await standing(session) == {"docs/api.md": [reason], "tests/test_api.py": []}
    listed = await told(session, "list_tracked_artifacts", needs_review=True)
    assert (len(listed["artifacts"]), listed["total"], listed["needing_review"]) == (1, 2, 1)


async def test_a_change_that_is_taken_back_was_none(session: Session, folder: Path) -> None:
    await track(session, "docs/api.md", "src/api.py")
    before = (folder / "src/api.py").read_text()
    (folder / "src/api.py").write_text("other")
    assert await standing(session, needs_review=True) == {"docs/api.md": ["src/api.py has changed since"]}

    (folder / "src/api.py").write_text(before)
    assert await standing(session, needs_review=True) == {}


async def test_a_change_is_told_with_its_reason_to_all_that_hang_on_the_file(session: Session, folder: Path) -> None:
    await track(session, "docs/api.md", "src/api.py")
    await track(session, "tests/test_api.py", "src/api.py", kind="test")
    await track(session, "site/api.html", "docs/api.md")
    (folder / "src/api.py").write_text("def orders(page): ...\n")

    done = await told(session, "notify_change", path="src/api.py", reason="orders takes a page")
    again = await told(session, "notify_change", path="src/api.py", reason="orders takes a page")
    assert done == again
    assert done == {
        "path": "src/api.py",
        "flagged": ["docs/api.md", "tests/test_api.py"],
        "changed": True,
        "later": ["site/api.html"],
    }
    reasons = ["src/api.py changed: orders takes a page", "src/api.py has changed since"]
    assert await standing(session) == {"docs/api.md": reasons, "site/api.html": [], "tests/test_api.py": reasons}
    nothing = await told(session, "notify_change", path="src/models.py", reason="x")
    assert nothing == {"path": "src/models.py", "flagged": [], "changed": False, "later": []}


async def test_after_a_review_what_is_there_counts_as_right(session: Session, folder: Path) -> None:
    await track(session, "docs/api.md", "src/api.py")
    await track(session, "site/api.html", "docs/api.md")
    (folder / "src/api.py").write_text("changed")
    (folder / "docs/api.md").write_text("follows")
    await told(session, "flag_for_review", path="docs/api.md", reason=" examples ")
    assert await standing(session) == {
        "docs/api.md": ["examples", "src/api.py has changed since"],
        "site/api.html": ["docs/api.md has changed since"],
    }

    done = await told(session, "acknowledge_review", path="docs/api.md", paths=["nowhere.md"], notes="ran them")
    (one,) = done["acknowledged"]
    assert one["reviewed"].pop("time").startswith("20")
    assert one["reviewed"] == {"outcome": "updated", "notes": "ran them"}
    assert (one["status"], one["changed"]) == ("current", False)
    assert done["not_tracked"] == [{"path": "nowhere.md", "reason": "'nowhere.md' is not tracked"}]
    assert await standing(session, needs_review=True) == {"site/api.html": ["docs/api.md has changed since"]}
    done = await told(session, "acknowledge_review", paths=["site/api.html"])
    assert done["acknowledged"][0]["reviewed"]["outcome"] == "unchanged"
    done = await told(session, "acknowledge_review", paths=["site/api.html"], was_updated=True)
    assert done["acknowledged"][0]["reviewed"]["outcome"] == "updated"
    assert await standing(session, needs_review=True) == {}


async def test_what_hangs_on_a_file_is_known_before_it_is_changed(session: Session) -> None:
    await track(session, "docs/api.md", "src/api.py")
    await track(session, "site/api.html", "docs/api.md", "src/models.py")

    brief = await told(session, "check_related_artifacts", path="src/api.py", verbose=False)
    whole = await told(session, "check_related_artifacts", path="src/api.py")
    own = await told(session, "check_related_artifacts", path="site/api.html")
    assert brief == {
        "path": "src/api.py",
        "related": [
            {"path": "docs/api.md", "through": "src/api.py"},
            {"path": "site/api.html", "through": "docs/api.md"},
        ],
        "made_from": [],
    }
    assert [one["artifact"]["description"] for one in whole["related"]] == ["on docs/api.md", "on site/api.html"]
    assert own == {"path": "site/api.html", "related": [], "made_from": ["docs/api.md", "src/models.py"]}


async def test_files_that_are_made_from_one_another_are_reached_once(session: Session) -> None:
    await track(session, "docs/api.md", "site/api.html")
    await track(session, "site/api.html", "docs/api.md")

    found = await told(session, "check_related_artifacts", path="docs/api.md", verbose=False)
    assert found["related"] == [{"path": "site/api.html", "through": "docs/api.md"}]


async def test_what_is_known_of_a_file_is_changed_bit_by_bit(session: Session, folder: Path) -> None:
    await track(session, "docs/api.md", "src/api.py", tags=["a", "b"], notes="old")
    (folder / "src/api.py").write_text("changed")

    one = await told(
        session,
        "update_tracked_artifact",
        path="docs/api.md",
        description="new",
        artifact_type="schema",
        add_related=["src/models.py"],
        add_tags=["c"],
        remove_tags=["a"],
    )
    assert (one["description"], one["artifact_type"], one["tags"], one["notes"]) == ("new", "schema", ["b", "c"], "old")
    assert one["related_to"] == ["src/api.py", "src/models.py"]
    assert one["reasons"] == ["src/api.py has changed since"]
    one = await told(session, "update_tracked_artifact", path="docs/api.md", remove_related=["src/api.py"], notes="")
    assert (one["related_to"], one["reasons"], one["notes"]) == (["src/models.py"], [], "")
    one = await told(
        session, "update_tracked_artifact", path="docs/api.md", related_to=["src/api.py"], tags=["z"], mark_updated=True
    )
    assert (one["related_to"], one["tags"], one["reviewed"]["outcome"]) == (["src/api.py"], ["z"], "updated")


async def test_lists_are_narrowed_by_type_and_tag(session: Session) -> None:
    await track(session, "docs/api.md", tags=["api"])
    await track(session, "tests/test_api.py", kind="test", tags=["api"])
    await track(session, "site/api.html", kind="other")

    assert list(await standing(session, tag="api")) == ["docs/api.md", "tests/test_api.py"]
    assert list(await standing(session, artifact_type="test")) == ["tests/test_api.py"]
    assert list(await standing(session, artifact_type="test", tag="other")) == []


async def test_a_file_that_is_untracked_stays(session: Session, folder: Path) -> None:
    await track(session, "docs/api.md")
    await track(session, "site/api.html")

    done = await told(session, "untrack_artifact", paths=["docs/api.md", "docs/other.md"])
    assert done["untracked"] == ["docs/api.md"]
    assert [one["path"] for one in done["not_tracked"]] == ["docs/other.md"]
    assert (folder / "docs/api.md").exists()
    assert list(await standing(session)) == ["site/api.html"]
    (folder / "site/api.html").unlink()
    assert await standing(session) == {"site/api.html": ["the file itself is not there any more"]}
    assert (await told(session, "untrack_artifact", path="site/api.html"))["untracked"] == ["site/api.html"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("track_artifact", {"path": "docs/apy.md"}, "there is no 'docs/apy.md'\ndid you mean docs/api.md?"),
    ("track_artifact", {"path": "docs"}, "'docs' is a folder"),
    ("track_artifact", {"path": "docs/api.md", "related_to": ["src/apis.py"]}, "there is no 'src/apis.py'"),
    ("track_artifact", {"path": "docs/api.md", "related_to": ["docs/api.md"]}, "cannot be made from itself"),
    ("track_artifact", {"path": "../outside.md"}, "denied"),
    ("track_artifact", {"path": "tests/test_api.py"}, "'tests/test_api.py' is tracked already"),
    ("track_artifact", {"path": "docs/api.md", "artifact_type": "picture"}, "artifact_type"),
    ("update_tracked_artifact", {"path": "tests/test_apis.py"}, "did you mean tests/test_api.py?"),
    ("flag_for_review", {"path": "docs/api.md", "reason": "x"}, "'docs/api.md' is not tracked"),
    ("acknowledge_review", {}, "path: is missing"),
    ("acknowledge_review", {"path": "docs/api.md"}, "'docs/api.md' is not tracked"),
    ("untrack_artifact", {"paths": []}, "path: is missing"),
    ("untrack_artifact", {"path": "docs/api.md"}, "'docs/api.md' is not tracked"),
    ("check_related_artifacts", {"path": "/etc/passwd"}, "denied"),
]


async def test_what_cannot_be_is_refused_with_what_to_do(session: Session) -> None:
    await track(session, "tests/test_api.py", kind="test")
    for name, arguments, reason in REFUSED:
        needed = {"artifact_type": "document", "description": "d"} if name == "track_artifact" else {}
        assert reason in await refused(session, name, **{**needed, **arguments})
        assert list(await standing(session)) == ["tests/test_api.py"]


async def test_a_file_too_large_to_be_read_counts_as_changed_by_its_size_and_time(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_MOST_BYTES", 10)
    await track(session, "docs/api.md", "src/api.py")
    assert await standing(session) == {"docs/api.md": []}

    (folder / "src/api.py").write_text("x" * 20)
    assert await standing(session) == {"docs/api.md": ["src/api.py has changed since"]}


async def test_a_change_that_waits_for_review_is_seen_by_who_made_it_only(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.md").write_text("a")
    (folder / "b.py").write_text("b")
    plain = crib.session(profile="flat", mode="autonomous", workspace=folder)
    reviewed = crib.session(profile="flat", mode="review", workspace=folder)
    await track(plain, "a.md", "b.py")
    await told(reviewed, "write_file", path="b.py", content="changed")

    assert await standing(reviewed) == {"a.md": ["b.py has changed since"]}
    assert await standing(plain) == {"a.md": []}


async def test_artifacts_belong_to_a_principal_and_a_workspace(
    crib: Toolcrib, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    await track(session, "docs/api.md")

    elsewhere = crib.session(profile="flat", mode="autonomous", workspace=tmp_path / "other")
    bob = crib.session(profile="flat", mode="autonomous", principal="bob", workspace=tmp_path / "work")
    assert (await standing(elsewhere), await standing(bob)) == ({}, {})
    assert list(await standing(crib.session(profile="flat", workspace=tmp_path / "work"))) == ["docs/api.md"]


async def test_no_more_are_tracked_than_there_is_room_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_MOST", 1)
    await track(session, "docs/api.md")

    described = {"artifact_type": "document", "description": "d"}
    assert "1 files are tracked already" in await refused(session, "track_artifact", path="site/api.html", **described)

"""Earlier versions of documents and of their tree: each is listed, read and restored."""

from __future__ import annotations

from typing import Any

from unit.toolcrib_work.people import Person


def outline(nodes: list[dict[str, Any]]) -> list[Any]:
    """A tree by its titles, each with what is below it."""
    return [(node["title"], outline(node["children"])) for node in nodes]


async def test_the_last_fifty_versions_of_a_document_are_listed_and_read(ada: Person) -> None:
    id = await ada.made("document", await ada.project(), "Notes")
    for number in range(2, 56):
        await ada.ok("onto.document.update", document_id=id, content=f"v{number}")

    listed = await ada.ok("x.document.version.list", document_id=id)
    oldest = await ada.ok("x.document.version.get", document_id=id, version=5)

    assert (listed["current"], listed["total"]) == (55, 50)
    assert [one["version"] for one in listed["versions"]] == list(range(54, 4, -1))
    assert {(one["title"], one["characters"]) for one in listed["versions"]} == {("Notes", 2), ("Notes", 3)}
    replaced_at = listed["versions"][-1]["replaced_at"]
    assert oldest["version"] == {
        "version": 5,
        "title": "Notes",
        "description": "",
        "content": "v5",
        "replaced_at": replaced_at,
    }
    assert await ada.refused("x.document.version.get", document_id=id, version=4) == ("NOT_FOUND", [])
    assert await ada.refused("x.document.version.get", document_id=id, version=55) == ("VALIDATION_ERROR", ["version"])


async def test_a_restored_version_is_the_next_one_and_what_it_replaces_is_kept(ada: Person) -> None:
    project_id = await ada.project()
    id = await ada.made("document", project_id, "Brief", content="Copper")
    await ada.ok("onto.document.update", document_id=id, title="Brief 2", description="Wrong", content="Lead")

    restored = await ada.ok("x.document.version.restore", document_id=id, version=1)
    tree = await ada.ok("onto.document.tree.get", project_id=project_id)
    replaced = await ada.ok("x.document.version.get", document_id=id, version=2)

    names = ("version", "title", "description", "content")
    assert [restored["document"][name] for name in names] == [3, "Brief", "", "Copper"]
    assert outline(tree["structure"]["root"]) == [("Brief", [])]
    assert [replaced["version"][name] for name in names] == [2, "Brief 2", "Wrong", "Lead"]


async def test_a_restored_tree_has_the_documents_of_today_in_their_earlier_places(ada: Person) -> None:
    project_id = await ada.project()
    folder = await ada.made("document", project_id, "Folder")
    gone = await ada.made("document", project_id, "Gone", parent_id=folder)
    inner = await ada.made("document", project_id, "Inner", parent_id=gone)
    other = await ada.made("document", project_id, "Other")
    before = (await ada.ok("onto.document.tree.get", project_id=project_id))["structure"]
    await ada.ok("onto.document.tree.move", project_id=project_id, document_id=other, new_parent_id=inner)
    await ada.ok("onto.document.delete", document_id=gone)
    await ada.ok("onto.document.update", document_id=folder, title="Chapters")
    await ada.made("document", project_id, "New", parent_id=folder)
    present = (await ada.ok("onto.document.tree.get", project_id=project_id))["structure"]

    wanted = {"project_id": project_id, "version": before["version"]}
    shown = await ada.ok("x.document.tree.version.get", **wanted)
    unchanged = (await ada.ok("onto.document.tree.get", project_id=project_id))["structure"]
    restored = (await ada.ok("x.document.tree.version.restore", **wanted))["structure"]

    assert outline(present["root"]) == [("Chapters", [("New", [])])]
    assert outline(restored["root"]) == [("Chapters", [("Inner", []), ("New", [])]), ("Other", [])]
    assert (shown["structure"]["root"], unchanged) == (restored["root"], present)
    assert [node["order"] for node in restored["root"][0]["children"]] == [0, 1]
    assert restored["version"] == present["version"] + 1
    assert (await ada.ok("onto.document.tree.get", project_id=project_id))["unlinked"] == []


async def test_the_last_fifty_states_of_a_tree_are_listed(ada: Person) -> None:
    project_id = await ada.project()
    first = await ada.made("document", project_id, "First")
    await ada.made("document", project_id, "Second")
    for number in range(54):
        await ada.ok("onto.document.tree.move", project_id=project_id, document_id=first, new_position=number % 2)

    listed = await ada.ok("x.document.tree.version.list", project_id=project_id)

    assert (listed["current"], listed["total"]) == (56, 50)
    assert [(one["version"], one["documents"]) for one in listed["versions"]] == [(n, 2) for n in range(55, 5, -1)]
    gone = {"project_id": project_id, "version": 5}
    assert await ada.refused("x.document.tree.version.restore", **gone) == ("NOT_FOUND", [])
    present = {"project_id": project_id, "version": 56}
    assert await ada.refused("x.document.tree.version.restore", **present) == ("VALIDATION_ERROR", ["version"])

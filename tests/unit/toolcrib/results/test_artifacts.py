"""Large outputs on disk: private, owned, paged, bounded."""

import base64
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import ToolFailure
from toolcrib.results.artifacts import Artifact, Artifacts, Page
from toolcrib.results.settings import RetentionSettings

TEXT = "text/plain"


async def test_an_artifact_is_read_in_pages_that_lead_to_one_another() -> None:
    artifacts = Artifacts(None)
    artifact = artifacts.put(b"abcdefghij", "ada", TEXT)

    first = await artifacts.read(artifact.id, "ada", 0, 6)
    second = await artifacts.read(artifact.id, "ada", 6, 6)

    assert first == Page(id=artifact.id, mime_type=TEXT, size=10, offset=0, next_offset=6, text="abcdef")
    assert second == Page(id=artifact.id, mime_type=TEXT, size=10, offset=6, next_offset=None, text="ghij")
    artifacts.close()


async def test_a_negative_offset_counts_from_the_end_and_one_beyond_it_is_refused() -> None:
    artifacts = Artifacts(None)
    artifact = artifacts.put(b"abcdefghij", "ada", TEXT)

    assert (await artifacts.read(artifact.id, "ada", -4)).text == "ghij"
    with pytest.raises(ToolFailure, match="offset 11 is beyond the end: the artifact has 10 bytes"):
        await artifacts.read(artifact.id, "ada", 11)
    artifacts.close()


async def test_pages_of_binary_data_are_base64() -> None:
    artifacts = Artifacts(None)
    artifact = artifacts.put(b"\x00\xff\x01", "ada", "image/png")

    assert base64.b64decode((await artifacts.read(artifact.id, "ada")).text) == b"\x00\xff\x01"
    artifacts.close()


@pytest.mark.slow
@given(text=st.text(min_size=1, max_size=60), limit=st.integers(1, 9))
async def test_pages_joined_are_the_text_whatever_the_page_size(text: str, limit: int) -> None:
    artifacts = Artifacts(None)
    text = text.encode("utf-8", "replace").decode()
    artifact = artifacts.put(text.encode(), "ada", TEXT)
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await artifacts.read(artifact.id, "ada", offset, limit)
        pages.append(page.text)
        offset = page.next_offset
    artifacts.close()

    assert "".join(pages) == text


@pytest.mark.parametrize("name", ["0" * 32, "", "../../etc/passwd", "0" * 31 + "/", "A" * 32])
async def test_an_unknown_id_and_somebody_elses_are_answered_alike(name: str) -> None:
    artifacts = Artifacts(None)
    artifact = artifacts.put(b"secret", "ada", TEXT)

    with pytest.raises(ToolFailure) as unknown:
        await artifacts.read(name, "ada")
    with pytest.raises(ToolFailure) as foreign:
        await artifacts.read(artifact.id, "bob")

    assert (unknown.value.code, unknown.value.message, unknown.value.hint) == (
        foreign.value.code,
        foreign.value.message,
        foreign.value.hint,
    )
    assert unknown.value.code == "not_found"
    artifacts.close()


async def test_files_are_private_and_survive_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    artifact = Artifacts(folder).put(b"kept", "ada", TEXT)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert (await Artifacts(folder).read(artifact.id, "ada")).text == "kept"
    assert len(artifact.id) * 4 >= 128


def test_more_than_one_artifact_may_hold_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, RetentionSettings(each=100))

    with pytest.raises(ToolFailure) as refused:
        artifacts.put(b"x" * 101, "ada", TEXT)

    assert (refused.value.code, [file.name for file in tmp_path.iterdir()]) == ("too_large", [".key"])


def test_a_full_folder_refuses_until_old_artifacts_are_swept(tmp_path: Path) -> None:
    now = 1_000_000.0
    artifacts = Artifacts(tmp_path, RetentionSettings(quota=20_000, keep=60.0), clock=lambda: now)
    old = artifacts.put(b"x" * 12_000, "ada", TEXT)
    _age(tmp_path, now)

    with pytest.raises(ToolFailure) as refused:
        artifacts.put(b"y" * 12_000, "ada", TEXT)
    now += 61
    new = artifacts.put(b"y" * 12_000, "ada", TEXT)

    assert refused.value.code == "too_large"
    assert artifacts.find(new.id, "ada") == new
    with pytest.raises(ToolFailure):
        artifacts.find(old.id, "ada")


def test_a_full_folder_is_not_looked_through_for_each_output_that_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    scandir = os.scandir

    def looked(path: Any) -> Any:
        looks.append(path)
        return scandir(path)

    artifacts = Artifacts(tmp_path, RetentionSettings(quota=20_000))
    artifacts.put(b"x" * 12_000, "ada", TEXT)
    monkeypatch.setattr(os, "scandir", looked)
    begun = time.monotonic()
    for _ in range(50):
        with pytest.raises(ToolFailure):
            artifacts.put(b"y" * 12_000, "ada", TEXT)

    assert len(looks) <= 1 + (time.monotonic() - begun)


def test_in_a_full_folder_the_owner_that_uses_most_makes_room_for_the_others(tmp_path: Path) -> None:
    now = [1_000_000.0]
    artifacts = Artifacts(tmp_path, RetentionSettings(quota=100_000), clock=lambda: now[0])
    hoard: list[Artifact] = []
    with pytest.raises(ToolFailure) as refused:
        for number in range(100):
            now[0] += 1
            hoard.append(artifacts.put(b"%d" % number * 500, "eve", TEXT))
    bobs = [artifacts.put(b"%d" % number * 500, "bob", TEXT) for number in range(5)]

    def kept(of: list[Artifact], owner: str) -> list[bool]:
        found: list[bool] = []
        for artifact in of:
            try:
                found.append(artifacts.find(artifact.id, owner) == artifact)
            except ToolFailure:
                found.append(False)
        return found

    assert (refused.value.code, kept(bobs, "bob")) == ("too_large", [True] * 5)
    assert kept(hoard, "eve") == sorted(kept(hoard, "eve"))  # the oldest went
    with pytest.raises(ToolFailure):
        artifacts.put(b"x" * 60_000, "bob", TEXT)  # bob would use the most
    assert kept(bobs, "bob") == [True] * 5


def test_many_small_artifacts_count_as_what_they_take_on_the_disk_and_push_out_nobody(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, RetentionSettings(quota=200_000))
    bobs = artifacts.put(b"x" * 60_000, "bob", TEXT)
    with pytest.raises(ToolFailure) as refused:
        for number in range(100):
            artifacts.put(b"%d" % number, "eve", TEXT)

    assert refused.value.code == "too_large"
    assert artifacts.find(bobs.id, "bob") == bobs
    assert sum(max(file.stat().st_size, 4096) for file in tmp_path.iterdir()) <= 204_096
    artifacts.put(b"y" * 20_000, "bob", TEXT)  # of eve's, though each of them is smaller
    assert artifacts.find(bobs.id, "bob") == bobs


async def test_the_time_of_an_output_and_of_a_list_does_not_grow_with_the_descriptions_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = Artifacts(tmp_path, RetentionSettings(quota=300_000))
    bobs = artifacts.put(b"bob's", "bob", TEXT)
    with pytest.raises(ToolFailure):
        for number in range(100):
            artifacts.put(b"%d" % number, "eve", TEXT)
    read: list[str] = []
    text_of = Path.read_text

    def noted(path: Path, *given: Any, **more: Any) -> str:
        read.append(path.stem)
        return text_of(path, *given, **more)

    monkeypatch.setattr(Path, "read_text", noted)
    new = Artifacts(tmp_path, RetentionSettings(quota=300_000)).put(b"y" * 20_000, "bob", TEXT)

    assert {one.id for one in await artifacts.recent("bob")} == {bobs.id, new.id}
    assert set(read) == {bobs.id, new.id}


def test_a_temporary_folder_is_gone_after_closing() -> None:
    artifacts = Artifacts(None)
    artifact = artifacts.put(b"x", "ada", TEXT)
    artifacts.close()

    with pytest.raises(ToolFailure):
        artifacts.find(artifact.id, "ada")


def test_what_cannot_be_written_is_a_storage_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "artifacts"
    blocked.write_text("a file where the folder should be")

    with pytest.raises(ToolFailure) as refused:
        Artifacts(blocked).put(b"x", "ada", TEXT)

    assert refused.value.code == "storage"


def test_an_artifact_names_its_resource() -> None:
    artifact = Artifact(id="ab" * 16, owner="ada", mime_type="application/json", size=1, created=0.0)

    assert (artifact.uri, artifact.is_text) == (f"toolcrib://artifact/{'ab' * 16}", True)


def _age(folder: Path, now: float) -> None:
    for file in folder.iterdir():
        os.utime(file, (now, now))


async def test_the_same_output_of_the_same_principal_is_kept_once_under_an_id_that_its_content_does_not_give_away(
    tmp_path: Path,
) -> None:
    artifacts = Artifacts(tmp_path / "a")
    first, again, other = (artifacts.put(b"the same", owner, TEXT) for owner in ("ada", "ada", "bob"))
    elsewhere = Artifacts(tmp_path / "b").put(b"the same", "ada", TEXT)

    assert (first.id == again.id, first.sha256 == other.sha256) == (True, True)
    assert len({first.id, other.id, elsewhere.id}) == 3
    assert len(list((tmp_path / "a").glob("*.data"))) == 2
    assert Artifacts(tmp_path / "a").put(b"the same", "ada", TEXT).id == first.id
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a").iterdir()} == {0o600}


def test_what_is_put_again_counts_once_and_is_kept_for_longer(tmp_path: Path) -> None:
    now = [time.time() - 50]
    artifacts = Artifacts(tmp_path, RetentionSettings(quota=17_000, keep=60.0), clock=lambda: now[0])
    first = artifacts.put(b"x" * 1000, "ada", TEXT)
    for _ in range(5):
        artifacts.put(b"x" * 1000, "ada", TEXT)
    now[0] += 100
    assert artifacts.put(b"x" * 1000, "ada", TEXT).id == first.id
    now[0] += 40
    artifacts.sweep()
    assert artifacts.find(first.id, "ada").created == now[0] - 40


def test_content_that_strangers_wrote_is_not_taken_for_the_same_from_here(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    here = artifacts.put(b"words", "ada", TEXT)
    theirs = artifacts.put(b"words", "ada", TEXT, source="web", trust="untrusted")

    assert here.id != theirs.id
    assert (artifacts.find(theirs.id, "ada").trust, artifacts.find(theirs.id, "ada").source) == ("untrusted", "web")
    assert artifacts.find(here.id, "ada").trust == "local"


async def test_a_text_is_found_with_its_line_its_offset_and_the_number_of_lines(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    text = "".join(f"line {number} says {'Heron' if number % 10 == 0 else 'none'}\r\n" for number in range(100))
    kept = artifacts.put(text.encode(), "ada", TEXT)
    found = await artifacts.search(kept.id, "ada", "HERON", limit=2)

    assert (found.total, [hit.line for hit in found.hits]) == (10, [1, 11])
    assert [text[hit.offset :].startswith(hit.text) for hit in found.hits] == [True, True]
    assert found.hits[1].text == "line 10 says Heron"
    assert (await artifacts.search(kept.id, "ada", "pelican")).total == 0
    with pytest.raises(ToolFailure) as caught:
        await artifacts.search(kept.id, "bob", "heron")
    assert caught.value.code == "not_found"


async def test_of_a_long_line_the_pieces_around_what_was_found_are_shown(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    line = "é" * 5000 + "heron" + "é" * 5000 + "heron"
    kept = artifacts.put(f"first\n{line}\n".encode(), "ada", TEXT)
    found = await artifacts.search(kept.id, "ada", "heron")

    assert (found.total, {hit.line for hit in found.hits}) == (2, {2})
    assert all("heron" in hit.text and len(hit.text) < 300 and set(hit.text) <= set("éheron") for hit in found.hits)


async def test_what_is_removed_is_gone_and_makes_room(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, RetentionSettings(quota=17_000))
    kept = artifacts.put(b"x" * 9000, "ada", TEXT)
    await artifacts.remove(kept.id, "ada")

    assert await artifacts.recent("ada") == []
    artifacts.put(b"y" * 9000, "ada", TEXT)

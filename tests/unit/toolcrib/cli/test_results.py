"""`toolcrib results`: what is kept of long outputs, for the person whose it is."""

from __future__ import annotations

from toolcrib.core.session import LOCAL
from toolcrib.errors import CODES
from toolcrib.results.artifacts import Artifacts

from .conftest import User

TEXT = "\n".join(f"line {number}: \x1b[1mheron\x1b[0m" for number in range(3))


def kept(user: User, owner: str = LOCAL) -> str:
    folder = user.home / ".local/share/toolcrib/artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    return Artifacts(folder).put(TEXT.encode(), owner, "text/plain", source="birds", trust="untrusted").id


def test_kept_results_are_listed_with_size_source_and_trust_and_only_the_users_own(user: User) -> None:
    mine, theirs = kept(user), kept(user, "ada")
    shown = user.types("results").stdout
    listed = user.reads("results")

    assert (mine in shown, theirs in shown, "untrusted" in shown, "birds" in shown) == (True, False, True, True)
    assert [(one["id"], one["size"], one["source"], "owner" in one) for one in listed] == [
        (mine, len(TEXT), "birds", False)
    ]


def test_a_result_is_shown_in_pages_with_escapes_unless_it_is_wanted_raw(user: User) -> None:
    id = kept(user)
    page = user.types("results", "show", id, "--offset", "4", "--limit", "10")
    raw = user.types("results", "show", id, "--raw")

    assert (page.stdout, page.stderr) == (" 0: \\x1b[1mhe\n", f"{len(TEXT) - 14} bytes follow: --offset 14\n")
    assert raw.stdout == f"{TEXT}\n"


def test_a_text_is_found_with_line_and_offset(user: User) -> None:
    id = kept(user)

    assert user.types("results", "search", id, "LINE 1").stdout.startswith("2 @")
    assert [hit["line"] for hit in user.reads("results", "search", id, "heron")["hits"]] == [1, 2, 3]


def test_a_removed_result_is_gone(user: User) -> None:
    id = kept(user)

    assert user.types("results", "rm", id).exit_code == 0
    assert user.types("results", "show", id).exit_code == CODES["not_found"].exit
    assert user.reads("results") == []


def test_wrong_words_end_with_the_nearest_action_or_the_missing_argument(user: User) -> None:
    for words, message in (
        (["shwo"], "did you mean show?"),
        (["--json", "shwo"], "did you mean show?"),
        (["show"], "Missing argument 'ID'"),
        (["search", "x"], "Missing argument 'TEXT'"),
    ):
        result = user.types("results", *words)
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr

"""Listing and searching: with ripgrep and without, by the rules of .gitignore, within what a result may take."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolcrib.core.call_guards import Signal
from toolcrib.plugin import Context, ToolFailure
from toolcrib_tools._workspace.patterns import IgnoreRules, parse_glob
from toolcrib_tools.files import find_and_replace, glob_files, list_directory
from toolcrib_tools.search import grep, search_files

from .conftest import PROGRAMS

pytestmark = pytest.mark.process


def plant(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


# Patterns of paths


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("/*.py", ["a.py"], ["x/a.py"]),
        ("./*.py", ["a.py"], ["x/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "x/src/a.py"]),
        ("**/test/*", ["test/a", "x/test/a"], ["test/x/a"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "asrc/a"]),
        ("*.{py,pyi}", ["a.py", "a.pyi"], ["a.pyx"]),
        ("{src,lib}/*.py", ["src/a.py", "lib/b.py"], ["x/src/a.py"]),
        ("[ab]?.t[!x]t", ["a1.txt".replace("x", "y"), "bz.tat"], ["c1.tyt", "a1.txt"]),
        ("!*.min.js", ["a.js"], ["a.min.js", "x/a.min.js"]),
        (r"a\*b", ["a*b"], ["axb"]),
        ("a.b", ["a.b"], ["axb"]),
        ("docs/", ["docs/a", "docs/x/b"], ["docs", "x/docs/a"]),
        ("**", ["a", "x/y"], []),
    ],
)
def test_a_pattern_takes_what_ripgrep_would(pattern: str, taken: list[str], left: list[str]) -> None:
    glob = parse_glob(pattern)

    assert ([path for path in taken if not glob.takes(path)], [path for path in left if glob.takes(path)]) == ([], [])


@pytest.mark.parametrize("pattern", ["", "/", "!", "{a,b", "a\\", "[z-a]"])
async def test_a_pattern_that_means_nothing_is_refused(ctx: Context, pattern: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        await glob_files(pattern, ctx)

    assert failure.value.code == "invalid_arguments"


_RULES = st.lists(
    st.sampled_from(
        [
            "a",
            "/a",
            "a/",
            "*.x",
            "!b.x",
            "a/b",
            "**/b",
            "a/**",
            "a/**/c.x",
            "!a/",
            "/*",
            "!/a",
            "b*",
            "?.x",
            "[ab]",
            "#a",
        ]
    ),
    max_size=5,
)


@pytest.mark.long
@given(top=_RULES, inner=_RULES)
def test_what_is_ignored_is_what_git_ignores(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], inner: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("repo")
    names = [f"{parent}{name}" for parent in ("", "a/", "b/", "a/b/", "a/b/c/") for name in ("d.x", "b.x", "c.x", "e")]
    plant(folder, dict.fromkeys(names, ""))
    plant(folder, {".gitignore": "\n".join(top), "a/.gitignore": "\n".join(inner)})
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}
    subprocess.run(["git", "init", "-q", "."], cwd=folder, env=env, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=folder,
        env=env,
        check=True,
        capture_output=True,
    )
    rules = IgnoreRules()
    rules.put("", {".gitignore": "\n".join(top)})
    rules.put("a", {".gitignore": "\n".join(inner)})

    def is_left_out(name: str) -> bool:
        steps = name.split("/")
        folders = ["/".join(steps[:count]) for count in range(1, len(steps))]
        return any(rules.leaves_out(one, is_folder=True) for one in folders) or rules.leaves_out(name, is_folder=False)

    theirs = {name for name in listed.stdout.decode().split("\0") if name and not name.endswith(".gitignore")}
    assert {name for name in names if not is_left_out(name)} == theirs


# Listing


async def test_a_folder_is_listed_with_sizes_kinds_and_levels(folder: Path, ctx: Context) -> None:
    plant(folder, {"b.txt": "12345", "src/a.py": "x", "src/deep/c.py": "", ".hidden": "", ".git/config": "x"})
    (folder / "link").symlink_to("b.txt")
    os.mkfifo(folder / "pipe")

    assert (await list_directory(ctx, depth=2)).splitlines() == [
        *(".git/", ".hidden  0", "b.txt  5", "link  (link)", "pipe  (other)", "src/", "  a.py  1", "  deep/"),
    ]
    assert await list_directory(ctx, "src", hidden=False) == "a.py  1\ndeep/"
    assert await list_directory(ctx, max_results=1) == (
        ".git/\n[the first 1 are shown, there are more; list a folder in it, or set a smaller depth]"
    )
    (folder / "empty").mkdir()
    assert await list_directory(ctx, "empty") == "['empty' is empty]"
    with pytest.raises(ToolFailure):
        await list_directory(ctx, "b.txt")


async def test_a_long_listing_fits_the_result(folder: Path, ctx: Context) -> None:
    for number in range(400):
        (folder / f"a rather long name of a file {number}.txt").touch()

    shown = await list_directory(replace(ctx, result_bytes=4_000))

    assert len(shown.encode()) <= 4_000
    lines = shown.splitlines()
    assert lines[-1].startswith(f"[{400 - len(lines) + 1} more lines left out; ")


async def test_files_are_found_by_pattern_without_what_is_ignored(folder: Path, ctx: Context, engine: str) -> None:
    plant(
        folder,
        {
            ".gitignore": "build/\n*.log\n!keep.log\n",
            "src/.gitignore": "/gen\n",
            "src/.ignore": "!gen\nskipped.py\n",
            "a.py": "",
            "src/b.py": "",
            "src/gen/c.py": "",
            "src/skipped.py": "",
            "build/d.py": "",
            "e.log": "",
            "keep.log": "",
            ".venv/f.py": "",
            ".git/g.py": "",
        },
    )

    assert (await glob_files("*.py", ctx)).split() == ["a.py", "src/b.py", "src/gen/c.py"]
    assert (await glob_files("*.log", ctx)).split() == ["keep.log"]
    assert (await glob_files("*.py", ctx, ignored=True)).split() == [
        *("a.py", "build/d.py", "src/b.py", "src/gen/c.py", "src/skipped.py"),
    ]
    assert (await glob_files("*.py", ctx, hidden=True)).split() == [".venv/f.py", "a.py", "src/b.py", "src/gen/c.py"]
    assert (await glob_files(".venv/*", ctx)).split() == [".venv/f.py"]
    assert (await glob_files("*.py", ctx, path="src")).split() == ["src/b.py", "src/gen/c.py"]
    assert (await glob_files("gen/*.py", ctx, path="./src/")).split() == ["src/gen/c.py"]
    assert (await glob_files("*.py", ctx, path="build")).split() == ["build/d.py"]
    assert (await glob_files("*.py", ctx, max_results=1)).splitlines()[1].startswith("[the first 1 of 3 are shown")
    assert await glob_files("*.rs", ctx) == "[no file below '.' matches '*.rs'; ignored files were not looked at]"


async def test_guarded_files_are_not_found_and_do_not_stop_the_search(folder: Path, ctx: Context, engine: str) -> None:
    plant(folder, {".ssh/id_rsa": "KEY", "sub/.env": "KEY", "sub/deploy.pem": "KEY", "zz/a.txt": "KEY"})

    assert (await glob_files("*", ctx, hidden=True)).split() == ["zz/a.txt"]
    assert (await search_files("*.pem", ctx)).startswith("[nothing below '.' is called like '*.pem'; ")
    assert (await grep("KEY", ctx, hidden=True)).splitlines()[0] == "zz/a.txt:1:KEY"


async def test_the_newest_files_come_first_when_that_is_wanted(folder: Path, ctx: Context) -> None:
    for age, name in enumerate(("new.txt", "old.txt", "ancient.txt")):
        (folder / name).touch()
        os.utime(folder / name, (1_700_000_000 - age, 1_700_000_000 - age))

    assert (await glob_files("*.txt", ctx, sort="modified")).split() == ["new.txt", "old.txt", "ancient.txt"]


async def test_a_file_is_found_by_a_part_of_its_name_the_best_first(folder: Path, ctx: Context, engine: str) -> None:
    names = ["user.py", "src/user.py", "src/user_model.py", "src/models/superuser.py", "user/readme.md", "src/other.py"]
    plant(folder, dict.fromkeys(names, ""))

    assert (await search_files("user", ctx)).split() == [
        *("user.py", "src/user.py", "src/user_model.py", "src/models/superuser.py", "user/readme.md"),
    ]
    assert (await search_files("userModel", ctx)).split() == ["src/user_model.py"]
    assert (await search_files("models user", ctx)).split() == ["src/models/superuser.py"]
    assert (await search_files("*_MODEL.*", ctx)).split() == ["src/user_model.py"]
    assert (await search_files("user", ctx, type="folder")).split() == ["user/"]
    assert (await search_files("readme", ctx, path="user", type="any")).split() == ["user/readme.md"]
    assert await search_files("zzz", ctx) == "[nothing below '.' is called like 'zzz'; 6 files were looked at]"


# grep


async def test_matching_lines_are_shown_with_path_and_number(folder: Path, ctx: Context, engine: str) -> None:
    plant(folder, {"a.py": "one\ntwo\n# two three\n", "sub/b.txt": b"TWO\r\ntwo\r\n", "c.bin": b"two\0", ".h": "two"})

    assert (await grep("two", ctx)).splitlines() == ["a.py:2:two", "a.py:3:# two three", "sub/b.txt:2:two"]
    assert (await grep("^two$", ctx, case_insensitive=True)).splitlines() == [
        *("a.py:2:two", "sub/b.txt:1:TWO", "sub/b.txt:2:two"),
    ]
    assert (await grep("two", ctx, output="count")).splitlines() == [
        *("a.py:2", "sub/b.txt:1", "[3 matching lines in 2 files]"),
    ]
    assert await grep("two", ctx, output="files_with_matches", glob="*.txt") == "sub/b.txt"
    assert await grep("two", ctx, type="python", max_results=1) == (
        "a.py:2:two\n[1 of at least 2 matching lines shown: narrow it with path, glob or type]"
    )
    assert await grep("two", ctx, path="sub") == "sub/b.txt:2:two"
    assert await grep("two", ctx, path="a.py") == "a.py:2:two\na.py:3:# two three"
    assert await grep("two", ctx, path=".h") == ".h:1:two"
    assert await grep(".", ctx, path="sub", literal=True) == "[nothing in 'sub' matches '.']"


async def test_lines_around_a_match_are_shown_once(folder: Path, ctx: Context, engine: str) -> None:
    plant(folder, {"a.txt": "1\n2 x\n3\n4\n5 x\n6\n7\n8\n9\n10 x", "b.txt": "x\n"})

    assert (await grep("x", ctx, context=1)).splitlines() == [
        *("a.txt-1-1", "a.txt:2:2 x", "a.txt-3-3", "a.txt-4-4", "a.txt:5:5 x", "a.txt-6-6", "--"),
        *("a.txt-9-9", "a.txt:10:10 x", "--", "b.txt:1:x"),
    ]


async def test_what_is_found_fits_the_result_in_whole_lines(folder: Path, ctx: Context, engine: str) -> None:
    plant(folder, {"a.txt": "".join(f"{number} needle {'x' * 60}\n" for number in range(1_000))})
    shown = await grep("needle", replace(ctx, result_bytes=6_000), max_results=500)
    *lines, note = shown.splitlines()
    plant(folder, {"min.js": "y" * 100_000 + "needle" + "z" * 100_000})

    assert len(shown.encode()) <= 6_000
    assert {len(line.partition(":")[2].partition(" needle ")[2]) for line in lines} == {60}
    assert note.startswith(f"[{len(lines)} of at least 1000 matching lines shown")
    (line,) = (await grep("needle", ctx, path="min.js")).splitlines()
    assert len(line) < 600
    assert line.startswith("min.js:1:…yyy")
    assert line.endswith("zzz… [cut: 200006 bytes]")
    assert "needle" in line


async def test_context_that_does_not_fit_leaves_the_match(folder: Path, ctx: Context) -> None:
    plant(folder, {"a.txt": "".join(f"{'x' * 400}\n" for _ in range(40)) + "needle\n"})

    shown = await grep("needle", replace(ctx, result_bytes=2_000), context=20)

    assert shown == "a.txt:41:needle"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"\bcaf\b", ["u.txt:1:un café"]),
        (r"\bcafé\b", [r"[nothing in '.' matches '\\bcafé\\b']"]),
        (r"un \pL+$", ["u.txt:1:un café"]),
        (r"caf.$", ["u.txt:1:un café"]),
        (r"\w+@\w+", ["u.txt:2:a@b"]),
        (r"^\s*$", ["u.txt:3:"]),
        (r"[[:digit:]]{2}", ["u.txt:4:x 42 -- a{,2}"]),
        (r"[a&&]", ["u.txt:1:un café", "u.txt:2:a@b", "u.txt:4:x 42 -- a{,2}"]),
        (r"a{,2}", ["u.txt:4:x 42 -- a{,2}"]),
        (r"\Aun", ["u.txt:1:un café"]),
        (r"\<|@", ["u.txt:2:a@b"]),
        (r"(?i)UN|X\z", ["u.txt:1:un café"]),
    ],
)
async def test_a_pattern_means_the_same_with_and_without_ripgrep(
    folder: Path, ctx: Context, engine: str, pattern: str, found: list[str]
) -> None:
    plant(folder, {"u.txt": "un café\na@b\n\nx 42 -- a{,2}\n"})

    assert (await grep(pattern, ctx)).splitlines() == found


async def test_both_engines_find_the_same_in_any_tree(
    folder: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    words = ["alpha", "Beta", "gamma_1", "é", "x+y", "[z]", "", "  "]
    for number in range(150):
        path = "/".join(chance.choice(["a", "b", ".c", "node_modules", "d.x"]) for _ in range(chance.randint(0, 3)))
        lines = [" ".join(chance.choices(words, k=4)) for _ in range(chance.randint(0, 8))]
        plant(
            folder,
            {f"{path}/f{number}.{chance.choice(['py', 'md', 'log'])}": chance.choice(["\n", "\r\n"]).join(lines)},
        )
    plant(folder, {".gitignore": "node_modules/\n*.log\n!f1*.log\n", "a/.gitignore": "/b\n", "b/a/.ignore": "*.md\n"})
    patterns = ["alpha", r"\balpha\s+Beta\b", r"^é", r"[^\w\s]", "x+y", r"gamma_\d$", r"\S+$", "(?i)BETA"]
    asked: list[dict[str, object]] = [
        {"pattern": pattern, "path": path, "hidden": hidden, "ignored": ignored, "max_results": 500, "context": context}
        for pattern in patterns
        for path, hidden, ignored, context in ((".", False, False, 0), ("a", True, False, 1), ("b/a", False, True, 0))
    ]

    found: dict[str, list[str]] = {}
    for name, path in (("ripgrep", str(PROGRAMS)), ("python", str(folder))):
        monkeypatch.setenv("PATH", path)
        wide = replace(ctx, result_bytes=1_000_000)
        found[name] = [await grep(ctx=wide, **arguments) for arguments in asked]  # pyright: ignore[reportArgumentType]

    assert found["ripgrep"] == found["python"]
    assert sum(text.count("\n") for text in found["python"]) > 500


async def test_what_may_not_be_read_is_not_searched(folder: Path, ctx: Context, tmp_path: Path, engine: str) -> None:
    plant(tmp_path, {"outside.txt": "SECRET"})
    plant(folder, {".env": "SECRET", "a.txt": "SECRET at home", "big.txt": "SECRET" + "x" * (16 << 20)})
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "linked").symlink_to(tmp_path)
    os.link(tmp_path / "outside.txt", folder / "hard.txt")
    os.mkfifo(folder / "pipe.txt")

    shown = await grep("SECRET", ctx, hidden=True)

    lines = shown.splitlines()
    assert (lines[0], len(lines), shown.count("SECRET")) == ("a.txt:1:SECRET at home", 2, 1)
    assert lines[1] == "[not searched, as too large: big.txt; not searched, as not for tools: 2 files]"
    with pytest.raises(ToolFailure):
        await grep("SECRET", ctx, path=".env")


async def test_hostile_names_are_no_options_and_no_commands(folder: Path, ctx: Context, engine: str) -> None:
    names = ["-rf", "--pre=sh", "$(id)", "a;b", "with space", "ünï", "*", "--", "a\nb"]
    plant(folder, dict.fromkeys(names, "needle"))
    (folder / os.fsdecode(b"\xff\xfe")).write_text("needle")

    shown = (await grep("needle", ctx)).splitlines()

    assert shown == [f"{name}:1:needle" for name in sorted(names) if "\n" not in name]
    assert await grep("--pre=sh", ctx) == "[nothing in '.' matches '--pre=sh']"
    assert await grep("needle", ctx, path="--pre=sh") == "--pre=sh:1:needle"


async def test_a_hostile_configuration_of_ripgrep_changes_nothing(
    folder: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(tmp_path, {"rgrc": f"--pre={tmp_path / 'run'}\n--follow\n", "run": f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n"})
    (tmp_path / "run").chmod(0o755)
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rgrc"))
    monkeypatch.setenv("PATH", str(PROGRAMS))
    plant(folder, {"a.txt": "needle\n"})

    assert await grep("needle", ctx) == "a.txt:1:needle"
    assert not (tmp_path / "ran").exists()


async def test_what_ripgrep_finds_elsewhere_is_not_shown(
    folder: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As when a folder becomes a link while ripgrep walks."""
    plant(tmp_path, {"outside/secret.txt": "needle"})
    plant(folder, {"a.txt": "needle"})
    (folder / "swapped").symlink_to(tmp_path / "outside")
    names = "./a.txt\\0./swapped/secret.txt\\0../outside/secret.txt\\0"
    plant(tmp_path, {"programs/rg": f"#!/bin/sh\nprintf '{names}'\n"})
    (tmp_path / "programs" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))

    assert await glob_files("*.txt", ctx) == "a.txt"
    assert await search_files("txt", ctx) == "a.txt"
    assert await grep("needle", ctx, output="files_with_matches") == (
        "a.txt\n[not searched, as not for tools: 2 files]"
    )


@pytest.mark.long
async def test_a_large_file_is_searched_when_it_is_named(folder: Path, ctx: Context) -> None:
    with (folder / "big.log").open("wb") as file:
        file.writelines([b"x" * 99 + b"\n"] * 900_000)
        file.write(b"the needle\n")

    assert await grep("needle", ctx, path="big.log") == "big.log:900001:the needle"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "("}, "the pattern is not a regular expression that is known here: missing ): ("),
        ({"pattern": r"(a)\1"}, "the pattern is not a regular expression that is known here: "),
        ({"pattern": "a\nb"}, "a match lies within one line"),
        ({"pattern": "a", "type": "cobol"}, "there is no type 'cobol'"),
        ({"pattern": "a", "path": "nowhere"}, "there is no 'nowhere'"),
        ({"pattern": "a", "path": "../"}, "'../' goes up with `..`"),
    ],
)
async def test_what_cannot_be_searched_is_told(ctx: Context, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        await grep(ctx=ctx, **arguments)  # pyright: ignore[reportArgumentType]

    assert failure.value.message.startswith(message)


async def test_a_search_that_is_no_longer_wanted_ends(folder: Path, ctx: Context) -> None:
    plant(folder, {"a.txt": "needle\n" * 10})
    late = replace(ctx, signal=Signal(deadline=0))

    for call in (grep("needle", late), find_and_replace("needle", "pin", late)):
        with pytest.raises(ToolFailure) as failure:
            await call
        assert failure.value.code == "timeout"
    assert (folder / "a.txt").read_text() == "needle\n" * 10


async def test_a_pattern_of_too_many_steps_is_refused(ctx: Context) -> None:
    with pytest.raises(ToolFailure, match=r"the pattern repeats too much|too large"):
        await grep(r"\pL{1000}", ctx)


async def test_a_pattern_never_reaches_over_a_line(folder: Path, ctx: Context, engine: str) -> None:
    """What would look ahead to the end of the file at every line would take for ever."""
    plant(folder, {"a.txt": "line\n" * 400_000 + "y\n"})

    assert await grep("[^x]*y", ctx) == "a.txt:400001:y"
    assert await grep(r"e\sl", ctx) == r"[nothing in '.' matches 'e\\sl']"
    assert (await grep("(?s)e.*y|^$", ctx)).startswith("[nothing in ")


async def test_a_pattern_and_a_text_made_to_hurt_end(folder: Path, ctx: Context, engine: str) -> None:
    plant(folder, {"a.txt": "a" * 1_000_000 + "!\n"})

    assert await grep(r"(a*)*(a|a?)+$", ctx) != ""
    assert await grep(r"^(([a-z])+.)+[A-Z]([a-z])+$", ctx) == "[nothing in '.' matches '^(([a-z])+.)+[A-Z]([a-z])+$']"

"""`docs/how-to/install.md`: a wheel that runs in an empty environment, and entries that outlive a clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import default
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from packaging.specifiers import SpecifierSet

from docs.documents import DOCUMENTS
from rig import PATIENCE, ROOT
from toolcrib.cli.clients.own_environment import installed_distributions, needed_distributions

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def ran(command: list[str | Path], folder: Path, env: Mapping[str, str]) -> str:
    """Run a command that succeeds and return what it prints."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE * 4)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def newcomer(home: Path) -> dict[str, str]:
    """Return the environment of somebody whose shell knows neither this clone nor its virtual environment."""
    return {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(home)}


def repack(one: Distribution, folder: Path) -> None:
    """Write the wheel again that a distribution was installed from."""
    *_, tag = (line[5:] for line in (one.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: "))
    name = f"{one.metadata['Name'].replace('-', '_')}-{one.version}-{tag}.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for file in one.files or ():
            if (
                file.parts[0] != ".."
                and "__pycache__" not in file.parts
                and (found := Path(str(file.locate()))).is_file()
            ):
                wheel.write(found, str(file))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with our wheel, built by `make wheel`, and those of what it requires and no more."""
    folder = tmp_path_factory.mktemp("wheels")
    ran(["make", "wheel", f"DIST={folder}"], ROOT, os.environ)
    there = installed_distributions()
    for name, one in needed_distributions(there, extras=frozenset()).items():
        if name != "toolcrib":
            repack(one, folder)
    return folder


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with nothing but our wheel and what it requires."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    ran([sys.executable, "-m", "venv", "--without-pip", environment], ROOT, os.environ)
    options = ["--no-index", "--find-links", str(wheels), "--no-compile", "toolcrib"]
    own_settings = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_CONSTRAINT": "", "PIP_FIND_LINKS": ""}
    ran([*PIP, "--python", environment, "install", *options], ROOT, own_settings)
    return environment


def test_the_wheel_demonstrates_itself_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    shown = ran([installed / "bin" / "toolcrib", "demo", "--once"], tmp_path, newcomer(tmp_path))

    assert "> call_tool time__current_time" in shown


def test_the_package_page_is_the_readme_without_a_link_that_leads_nowhere(wheels: Path) -> None:
    (wheel,) = wheels.glob("toolcrib-*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = BytesParser(policy=default).parsebytes(files.read(name))

    assert (metadata["Description-Content-Type"], metadata["Name"]) == ("text/markdown", "toolcrib")
    tokens = [
        child
        for token in MarkdownIt().enable("table").parse(str(metadata.get_payload()))
        for child in token.children or []
    ]
    texts = " ".join(child.content for child in tokens)
    assert ("Twelve MCP servers fill the context." in texts, "From 12 servers to one" in texts) == (True, True)
    links = [
        str(child.attrs.get("href") or child.attrs.get("src"))
        for child in tokens
        if child.type in ("link_open", "image")
    ]
    assert [link for link in links if "://" not in link] == []


def test_no_page_installs_from_a_public_index() -> None:
    pattern = re.compile(r"(?:pip|pipx|tool) install (?:--upgrade )?['\"]?toolcrib(?!\[[^\]]*\] @)|uvx toolcrib")

    assert [page.name for page in DOCUMENTS if pattern.search(page.read_text("utf-8"))] == []


def test_the_page_names_every_extra_of_a_user() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"].keys()
    section = (
        (ROOT / "docs" / "how-to" / "install.md").read_text("utf-8").partition("## Extras")[2].partition("\n## ")[0]
    )
    named = {
        name
        for row in section.splitlines()
        for name in re.findall(r"`([a-z-]+)`", row.split("|")[1] if "|" in row else "")
    }

    assert named == extras - {"bench", "dev", "docs", "test-peers"}


def test_an_installed_program_is_what_an_entry_names(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text("{}")

    ran([installed / "bin" / "toolcrib", "connect", "cursor", "--no-start"], tmp_path, newcomer(tmp_path))

    assert json.loads(file.read_text())["mcpServers"]["toolcrib"]["command"] == str(installed / "bin" / "toolcrib")


def test_an_entry_from_a_clone_starts_a_copy_that_has_nothing_of_the_clone(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text("{}")
    typed = [Path(sys.executable).with_name("toolcrib"), "connect", "cursor", "--no-start"]

    first, again = (
        subprocess.run(
            typed,
            cwd=tmp_path,
            env=newcomer(tmp_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE * 4,
            check=True,
        )
        for _ in range(2)
    )

    program = Path(json.loads(file.read_text())["mcpServers"]["toolcrib"]["command"])
    data = tmp_path / ".local" / "share" / "toolcrib"
    assert program == data / "environment" / "bin" / "toolcrib"
    assert (len(list((data / "environments").iterdir())), "has Toolcrib already" in again.stdout) == (1, True)
    assert [f"copied this environment: entries start {program}" in one.stderr for one in (first, again)] == [
        True,
        False,
    ]
    assert [*data.glob("environment/lib/*/site-packages/zensical")] == [], "the tools of our own site stay behind"
    loaded = ran([program.parent / "python", "-c", _LOADED], tmp_path, newcomer(tmp_path))
    assert [path for path in json.loads(loaded) if Path(path).is_relative_to(ROOT)] == []
    assert str(ROOT) not in program.read_text()
    assert ran([program, "version"], tmp_path, newcomer(tmp_path)).startswith("toolcrib ")


def test_every_pinned_package_takes_the_first_python_3_11_that_a_system_brings() -> None:
    """Debian 12 has 3.11.2: a pin that asks for a later one leaves its users without `make test` and the image."""
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").split()}
    here = [one.metadata for one in distributions() if one.name in pinned]
    asked = {one["Name"]: one["Requires-Python"] for one in here if "Requires-Python" in one}

    assert [name for name, versions in asked.items() if not SpecifierSet(versions).contains("3.11.2")] == []
    assert len(asked) > 100


def test_the_image_is_built_of_files_and_extras_that_exist() -> None:
    """No engine runs here: what can be checked without one is that every step of the Dockerfile has what it needs."""
    lines = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8")).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}

    known = {
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "RUN",
        "USER",
        "VOLUME",
        "WORKDIR",
    }
    assert {word for word, _ in steps} <= known
    copied = {name for word, rest in steps if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]}
    assert copied == kept
    assert {name for name in copied if not (ROOT / name).exists()} == set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = next(
        rest.partition("=")[2].split(",") for word, rest in steps if word == "ARG" and rest.startswith("EXTRAS")
    )
    assert set(extras) <= project["optional-dependencies"].keys()
    assert {"README.md", "hatch_build.py", *project["license-files"], "pyproject.toml", "src"} <= copied
    init, _, program = next(json.loads(rest) for word, rest in steps if word == "ENTRYPOINT")
    assert program in project["scripts"]
    assert any(init in rest.split() for word, rest in steps if word == "RUN")


_LOADED = """\
import json, sys, toolcrib.cli.commands.connect, toolcrib.cli.processes.server, toolcrib_agent, toolcrib_tools

files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
print(json.dumps([*sys.path, *files]))
"""
"""What the copy would load: the folders that it imports from, and the files that it has imported."""

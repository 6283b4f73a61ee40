"""The skills extension (SEP-2640) by the official suite: a gateway that serves a folder of skills passes every check.

The suite runs these scenarios only where they are named: an extension is on no revision's list of requirements.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig import free_port, node, node_env, npm_package_main, serving

SCENARIOS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")
SUITE_SECONDS = 120
FILES = {
    "fold/SKILL.md": "---\nname: fold\ndescription: How to fold a letter.\n---\nFold it twice.\n",
    "fold/references/a b.md": "Mind the edge.\n",
    "seal/SKILL.md": '---\nname: seal\ndescription: How to seal it.\nmetadata: {version: "1.0"}\n---\nUse wax.\n',
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway with two skills."""
    home = tmp_path_factory.mktemp("skills")
    for name, text in FILES.items():
        file = home / "skills" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    config, port = home / "gateway.yaml", free_port()
    config.write_text(json.dumps({"skills": [str(home / "skills")], "builtins": False}))
    command = [Path(sys.executable).with_name("toolcrib"), "serve", "--http", "--port", str(port)]
    command += ["--config", str(config), "--profile", "flat", "--mode", "autonomous"]
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA", "STATE")}
    env = node_env({"HOME": str(home), "XDG_RUNTIME_DIR": str(home), **folders})
    with serving(command, port=port, log=home / "gateway.log", env=env):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.timeout(SUITE_SECONDS + 60)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_check_of_the_skills_extension_is_made_and_passes(scenario: str, url: str, tmp_path: Path) -> None:
    words = ["server", "--url", url, "--scenario", scenario, "--spec-version", "2026-07-28", "--force"]
    done = subprocess.run(
        [node(), npm_package_main("@modelcontextprotocol/conformance"), *words, "-o", tmp_path],
        env=node_env({"NO_COLOR": "1"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )

    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    assert len(checks) >= 5, done.stdout[-2000:] + done.stderr[-2000:]
    assert [(one["id"], one["status"], one.get("errorMessage")) for one in checks if one["status"] != "SUCCESS"] == []

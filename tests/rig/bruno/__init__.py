"""Bruno's own parser of its files (npm `@usebruno/lang`, pinned here), to compare ours with."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rig.node import ROOT, ensure_npm, node, node_env

__all__ = ["read_by_bruno"]

_HERE = Path(__file__).parent
_HOME = ROOT / ".cache" / "bruno"
_SECONDS = 120


def read_by_bruno(files: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what Bruno makes of files, by path; installs its parser where it is not there (some seconds)."""
    home = ensure_npm(_HERE / "package.json", _HOME)
    script = home / "read.cjs"
    script.write_bytes((_HERE / "read.cjs").read_bytes())
    done = subprocess.run(
        [str(node()), str(script)],
        input=json.dumps(dict(files)),
        capture_output=True,
        check=True,
        env=node_env(),
        text=True,
        timeout=_SECONDS,
    )
    return json.loads(done.stdout)

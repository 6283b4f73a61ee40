"""The 59 skills of seed 004 as folders, made from their names: the seed gives them no capability tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from toolcrib.catalog.skill_groups import SkillGroups
from toolcrib.crib import Session
from toolcrib.sources.skills.skill_scan import SkillRoot
from toolcrib.sources.skills.source import SkillsOptions, SkillsSource

SKILLS: Final = """
1password apple-notes apple-reminders bear-notes bird blogwatcher blucli bluebubbles browser camsnap canvas clawdhub
coding-agent discord eightctl food-order gemini gifgrep github gog goplaces himalaya imsg local-places mcporter
model-usage nano-banana-pro nano-pdf notion obsidian openai-image-gen openai-whisper openai-whisper-api openhue oracle
ordercli peekaboo planning-task ppt-generator remotion sag session-logs sherpa-onnx-tts skill-creator slack
slidespeak-editor slidespeak-generator slidespeak-slide-editor songsee sonoscli spotify-player summarize things-mac tmux
trello video-frames voice-call wacli weather
""".split()

GROUPS: Final = {
    "slides": {"description": "presentations", "skills": ["ppt-generator", "slidespeak-generator"]},
    "research": {"skills": ["summarize"], "capabilities": ["web_browsing"]},
    "notes": ["apple-notes", "bear-notes", "obsidian"],
}


def names(session: Session) -> list[str]:
    """Return the names of the tools that were selected, in order, without the meta-tools that select and call more."""
    return [tool.name for tool in session.tools if tool.name not in ("select_tools", "call_tool")]


def write_skill(root: Path, name: str, **frontmatter: object) -> None:
    """Write one skill folder below `root`."""
    folder = root / name
    folder.mkdir(parents=True)
    said = {"name": name, "description": f"Use when the task is about {name}.", **frontmatter}
    lines = "\n".join(f"{key}: {value}" for key, value in said.items())
    (folder / "SKILL.md").write_text(f"---\n{lines}\n---\n# {name}\n\nHow to do {name}.\n", encoding="utf-8")
    (folder / "reference.md").write_text(f"More about {name}.\n", encoding="utf-8")


def skills_of(root: Path, names: Iterable[str], groups: Mapping[str, object]) -> SkillsSource:
    """Return a source of skills, made below `root` if they are not there."""
    for name in names:
        if not (root / name).exists():
            write_skill(root, name)
    return SkillsSource("skills", (SkillRoot.named(root),), SkillsOptions(groups=SkillGroups.of(groups)))

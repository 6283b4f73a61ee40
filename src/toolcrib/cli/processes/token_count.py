"""Token counts of texts, in a process of its own, which reads a JSON list of texts and writes one of numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from subprocess import CalledProcessError

import anyio
from msgspec import Struct

from ...core.json import dumps, loads
from ...telemetry.tokens import estimate, tokenizer


class Counts(Struct, frozen=True, kw_only=True):
    """Tokens of some texts, in their order, and what they were counted with."""

    tokenizer: str
    exact: bool
    tokens: tuple[int, ...]

    def shown(self, tokens: int) -> str:
        """Return a figure for people: `6,059`, or `≈6,059` for an estimate."""
        return f"{tokens:,}" if self.exact else f"≈{tokens:,}"


async def count(texts: Sequence[str]) -> Counts:
    """Count apart from this process; where no other can be started, estimate."""
    command = [sys.executable, "-P", "-m", "toolcrib.cli.processes.token_count"]
    try:
        done = await anyio.run_process(command, input=dumps(list(texts)))
        counts = loads(done.stdout)
    except (OSError, ValueError, CalledProcessError):
        return Counts(tokenizer="estimated: UTF-8 bytes / 4", exact=False, tokens=tuple(map(estimate, texts)))
    return Counts(tokenizer=counts["tokenizer"], exact=counts["exact"], tokens=tuple(counts["tokens"]))


def main() -> None:
    """Answer one question."""
    texts: list[str] = loads(sys.stdin.buffer.read())
    counter = tokenizer()
    tokens = [counter.count(text) for text in texts]
    sys.stdout.buffer.write(dumps({"tokenizer": counter.name, "exact": counter.exact, "tokens": tokens}))


if __name__ == "__main__":
    main()

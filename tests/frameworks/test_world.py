"""What the cases say of themselves holds where no framework is in between."""

from __future__ import annotations

import pytest

from frameworks.cases import CASES, OTHERS, Case, reference
from frameworks.workbench import Workbench
from toolcrib import Toolcrib
from toolcrib.telemetry.tokens import definition_tokens, tokenizer


@pytest.mark.parametrize("case", [*CASES, *OTHERS], ids=lambda case: case.name)
async def test_a_case_comes_to_what_it_says(case: Case) -> None:
    outcome = await reference(case)

    assert (outcome.ran, outcome.asked, outcome.loaded) == (case.ran, case.asked, case.loaded)
    assert len(outcome.results) == len(case.says)
    assert all(part in text for part, text in zip(case.says, outcome.results, strict=True))


async def test_there_are_two_hundred_functions_that_cost_far_more_than_what_is_shown() -> None:
    async with Toolcrib() as crib:
        crib.add(Workbench().functions)

        assert (len(crib.catalog.tools), crib.problems) == (200, ())
        assert sum(definition_tokens(tool, tokenizer()) for tool in crib.catalog.tools.values()) > 8_000

"""Code of the shipped skills, run as it stands: on tables of strangers, and on tables that it does not fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import toolcrib_tools

SKILLS = Path(toolcrib_tools.__file__).parent / "_skills"


def run(skill: str) -> None:
    """Run the first block of code of a skill in the current folder."""
    code = re.search(r"```python\n(.*?)```", (SKILLS / skill / "SKILL.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    exec(compile(code[1], skill, "exec"), {})


def test_a_text_that_looks_like_a_formula_stays_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(
        'month,amount,note\nJan,10,"=HYPERLINK(""http://x.test"")"\nFeb,20,http://x.test\n'
    )

    run("excel-analyzer")

    book = openpyxl.load_workbook("analysis.xlsx")
    notes = [(cell.value, cell.data_type, cell.hyperlink) for cell in book["Data"]["C"][1:]]
    assert notes == [('=HYPERLINK("http://x.test")', "s", None), ("http://x.test", "s", None)]
    assert book["Statistics"]["B1"].value == "=SUM(Data!B2:B3)"


@pytest.mark.parametrize("skill", ["excel-analyzer", "csv-processor"])
@pytest.mark.parametrize(("table", "there_are"), [("", "none"), ("city,size\nx,1\n", "city")])
def test_a_table_without_the_columns_is_refused_with_those_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skill: str, table: str, there_are: str
) -> None:
    if skill == "excel-analyzer":
        pytest.importorskip("xlsxwriter")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(table)

    with pytest.raises(ValueError, match=f"no columns .* and amount; there are .*{there_are}"):
        run(skill)
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]

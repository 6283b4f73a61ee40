"""Our own log records hold no secrets, whoever formats them, and other programs' records are their own."""

from __future__ import annotations

import io
import logging
from collections.abc import Generator

import pytest

from toolcrib.results.redaction.output import guard_logs
from toolcrib.results.redaction.redactor import Redactor

OWN = "correct horse battery"
TOKEN = "ghp_" + "A1b2C3d4E5f6" * 3


@pytest.fixture
def guarded() -> Generator[None]:
    end = guard_logs(Redactor([OWN]))
    yield
    end()


def logged(name: str, message: str, *args: object, error: BaseException | None = None) -> str:
    """What a plain handler writes of one record."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        if error is not None:
            raise error
        logger.warning(message, *args)
    except RuntimeError:
        logger.exception(message, *args)
    finally:
        logger.removeHandler(handler)
    return written.getvalue()


@pytest.mark.usefixtures("guarded")
def test_a_message_its_arguments_and_its_exception_are_clean() -> None:
    text = logged("toolcrib.anything", "used %s", OWN, error=RuntimeError(f"no access with {TOKEN}"))
    assert (OWN in text, TOKEN in text) == (False, False)
    assert text.startswith("used [redacted:secret]\nTraceback")
    assert "RuntimeError: no access with [redacted:github_token]" in text


@pytest.mark.usefixtures("guarded")
def test_a_record_without_secrets_keeps_its_parts(caplog: pytest.LogCaptureFixture) -> None:
    logged("toolcrib.other", "call %s failed", "c1", error=RuntimeError("boom"))
    (record,) = caplog.records
    assert (record.msg, record.args, record.exc_info is not None) == ("call %s failed", ("c1",), True)


@pytest.mark.usefixtures("guarded")
def test_the_records_of_other_programs_are_left_alone() -> None:
    assert logged("toolcribs", "used %s", OWN) == f"used {OWN}\n"
    assert logged("app.main", "used %s", OWN) == f"used {OWN}\n"


@pytest.mark.usefixtures("guarded")
def test_two_cribs_guard_their_secrets_until_each_has_ended() -> None:
    end = guard_logs(Redactor(["another secret"]))
    assert logged("toolcrib.x", f"{OWN}, another secret") == "[redacted:secret], [redacted:secret]\n"
    end()
    assert logged("toolcrib.x", f"{OWN}, another secret") == "[redacted:secret], another secret\n"


def test_afterwards_the_process_makes_its_records_as_before() -> None:
    before = logging.getLogRecordFactory()
    guard_logs(Redactor())()
    assert logging.getLogRecordFactory() is before

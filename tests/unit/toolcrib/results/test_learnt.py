"""A secret that we get while we run is masked from then on, in every spelling, beside those that were configured."""

import base64

import pytest

from toolcrib.results.redaction.redactor import Redactor


def test_a_learnt_secret_is_masked_like_a_configured_one() -> None:
    redactor = Redactor(["configured-one"])
    before = redactor.text("learnt-later configured-one")
    redactor.learn(["learnt-later", "short"])

    assert before == "learnt-later [redacted:secret]"
    assert redactor.text("learnt-later configured-one short") == "[redacted:secret] [redacted:secret] short"
    assert redactor.text(base64.b64encode(b"learnt-later").decode()) == "[redacted:secret]"
    assert redactor.search.begun(b"... learnt-") == len(b"learnt-")


@pytest.mark.long
@pytest.mark.slow
def test_of_many_learnt_secrets_the_last_ones_count() -> None:
    redactor = Redactor()
    for number in range(100):
        redactor.learn([f"secret-number-{number:03}"])

    assert redactor.text("secret-number-099 secret-number-000") == "[redacted:secret] secret-number-000"

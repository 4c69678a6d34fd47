from __future__ import annotations

from unsay.cli.output import visible


def test_no_text_of_a_model_steers_the_terminal() -> None:
    assert visible("a\x1b[2J\x07\x7f\x9b31m\r\n\t") == "a^[[2J^G^?\ufffd31m^M\n\t"

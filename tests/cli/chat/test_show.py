from __future__ import annotations

from unsay.cli.chat.show import duration, excerpt, positions, truth
from unsay.session.correction import Correction


def test_every_tenth_token_has_its_position() -> None:
    assert positions([str(n % 10) for n in range(12)]) == "[0]0123456789[10]01[12]"
    assert positions(["a", "b"], first=20) == "… [20]ab[22]"


def test_an_excerpt_is_the_end_on_one_line() -> None:
    assert excerpt("a\nb") == "a⏎b"
    assert excerpt("x" * 100, 10) == "…" + "x" * 9


def test_times_have_the_unit_that_fits() -> None:
    assert [duration(s) for s in (4e-6, 0.0042, 1.5)] == ["4 us", "4.2 ms", "1.50 s"]


def test_the_line_of_truth_says_what_is_known() -> None:
    assert truth(Correction(30, 5, 2, 4e-6)) == "[30 tokens kept, 5 dropped, 2 injected; rollback 4 us]"
    assert truth(Correction(30, 0, 2, 0.0, 0.012, 2)).startswith("[30 tokens kept, 0 dropped, 2 injected; first new")
    full = truth(Correction(30, 5, 2, 4e-6, 0.012, 2))
    assert full == "[30 tokens kept, 5 dropped, 2 injected; rollback 4 us, first new token after 12.0 ms (2 computed)]"

"""Stop strings and split characters in a stream, whatever way they fall over tokens, corrections and restarts."""

from __future__ import annotations

import pytest

from unsay import Model, SamplingParams, TokenEvent


def forced(model: Model, text: str, **params: object) -> tuple[list[TokenEvent], str, str | None]:
    """Stream a session whose model can say nothing but `text`, one byte or merge at a time; its events and state."""
    ids = model.tokenize(text)
    with model.session(params=SamplingParams(temperature=0.0, ignore_eos=True)) as chat:
        chat.append("x")
        events = []
        for place, token_id in enumerate(ids):
            step = list(chat.stream(max_tokens=1, logit_bias={token_id: 1000.0}, **params))
            events += step
            assert step[0].index == place
            if step[0].finish == "stop":
                break
        return events, chat.answer, chat.finish


@pytest.mark.parametrize("text", ["naïve €5 日本語", "👍🏽 ok", "é"])
def test_split_characters_arrive_once_and_whole(model: Model, text: str) -> None:
    ids = model.tokenize(text)
    with model.session(params=SamplingParams(temperature=0.0, ignore_eos=True)) as chat:
        chat.append("x")
        shown = ""
        stream = None
        for place, token_id in enumerate(ids):
            stream = chat.stream(max_tokens=1, logit_bias={token_id: 1000.0})
            (event,) = stream
            shown += event.text.rstrip("\ufffd")
            assert chat.answer_ids == ids[: place + 1]
        assert chat.answer == text


@pytest.mark.parametrize("stop", ["DEFGHIJ", "HIJK", "ABC", "Q", "defg"])
def test_a_stop_string_never_leaks(model: Model, stop: str) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ids = model.tokenize(alphabet)
    params = SamplingParams(temperature=0.0, stop=(stop,), max_tokens=len(ids))
    shown, events = "", []
    with model.session(params=params) as chat:
        chat.append("x")
        for place, token_id in enumerate(ids):
            (event,) = chat.stream(max_tokens=1, logit_bias={token_id: 1000.0})
            events.append(event)
            if event.finish == "stop":
                break
            assert chat.finish == "length", place
            shown = chat.answer
        answer = chat.answer
    if stop in alphabet:
        assert events[-1].finish == "stop"
        assert answer == alphabet[: alphabet.index(stop)]
    else:
        assert answer == alphabet
        assert shown == alphabet


def test_a_stop_string_kept_by_a_rollback_is_completed_by_the_next_token(model: Model) -> None:
    letter = {name: model.tokenize(name)[0] for name in "ABZ"}
    with model.session(params=SamplingParams(temperature=0.0, stop=("AB",))) as chat:
        chat.append("x")
        list(chat.stream(max_tokens=1, logit_bias={letter["A"]: 1000.0}))
        list(chat.stream(max_tokens=1, logit_bias={letter["Z"]: 1000.0}))
        chat.rollback(to=1)
        (event,) = chat.stream(max_tokens=5, logit_bias={letter["B"]: 1000.0})
        assert (event.finish, event.text, chat.answer) == ("stop", "", "")


def test_events_after_a_stop_string_are_none(model: Model) -> None:
    letter = model.tokenize("A")[0]
    params = SamplingParams(temperature=0.0, stop=("AAA",), logit_bias={letter: 1000.0}, max_tokens=50)
    with model.session(params=params) as chat:
        chat.append("x")
        events = list(chat.stream())
        assert [event.finish for event in events] == [None, None, "stop"]
        assert "".join(event.text for event in events) == "" == chat.answer
        assert chat.answer_ids == [letter] * 3
        chat.user("next")
        assert chat.token_ids.count(letter) == 3, "what ran ahead is not in the context"

"""The commands of the chat: one function each, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unsay.cli.chat import show
from unsay.cli.chat.talk import Reply, Talk
from unsay.errors import RequestError


@dataclass(frozen=True, slots=True)
class Command:
    """One line of /help, and what it does with the text after its name."""

    usage: str
    summary: str
    action: Callable[[Talk, str], Reply]


def obey(talk: Talk, line: str) -> Reply:
    """Do what a line, without its slash, says. Raises UnsayError if it cannot be done."""
    name, _, rest = line.partition(" ")
    if name not in COMMANDS:
        raise RequestError(f"no command /{name}; /help lists them, and //{name} says it to the model")
    return COMMANDS[name].action(talk, rest.strip())


def _back(talk: Talk, place: str) -> Reply:
    if not place:
        raise RequestError('back to where? /back 20 is token 20 of the answer, /back "Spark" the text Spark')
    is_index = place.removeprefix("-").isdecimal()
    return talk.back(to=int(place)) if is_index else talk.back(before=_unquoted(place))


def _show(talk: Talk, _: str) -> Reply:
    return Reply(tuple(show.positions(talk.tokens).split("\n")))


def _go(talk: Talk, _: str) -> Reply:
    return talk.correct("")


def _say(talk: Talk, text: str) -> Reply:
    return talk.say(text)


def _undo(talk: Talk, _: str) -> Reply:
    talk.session.undo()
    return talk.where()


def _redo(talk: Talk, _: str) -> Reply:
    talk.session.redo()
    return talk.where()


def _fork(talk: Talk, _: str) -> Reply:
    return talk.fork()


def _switch(talk: Talk, number: str) -> Reply:
    if not number:
        return Reply(tuple(_branch_line(talk, index) for index in range(len(talk.branches))))
    wanted = _number(number, "/switch takes the number of a branch")
    if not 1 <= wanted <= len(talk.branches):
        raise RequestError(f"no branch {wanted}; there are 1..{len(talk.branches)}")
    talk.session = talk.branches[wanted - 1]
    return talk.where()


def _branch_line(talk: Talk, index: int) -> str:
    session = talk.branches[index]
    mark = "*" if session is talk.session else " "
    return f"{mark}{index + 1:>3}  {len(session.token_ids):>6} tokens  {show.excerpt(session.answer)}"


def _history(talk: Talk, _: str) -> Reply:
    return Reply(tuple(show.history_lines(talk.session.history())))


def _goto(talk: Talk, number: str) -> Reply:
    talk.session.checkout(_number(number, "/goto takes the number of a line of /history"))
    return talk.where()


def _diff(talk: Talk, numbers: str) -> Reply:
    usage = "/diff takes up to two numbers of /history"
    wanted = [_number(number, usage) for number in numbers.split()]
    if len(wanted) > 2:
        raise RequestError(usage)
    old, new = (None, None, *wanted)[-2:]
    return Reply(tuple(show.diff_lines(talk.session.diff(old, new))))


def _save(talk: Talk, name: str) -> Reply:
    if not name:
        raise RequestError("save to which file? /save talk.json")
    token_ids = talk.session.token_ids
    content = {"text": talk.model.detokenize(token_ids), "token_ids": token_ids, "answer": talk.session.answer}
    try:
        Path(name).expanduser().write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot write {name}: {error.strerror}") from error
    return Reply((f"{len(token_ids)} tokens saved to {name}",))


def _help(talk: Talk, _: str) -> Reply:
    return Reply(tuple(f"{command.usage:<18}{command.summary}" for command in COMMANDS.values()))


def _quit(talk: Talk, _: str) -> Reply:
    talk.is_over = True
    return Reply()


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _number(text: str, usage: str) -> int:
    if not text.isdecimal():
        raise RequestError(f"{text!r} is no number: {usage}")
    return int(text)


COMMANDS: dict[str, Command] = {
    "back": Command('/back 20 | "text"', "take the answer back to token 20, or to before a text", _back),
    "show": Command("/show", "the answer with token positions", _show),
    "go": Command("/go", "let the answer go on as it stands (Enter on an empty line does, too)", _go),
    "say": Command("/say TEXT", "the next message, when text would go into the open answer", _say),
    "undo": Command("/undo", "be as before the last step", _undo),
    "redo": Command("/redo", "take an undo back", _redo),
    "fork": Command("/fork", "go on in a copy; the other stays as it is", _fork),
    "switch": Command("/switch [N]", "go to branch N, or list the branches", _switch),
    "history": Command("/history", "every step, also those undone", _history),
    "goto": Command("/goto N", "be as at line N of /history", _goto),
    "diff": Command("/diff [A] [B]", "what step B has that A has not (default: the last step)", _diff),
    "save": Command("/save FILE", "write text and token ids to a JSON file", _save),
    "help": Command("/help", "this list", _help),
    "quit": Command("/quit", "end the chat (Ctrl-D does, too)", _quit),
}

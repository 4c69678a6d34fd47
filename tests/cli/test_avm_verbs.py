"""unsay asm, disasm and exec, and the page that explains them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from unsay.cli.main import main, make_verb_parser

ROOT = Path(__file__).parents[2]
CORRECT = str(ROOT / "examples" / "correct.avms")
TENSORS = str(ROOT / "examples" / "tensors.avms")


def unsay(capsys, *argv):
    """Exit code, stdout, stderr."""
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_asm_and_disasm_are_inverse(capsys, tmp_path):
    code, out, err = unsay(capsys, "asm", CORRECT, "-o", tmp_path / "a.avm")
    assert (code, out) == (0, "") and "27 instructions" in err
    code, out, _ = unsay(capsys, "disasm", tmp_path / "a.avm")
    (tmp_path / "b.avms").write_text(out)
    assert code == 0 and unsay(capsys, "asm", tmp_path / "b.avms")[0] == 0
    assert (tmp_path / "b.avm").read_bytes() == (tmp_path / "a.avm").read_bytes()


def test_asm_prints_the_program_of_a_model(capsys, tmp_path, tiny_path):
    code, out, _ = unsay(capsys, "asm", "--model", tiny_path)
    assert code == 0 and out.startswith(f'.model "{tiny_path}"\n') and "ATTN" in out and out.rstrip().endswith("HALT")
    (tmp_path / "model.avms").write_text(out)
    assert unsay(capsys, "asm", tmp_path / "model.avms")[0] == 0


def test_exec_of_a_program_without_a_model(capsys):
    assert unsay(capsys, "exec", TENSORS, "--prompt", "9 3") == (0, "0: 9 3 4\n", "")


@pytest.mark.parametrize("executor", ["native", "reference", "null"])
def test_exec_of_the_example_takes_words_back(capsys, tiny_path, executor):
    options = ["exec", CORRECT, "--model", tiny_path, "--executor", executor, "--json", "--input", "the sand"]
    code, out, _ = unsay(capsys, *options)
    plain, other = map(json.loads, out.splitlines())
    assert code == 0 and plain["token_ids"][: len(other["token_ids"])] == other["token_ids"]
    start = len(plain["token_ids"]) - len(plain["emitted"])
    code, out, _ = unsay(capsys, *options, "--correct", f"8:{start + 2}: and")
    corrected, again = map(json.loads, out.splitlines())
    assert code == 0 and again == other
    assert corrected["token_ids"][: start + 2] == plain["token_ids"][: start + 2]
    assert corrected["text"].startswith(plain["text"][: len("the sand")]) and " and" in corrected["text"]
    assert corrected["emitted"][:2] == plain["emitted"][:2]


def test_native_and_reference_execute_the_same_program_alike(capsys, tiny_path):
    options = ["exec", CORRECT, "--model", tiny_path, "--input", "on the other hand", "--executor"]
    assert unsay(capsys, *options, "native") == unsay(capsys, *options, "reference")


def test_a_compiled_model_runs_as_a_program(capsys, tmp_path, tiny_path):
    _, text, _ = unsay(capsys, "asm", "--model", tiny_path)
    (tmp_path / "model.avms").write_text(text)
    code, out, _ = unsay(capsys, "exec", tmp_path / "model.avms", "--prompt", "the", "--json")
    context, likeliest = map(json.loads, out.splitlines())
    assert code == 0 and context["text"] == "the" and len(likeliest["likeliest"]) == 5


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["asm"], "give one of the two"),
        (["asm", CORRECT, "--model", "x"], "give one of the two"),
        (["asm", "/nowhere/a.avms"], "cannot read /nowhere/a.avms"),
        (["asm", CORRECT, "-o", "/nowhere/a.avm"], "cannot write /nowhere/a.avm"),
        (["disasm", "/nowhere/a.avm"], "cannot read"),
        (["exec", CORRECT, "--input", "words"], "must be token ids, as '12 7'; or give --model"),
        (["exec", CORRECT, "--input", "1"], "--model"),
        (["exec", CORRECT, "--correct", "x"], "N:AT:TEXT"),
        (["exec", CORRECT], "nothing more will come"),
    ],
)
def test_wrong_use_says_what_to_do(capsys, argv, says):
    code, _, err = unsay(capsys, *argv)
    assert code == 1 and says in err and "Traceback" not in err


def test_the_help_of_exec_names_no_default_model():
    text = " ".join(make_verb_parser("exec").format_help().split())
    assert "(default the one the program names, if any)" in text and "smollm2" not in text


def test_errors_in_assembly_name_file_line_and_column(capsys, tmp_path):
    source = tmp_path / "bad.avms"
    source.write_text("HALT\n  JUMP lable=1\n")
    assert f"{source}:2:8: JUMP has no field lable" in unsay(capsys, "asm", source)[2]
    (tmp_path / "bad.avm").write_bytes(b"AVMP" + bytes(100))
    assert f"{tmp_path / 'bad.avm'}: not an AVM program" in unsay(capsys, "disasm", tmp_path / "bad.avm")[2]
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "neither a program file nor assembly" in unsay(capsys, "exec", tmp_path / "binary")[2]


def test_the_table_of_opcodes_in_the_docs_is_current():
    page = (ROOT / "docs" / "avm.md").read_text()
    assert runpy.run_path(str(ROOT / "scripts" / "avm-table"))["fill"](page) == page

"""compile_model: an image is complete, named by all it depends on, and found again without the compiler."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compiler.frontend.gguf_bytes import STRING, gguf, key
from tests.tiny import write_tiny_gguf
from unsay.compiler import compile as compiling
from unsay.compiler.compile import compile_model, image_key
from unsay.compiler.frontend.describe import vocab_spec
from unsay.compiler.frontend.gguf import open_gguf
from unsay.compiler.ir.core import Graph
from unsay.compiler.limits import LIMITS
from unsay.compiler.passes.pipeline import PIPELINE, UNFUSED, Pass, run_passes
from unsay.compiler.pipeline import load, to_graph
from unsay.errors import ModelFileError, ModelNotFoundError, PassError, TargetError, UnsupportedError
from unsay.image import ImageFiles, Manifest
from unsay.isa.program import Program
from unsay.runtime import native
from unsay.vocabulary import vocabulary_bytes

TARGET = "avx2"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    root = tmp_path / "cache"
    monkeypatch.setenv("UNSAY_CACHE", str(root))
    return root


@pytest.fixture(scope="module")
def made_once(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the image of the tiny model: machine code takes a second or two to make."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSAY_CACHE", str(root))
        compile_model(tiny_path, target=TARGET)
    return root


@pytest.fixture
def warm(made_once: Path, empty_cache: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageFiles:
    """The image of the tiny model, in the test's own cache."""
    shutil.copytree(made_once, empty_cache, dirs_exist_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr("unsay.compiler.pipeline.build_image", lambda _: pytest.fail("made again"))
        return compile_model(tiny_path, target=TARGET)


def leftovers(root: Path) -> list[Path]:
    """What a compilation should have cleaned up."""
    return [*root.glob("tmp/*"), *root.glob("*/*.[0-9]*")]


def children(process: int) -> list[int]:
    """Processes that it started and that have not ended, or not been waited for."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def test_an_image_of_every_variant_is_complete(tiny_variant_path: Path, empty_cache: Path) -> None:
    files = compile_model(tiny_variant_path, target=TARGET)
    manifest = Manifest.from_json(files.manifest.read_text())
    loaded = load(tiny_variant_path)
    assert manifest.spec == loaded.spec and manifest.target == TARGET
    assert (manifest.max_tokens, manifest.max_threads) == (LIMITS.max_tokens, LIMITS.max_threads)
    assert (files.cache_root / manifest.weights).stat().st_size == manifest.weights_bytes
    assert max(manifest.entry.values()) < files.code.stat().st_size
    assert len(Program.from_bytes(files.program.read_bytes())) > 0
    assert files.vocabulary.read_bytes() == vocabulary_bytes(vocab_spec(open_gguf(tiny_variant_path)))
    proofs = json.loads(files.verified.read_text())
    assert [(proof["name"], proof["status"]) for proof in proofs] == [(step.name, "proved") for step in PIPELINE]
    assert files.cache_root == empty_cache and leftovers(empty_cache) == []


def test_the_same_file_gives_the_same_bytes(
    tiny_path: Path, warm: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = warm
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "other"))
    second = compile_model(tiny_path, target=TARGET)
    assert first.directory != second.directory and first.directory.name == second.directory.name
    for path in sorted(first.directory.iterdir()):
        assert path.read_bytes() == (second.directory / path.name).read_bytes(), path.name
    weights = Manifest.from_json(first.manifest.read_text()).weights
    assert (first.cache_root / weights).read_bytes() == (second.cache_root / weights).read_bytes()


def test_a_pass_that_is_refuted_ends_the_compilation_and_no_image_is_kept(
    tiny_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fuse_ffn(graph: Graph) -> int:
        hidden = next(operation for operation in graph.operations if operation.kind == "silu_mul")
        hidden.operands = hidden.operands[::-1]
        return 1

    wrong = tuple(Pass(fuse_ffn, step.entry, step.exit) if step.name == "fuse_ffn" else step for step in PIPELINE)
    monkeypatch.setattr("unsay.compiler.pipeline.PIPELINE", wrong)
    with pytest.raises(PassError, match=r"fuse_ffn is refuted: %blk\.0\.hidden"):
        compile_model(tiny_path, target=TARGET)
    assert list(empty_cache.glob("images/*")) == [] and leftovers(empty_cache) == []


def test_a_ctrl_c_leaves_no_child_and_no_draft_and_the_next_one_compiles(
    tiny_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "repack":
            raise KeyboardInterrupt

    before = children(os.getpid())  # of tests that ran before in this process
    with pytest.raises(KeyboardInterrupt):
        compile_model(tiny_path, target=TARGET, progress=interrupt)
    assert set(children(os.getpid())) <= set(before)
    assert [*empty_cache.glob("images/*"), *empty_cache.glob("weights/*"), *leftovers(empty_cache)] == []
    compile_model(tiny_path, target=TARGET)


@pytest.mark.parametrize("sent_to", [os.kill, os.killpg], ids=["one process", "a terminal's"])
def test_the_command_line_ends_at_a_ctrl_c_with_all_it_started(
    tiny_path: Path, empty_cache: Path, sent_to: Callable[[int, int], None]
) -> None:
    command = [sys.executable, "-m", "unsay", "compile", str(tiny_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as verb:
        while not (llvm := children(verb.pid)):
            assert verb.poll() is None
            time.sleep(0.005)
        sent_to(verb.pid, signal.SIGINT)
        _, said = verb.communicate(timeout=60)
    assert (verb.returncode, said.strip()) == (130, b"")
    assert [child for child in llvm if Path(f"/proc/{child}").exists()] == []
    assert [*empty_cache.glob("images/*"), *leftovers(empty_cache)] == []


def test_a_graph_that_is_not_the_one_proved_is_not_kept(
    tiny_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsay.compiler.pipeline.run_passes", lambda graph, _: run_passes(graph, UNFUSED))
    with pytest.raises(PassError, match="what was proved is not what was lowered"):
        compile_model(tiny_path, target=TARGET)
    assert list(empty_cache.glob("images/*")) == [] and leftovers(empty_cache) == []


WARM = """
import sys
from pathlib import Path
from unsay.compiler.compile import compile_model
print(compile_model(Path(sys.argv[1]), target=sys.argv[2]).directory)
heavy = ("llvmlite", "unsay.compiler.pipeline", "unsay.compiler.pack", "unsay.compiler.passes", "tokenizers", "z3")
print([name for name in heavy if name in sys.modules])
"""


def test_a_warm_start_imports_neither_llvmlite_nor_the_compiler(tiny_path: Path, warm: ImageFiles) -> None:
    command = [sys.executable, "-c", WARM, str(tiny_path), TARGET]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [str(warm.directory), "[]"]


def test_a_copy_of_a_model_compiled_already_imports_no_compiler(
    tiny_path: Path, warm: ImageFiles, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_path.read_bytes())
    result = subprocess.run([sys.executable, "-c", WARM, str(copy), TARGET], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [str(warm.directory), "[]"]


def test_a_warm_start_reads_neither_model_nor_weights(
    tiny_path: Path, warm: ImageFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsay.compiler.cache._hash_file", lambda *_: pytest.fail("read again"))
    assert compile_model(tiny_path, target=TARGET) == warm


def test_a_copy_of_the_model_elsewhere_is_the_same_model(tiny_path: Path, warm: ImageFiles, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_path.read_bytes())
    assert compile_model(copy, target=TARGET) == warm


def test_targets_have_images_of_their_own_and_share_the_weights(
    tiny_path: Path, warm: ImageFiles, empty_cache: Path
) -> None:
    images = [warm, compile_model(tiny_path, target="avx512-vnni")]
    manifests = [Manifest.from_json(files.manifest.read_text()) for files in images]
    assert manifests[0].weights == manifests[1].weights and images[0].directory != images[1].directory
    assert images[0].program.read_bytes() == images[1].program.read_bytes()
    assert images[0].code.read_bytes() != images[1].code.read_bytes()
    assert len(list((empty_cache / "weights").glob("*.bin"))) == 1


def test_an_image_is_named_by_model_target_limits_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {image_key("a" * 64, "avx2"), image_key("b" * 64, "avx2"), image_key("a" * 64, "avx512-vnni")}
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "LIMITS", "other limits")
        names.add(image_key("a" * 64, "avx2"))
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "compiler_version", lambda: "another compiler")
        names.add(image_key("a" * 64, "avx2"))
    assert len(names) == 5


def test_progress_names_the_work_and_ends_at_its_total(tiny_path: Path) -> None:
    reports = list[tuple[str, int, int]]()
    compile_model(tiny_path, target=TARGET, progress=lambda *report: reports.append(report))
    names = list(dict.fromkeys(what for what, _, _ in reports))
    assert names == ["check", "compile", "repack"]
    for name in names:
        done = [(done, total) for what, done, total in reports if what == name]
        assert done == sorted(done) and done[-1][0] == done[-1][1] > 0, name


AT_ONCE = """
import sys
from pathlib import Path
from unsay.compiler.compile import compile_model
told = []
print(compile_model(Path(sys.argv[1]), target=sys.argv[2], progress=lambda what, *_: told.append(what)).directory)
print("compile" in told, "llvmlite" in sys.modules)
"""


def test_processes_at_once_end_with_one_image(tiny_path: Path, empty_cache: Path) -> None:
    command = [sys.executable, "-c", AT_ONCE, str(tiny_path), TARGET]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len({lines[0] for lines in outputs}) == 1
    made, *found = sorted((lines[1] for lines in outputs), reverse=True)
    assert found == ["False False"] * 2, "one compiles, the others find its image"
    assert made == "True False", "LLVM works in a process of its own"
    assert len(list((empty_cache / "images").iterdir())) == 1 and leftovers(empty_cache) == []


def test_two_models_compile_side_by_side(tiny_paths: dict[str, Path], empty_cache: Path) -> None:
    names = ("llama-f32", "llama-q4_1")
    commands = [[sys.executable, "-c", WARM, str(tiny_paths[name]), TARGET] for name in names]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait(120) for process in running] == [0, 0]
    assert len(list((empty_cache / "images").iterdir())) == 2 and leftovers(empty_cache) == []


@pytest.mark.parametrize(
    ("content", "error", "named"),
    [
        (b"not a model", ModelFileError, "24"),
        (gguf([key("general.architecture", STRING, "mamba")]), UnsupportedError, "mamba"),
        (gguf([key("general.architecture", STRING, "llama")]), ModelFileError, "head_count"),
    ],
    ids=["no gguf", "architecture", "no shape"],
)
def test_a_wrong_file_is_refused_and_leaves_nothing(
    tmp_path: Path, empty_cache: Path, content: bytes, error: type[ModelFileError], named: str
) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(error, match=named):
        compile_model(path, target=TARGET)
    assert list((empty_cache / "images").iterdir()) == list((empty_cache / "weights").iterdir()) == []
    assert leftovers(empty_cache) == []


def test_a_tensor_cut_off_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_path.read_bytes()[:-64])
    with pytest.raises(ModelFileError, match=r"ends at byte \d+, the file has"):
        compile_model(path, target=TARGET)


@pytest.mark.parametrize("when", ["check", "compile", "repack"])
def test_a_file_that_changes_meanwhile_is_refused_and_leaves_nothing(
    tiny_path: Path, tmp_path: Path, empty_cache: Path, when: str
) -> None:
    path = tmp_path / "changing.gguf"
    path.write_bytes(tiny_path.read_bytes())

    def change(what: str, _done: int, _total: int) -> None:
        if what == when:
            os.utime(path)

    with pytest.raises(ModelFileError, match="changed while"):
        compile_model(path, target=TARGET, progress=change)
    assert [*empty_cache.glob("images/*"), *empty_cache.glob("weights/*"), *leftovers(empty_cache)] == []


def test_executors_and_compiler_agree_on_the_rows_of_a_step() -> None:
    """Neither may import the other."""
    assert LIMITS.max_rows == native.MAX_ROWS


def test_a_missing_model_and_an_unknown_target_are_named(tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="missing"):
        compile_model(tmp_path / "missing.gguf", target=TARGET)
    with pytest.raises(TargetError, match="pentium"):
        compile_model(tiny_path, target="pentium")


def test_parts_of_one_matrix_may_differ_in_format(tmp_path: Path) -> None:
    """Real files mix formats inside a layer; each part is then a product of its own."""
    mixed = {"default": "Q4_0", "attn_v": "Q8_0", "ffn_up": "F16"}
    path = write_tiny_gguf(tmp_path / "mixed.gguf", dtype=mixed, layers=1)
    assert compile_model(path, target=TARGET).code.stat().st_size > 0


def test_the_graph_knows_every_tensor_by_shape_and_format(tiny_path: Path) -> None:
    loaded = load(tiny_path)
    weights = [operation for operation in to_graph(loaded).operations if operation.kind == "weight"]
    assert {operation.string("tensor") for operation in weights} == set(loaded.file.tensors)


def test_a_moved_cache_is_still_whole(
    tiny_path: Path, warm: ImageFiles, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths in a manifest are relative; what was remembered of the old place is read anew."""
    moved = empty_cache.with_name("moved")
    empty_cache.rename(moved)
    monkeypatch.setenv("UNSAY_CACHE", str(moved))
    monkeypatch.setattr("unsay.compiler.pipeline.build_image", lambda _: pytest.fail("made again"))
    assert compile_model(tiny_path, target=TARGET).directory == moved / "images" / warm.directory.name


def test_damaged_machine_code_is_never_run(tiny_path: Path, warm: ImageFiles) -> None:
    code = warm.code.read_bytes()
    warm.code.write_bytes(bytes([code[0] ^ 0xFF]) + code[1:])
    assert compile_model(tiny_path, target=TARGET).code.read_bytes() == code

"""The compiler's table of contents: the steps from a model file to an image, in order, one line each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from unsay.compiler.beside import Beside, look
from unsay.compiler.cache import FileIdentity, identities, store_image, store_weights
from unsay.compiler.codegen.backends import Code, Step, find_backend
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.frontend.hf_files import model_files
from unsay.compiler.frontend.source import Loaded, open_model
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.ir.types import TensorType
from unsay.compiler.limits import LIMITS
from unsay.compiler.lower import Lowered, lower
from unsay.compiler.lower.fast import fast_program
from unsay.compiler.lower.plan import PackingPlan
from unsay.compiler.models import build_graph
from unsay.compiler.pack import LAYOUT_VERSION, write_packed
from unsay.compiler.passes.pipeline import PIPELINE, Pass, run_passes
from unsay.compiler.verify.spec import verify
from unsay.core import Progress
from unsay.errors import ModelFileError, PassError, TargetError
from unsay.image import IMAGE_VERSION, ImageFiles, Manifest, ModelSpec, VocabSpec
from unsay.isa.classes import EXACT, FAST
from unsay.isa.formats import DType
from unsay.isa.kv import AUTO
from unsay.isa.program import Program
from unsay.isa.targets import find_target
from unsay.vocabulary import vocabulary_bytes

if TYPE_CHECKING:
    from unsay.compiler.verify.validate import PassProof


@dataclass(frozen=True, slots=True)
class Job:
    """What to make, and where: `work` is ours alone until the image is stored under `image_key`.

    kv: a format of KV pages or "auto". prefill: the class of prompts. source_sha256 is of the files that had these
    identities. accept: raises what it has against a tokenizer.
    """

    source: Path
    source_identity: tuple[FileIdentity, ...]
    source_sha256: str
    target: str
    kv: str
    prefill: str
    image_key: str
    cache_root: Path
    work: Path
    progress: Progress | None
    accept: Callable[[VocabSpec], None] | None = None


def build_image(job: Job) -> ImageFiles:
    """Compile the model and store the image.

    LLVM works in a process of its own as soon as there is a program for it. Meanwhile the weights are packed, and kept
    under a name that says what is in them, and what the program came by is proved; no image is stored before that.
    """
    _report(job, 0)
    loaded = load(job.source, job.kv, job.prefill)
    if job.accept is not None:
        job.accept(loaded.vocab)
    graph = run_passes(to_graph(loaded), PIPELINE)
    verify(graph)
    lowered = lower(graph, loaded.spec, LIMITS.max_tokens, LIMITS.max_rows)
    programs = to_programs(lowered, loaded.spec, job.target)
    with Beside() as beside:
        code = beside.start(emit_code, job, programs, loaded.spec)
        proofs = beside.start(prove, loaded, graph, lowered)
        weights = pack(job, loaded, programs.plan)
        vocabulary = vocabulary_bytes(loaded.vocab)
        made = code.result(), proofs.result()
    _report(job, 1)
    return store(job, loaded.spec, programs, weights, vocabulary, *made)


def load(source: Path, kv: str = AUTO, prefill: str = EXACT) -> Loaded:
    """Open the model; raises ModelNotFoundError, ModelFileError or UnsupportedError."""
    return open_model(source, kv, prefill)


@dataclass(frozen=True, slots=True)
class Programs:
    """What an image runs, over one plan of weights. arena_bytes: of the larger. fast: None without that class."""

    exact: Program
    fast: Program | None
    plan: PackingPlan
    arena_bytes: int


def to_programs(lowered: Lowered, spec: ModelSpec, target: str) -> Programs:
    """The program, and that of the fast class where prompts are computed in it; raises UnsupportedError."""
    if spec.prefill != FAST:
        return Programs(lowered.program, None, lowered.plan, lowered.arena_bytes)
    from unsay.compiler.verify.arena import check_arena

    fast = fast_program(lowered, DType.Q16P if find_target(target).has_tiles else DType.Q16)
    check_arena(fast.program, fast.arena_bytes)
    return Programs(lowered.program, fast.program, fast.plan, fast.arena_bytes)


def to_graph(loaded: Loaded) -> Graph:
    """The unfused graph of the model's architecture."""
    types = {name: TensorType(tensor.shape, tensor.dtype) for name, tensor in loaded.file.tensors.items()}
    return build_graph(loaded.spec, types, LIMITS.max_tokens, LIMITS.max_rows)


def prove(loaded: Loaded, graph: Graph, lowered: Lowered) -> list[PassProof]:
    """Prove each pass on the model's graph, that they make `graph` of it, and the arena of the program.

    The passes run again, so that what waits for their result need not wait for the proofs. Raises PassError.
    """
    from unsay.compiler.verify.arena import check_arena
    from unsay.compiler.verify.validate import run_validated

    again = to_graph(loaded)
    proofs = run_validated(again, PIPELINE, _look_after)
    if print_graph(again) != print_graph(graph):
        raise PassError("the passes make two graphs of one: what was proved is not what was lowered")
    check_arena(lowered.program, lowered.arena_bytes)
    return proofs


def _look_after(_step: Pass, _graph: Graph, _count: int) -> None:
    look()


def emit_code(job: Job, programs: Programs, spec: ModelSpec) -> Code:
    """Machine code of the program: most of the time of a compilation.

    Raises TargetError if what the back end makes is not a step that an image can hold.
    """
    backend = find_backend(job.target)
    code = backend.emitter.emit(step_of(programs, spec)).code
    if code is None:
        raise TargetError(f"{job.target} makes {backend.emitter.makes}, no image; write its files with --emit")
    return code


def lowered_step(graph: Graph, spec: ModelSpec, target: str) -> Step:
    """What a back end is asked to emit for a graph that all passes have run on."""
    lowered = lower(graph, spec, LIMITS.max_tokens, LIMITS.max_rows)
    return step_of(to_programs(lowered, spec, target), spec)


def step_of(programs: Programs, spec: ModelSpec) -> Step:
    """What a back end is asked to emit."""
    limits = (LIMITS.max_tokens, LIMITS.max_rows, LIMITS.max_threads)
    return Step(programs.exact, spec, *limits, programs.arena_bytes, programs.fast)


def pack(job: Job, loaded: Loaded, plan: PackingPlan) -> str:
    """Store the packed weights, unless the cache has them; returns where."""
    check_unchanged(job)

    def write(out: BinaryIO) -> None:
        write_packed(plan, loaded.file, out, job.progress)
        check_unchanged(job)

    key = weights_key(job.source_sha256, plan.digest())
    return store_weights(job.cache_root, job.work, key, plan.total_bytes, write)


def store(
    job: Job,
    spec: ModelSpec,
    programs: Programs,
    weights: str,
    vocabulary: bytes,
    code: Code,
    proofs: Sequence[PassProof],
) -> ImageFiles:
    """The image, which names the weights."""
    from unsay.compiler.verify.validate import proofs_to_json

    manifest = Manifest(
        version=IMAGE_VERSION,
        spec=spec,
        target=job.target,
        source_sha256=job.source_sha256,
        weights=weights,
        weights_bytes=programs.plan.total_bytes,
        arena_bytes=programs.arena_bytes + step_scratch(spec, LIMITS.max_tokens).num_bytes,
        max_tokens=LIMITS.max_tokens,
        max_threads=LIMITS.max_threads,
        entry=code.entry,
    )
    contents = {
        "manifest.json": manifest.to_json().encode(),
        "program.avm": programs.exact.to_bytes(),
        **({} if programs.fast is None else {"fast.avm": programs.fast.to_bytes()}),
        "code.bin": code.blob,
        "vocabulary.bin": vocabulary,
        "verified.json": proofs_to_json(proofs).encode(),
    }
    return store_image(job.cache_root, job.work, job.image_key, contents)


def check_unchanged(job: Job) -> None:
    """What is kept under the digest of a model comes from its files; raises ModelFileError."""
    if identities(model_files(job.source)) != job.source_identity:
        raise ModelFileError(f"{job.source} changed while it was compiled; try again once it is complete")


def weights_key(source_sha256: str, plan_digest: str) -> str:
    """Name of a packed file: the model's bytes, the layouts, and what lies where."""
    return hashlib.sha256(f"{source_sha256} {LAYOUT_VERSION} {plan_digest}".encode()).hexdigest()[:40]


def _report(job: Job, done: int) -> None:
    if job.progress is not None:
        job.progress("compile", done, 1)

"""T4: the emitted kernels against docs/numerics.md, integer arithmetic, index arithmetic, memory; T5: error bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.attention_run import Attention
from unsay.compiler.codegen.kernels.dot import DotUnit, dot_unit
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.verify import bounds as errors
from unsay.compiler.verify.arena import prove_arena
from unsay.compiler.verify.kernels import bounds, lanes, overflow, products, quantising, scan, softmax
from unsay.compiler.verify.kernels.coverage import Gap, gaps
from unsay.compiler.verify.obligation import Obligation, Result, attempt, named
from unsay.compiler.verify.smt import decide
from unsay.isa.formats import QUANTISED_ACTIVATIONS, QUANTISED_WEIGHTS, DType
from unsay.isa.kv import KvLayout
from unsay.isa.program import Program
from unsay.isa.targets import TARGETS, find_target

_TILES_METHOD = "bit-vectors, induction"
_SCAN = "accesses of survey and race"
_HEADS = Attention(KvLayout(1, 1, 64), 3, 0.125, 0, 192, 256, 320, 320, 320, DType.Q8A, 8)


def obligations() -> list[Obligation]:
    """All that do not depend on a model."""
    return [*_tiles(), *_quantising(), *_integers(), *_softmax(), _scan(), *_errors()]


@dataclass(frozen=True, slots=True)
class StepClaims:
    """What is claimed of a compiled model, and what of its text is not."""

    obligations: list[Obligation]
    gaps: list[Gap]


def step_claims(step: Step, target: str) -> StepClaims:
    """Of one program, or of both that a step has; raises TargetError unless it is for a CPU."""
    unit = dot_unit(find_target(target))
    text = step_text(step, unit)
    accesses = partial(bounds.prove_step, step, unit, text)
    fast = [] if step.fast is None else [_arena("fast: no write over what is read", step.fast, step)]
    proofs = [
        _arena("no write over what is still read", step.program, step),
        *fast,
        Obligation(f"accesses of the step, {target}", "T4", "LIA", partial(attempt, accesses)),
        Obligation(_SCAN, "T4", "LIA", partial(attempt, partial(scan.prove_scan, text))),
        *(_tile(unit, *tile, text) for tile in products.tiles_in(text)),
        *(_merge(*heads, text) for heads in softmax.merges_in(text).values()),
    ]
    return StepClaims(proofs, gaps(text))


def _arena(name: str, program: Program, step: Step) -> Obligation:
    return Obligation(name, "T4", "LIA", partial(prove_arena, program, step.scratch_offset))


def _tile(unit: DotUnit, product: Product, tokens: int, kind: products.Kind, text: str) -> Obligation:
    name = f"{kind} {product.dtype.name} {product.x_dtype.name} K={product.width} x{tokens}"
    prove = partial(products.prove_tile, unit, product, tokens, text, kind)
    return Obligation(name, "T4", _TILES_METHOD, partial(attempt, prove))


def _tiles() -> Iterator[Obligation]:
    """Of each unit: a target that has AMX beside it multiplies blocks of 32 as the one without does."""
    units = {replace(dot_unit(target), amx=False): target for target in TARGETS}
    for unit, target in units.items():
        for dtype in sorted(QUANTISED_WEIGHTS):
            for x_dtype in sorted(QUANTISED_ACTIVATIONS):
                product = Product(dtype, 64, 64, x_dtype, 16)
                kinds: list[tuple[int, products.Kind]] = [*((tokens, "tile") for tokens in unit.tiles), (1, "pair")]
                for tokens, kind in kinds:
                    name = f"{kind} {target.name} {dtype.name} {x_dtype.name} x{tokens}"
                    prove = partial(products.prove_tile, unit, product, tokens, None, kind)
                    yield Obligation(name, "T4", _TILES_METHOD, partial(attempt, prove))


def _quantising() -> Iterator[Obligation]:
    for dtype in sorted(QUANTISED_ACTIVATIONS):
        prove = partial(attempt, partial(quantising.prove_quantising, dtype))
        yield Obligation(f"QUANT to {dtype.name} is N3", "T4", "bit-vectors, terms", prove)
    yield Obligation("what N4 takes for granted", "T4", "bit-vectors", quantising.prove_premises)


def _integers() -> Iterator[Obligation]:
    yield Obligation("lemmas on products of bytes", "T4", "bit-vectors", _lemmas)
    for (weights, x), accumulator in overflow.BLOCKS.items():
        name = f"i of N4 is exact, {weights.name} {x.name}"
        yield Obligation(name, "T4", "induction", partial(overflow.prove_exact, accumulator))
    yield Obligation("i of N15 is exact", "T4", "induction", partial(overflow.prove_exact, overflow.PART))
    for name, accumulator in overflow.ATTENTION.items():
        yield Obligation(f"{name} of N9 is exact", "T4", "induction", partial(overflow.prove_exact, accumulator))
    yield Obligation("integers in two planes", "T4", "bit-vectors", overflow.prove_planes)
    for kind, accumulator in overflow.LONGEST.items():
        name = f"{kind} to K = {accumulator.count}"
        yield Obligation(name, "T4", "induction", partial(overflow.prove_exact, accumulator))
    yield Obligation("a thread's share of the units", "T4", "NIA", bounds.share_lemma)


def _lemmas() -> Result:
    return named({name: decide(claim) for name, claim in lanes.lemmas()})


def _softmax() -> Iterator[Obligation]:
    yield Obligation("a part of attention", "T4", "loop invariant, reals", softmax.prove_part_is_softmax)
    yield Obligation("merging parts of attention", "T4", "loop invariant, reals", softmax.prove_merge_is_softmax)
    yield from (_merge(group, 64) for group in (1, 3))


def _merge(group: int, head_dim: int, text: str | None = None) -> Obligation:
    """text: of a step; by itself otherwise."""
    shape = replace(_HEADS, layout=KvLayout(1, 1, head_dim), num_heads=group)
    prove = partial(attempt, partial(softmax.prove_emitted_merge, shape, text))
    return Obligation(f"the emitted merge, {group} x {head_dim}", "T4", "terms", prove)


def _scan() -> Obligation:
    return Obligation(_SCAN, "T4", "LIA", partial(attempt, scan.prove_scan))


def _errors() -> Iterator[Obligation]:
    yield Obligation("rounding to Q8A (N3)", "T5", "reals", errors.prove_rounding)
    yield Obligation("rounding to Q8W (N3w)", "T5", "reals", partial(errors.prove_rounding, 16256, 2.0**-7))
    yield Obligation("one more rounded product", "T5", "induction, reals", errors.prove_summing)
    yield Obligation("a weighted mean", "T5", "induction, reals", errors.prove_averaging)

"""Who runs in a step, and what its arrays say."""

from __future__ import annotations

import pytest

from unsay import Model, SamplingParams
from unsay.core import PAGE_TOKENS
from unsay.engine.request import MAX_UNDELIVERED, Request
from unsay.engine.sampler import Choice
from unsay.engine.scheduler import Scheduler, Share, make_batch
from unsay.errors import OutOfPagesError
from unsay.vm.context import Context


class Bench:
    """Requests on one tree, released at the end."""

    def __init__(self, model: Model, max_tokens: int = 8, max_rows: int = 4) -> None:
        self.model = model
        self.scheduler = Scheduler(max_tokens, max_rows, context_length=64)
        self.contexts: list[Context] = []

    def request(self, ids: list[int], is_fast: bool = False, **params: object) -> Request:
        context = Context(self.model.tree.root())
        self.contexts.append(context)
        context.append(ids, is_fast)
        chosen = SamplingParams(**params)  # type: ignore[arg-type]
        request = Request(context, chosen, list(ids), len(ids), frozenset({2}), chosen.max_tokens)
        self.scheduler.add(request)
        return request

    def step(self, token_id: int = 7) -> list[tuple[int, int]]:
        """Run one step in which every lane draws `token_id`; returns (request id, tokens computed)."""
        batch = self.scheduler.next_batch()
        done = [(request.id, share.num_tokens) for request, share in self.scheduler.in_flight.items()]
        self.scheduler.commit(batch, [Choice(token_id, -1.0)] * len(batch.lanes))
        return done

    def release(self) -> None:
        for context in self.contexts:
            context.release()


@pytest.fixture
def bench(model: Model):
    bench = Bench(model)
    yield bench
    bench.release()


def test_a_prompt_is_cut_into_chunks_and_only_the_last_is_sampled(bench: Bench) -> None:
    request = bench.request(list(range(10, 30)))
    assert [bench.step() for _ in range(3)] == [[(request.id, 8)], [(request.id, 8)], [(request.id, 4)]]
    assert [event.token_id for event in request.events] == [7]
    assert request.history[-2:] == [29, 7]
    assert request.context.pending == [7]


def test_lanes_come_before_prompts_and_prompts_in_order_of_arrival(bench: Bench) -> None:
    lane = bench.request([10])
    bench.step()
    first, second = bench.request(list(range(10, 15))), bench.request(list(range(10, 15)))
    assert bench.step() == [(lane.id, 1), (first.id, 5), (second.id, 2)]


def test_a_step_is_of_one_class_and_the_classes_take_turns(bench: Bench) -> None:
    lane = bench.request([10])
    bench.step()
    prompt = bench.request(list(range(10, 30)), is_fast=True)
    late = bench.request(list(range(10, 13)))
    steps = []
    for _ in range(6):
        steps.append(sorted(bench.step()))
        for request in (lane, prompt, late):
            request.events.clear()
    answers = [(lane.id, 1), (late.id, 1)]
    assert steps == [
        [(prompt.id, 8)], [(lane.id, 1), (late.id, 3)], [(prompt.id, 8)], answers, [(prompt.id, 4)],
        sorted([*answers, (prompt.id, 1)]),
    ]  # fmt: skip


def test_a_prompt_is_cut_where_its_class_changes(bench: Bench) -> None:
    request = bench.request([10, 11, 12], is_fast=True)
    request.context.append([13, 14])
    for is_fast, done in ((True, 3), (False, 2)):
        batch = bench.scheduler.next_batch()
        assert (batch.is_fast, batch.token_ids.tolist()) == (is_fast, [10, 11, 12][:done] if is_fast else [13, 14])
        bench.scheduler.commit(batch, [Choice(7, -1.0)] * len(batch.lanes))
    assert [event.token_id for event in request.events] == [7]


def test_more_lanes_than_rows_take_turns(bench: Bench) -> None:
    requests = [bench.request([10 + i]) for i in range(6)]
    served: dict[int, int] = {}
    for _ in range(3):
        for request_id, _ in bench.step():
            served[request_id] = served.get(request_id, 0) + 1
        for request in requests:
            request.events.clear()
    assert served == {request.id: 2 for request in requests}


def test_a_request_does_not_run_far_ahead_of_its_reader(bench: Bench) -> None:
    request = bench.request([10])
    steps = [bench.step() for _ in range(MAX_UNDELIVERED + 2)]
    assert [len(step) for step in steps] == [1] * MAX_UNDELIVERED + [0, 0]
    request.events.popleft()
    assert bench.step() == [(request.id, 1)]


@pytest.mark.parametrize(("token_id", "finish", "num_events"), [(2, "stop", 1), (7, "length", 2)])
def test_a_request_ends_at_an_end_token_or_at_its_limit(
    bench: Bench, token_id: int, finish: str, num_events: int
) -> None:
    request = bench.request([10], max_tokens=2)
    while not request.is_over:
        bench.step(token_id)
    assert (request.finish, len(request.events)) == (finish, num_events)
    assert request.events[-1].finish == finish
    assert bench.scheduler.requests == []


def test_the_last_position_of_the_context_is_used_and_none_beyond(bench: Bench) -> None:
    request = bench.request(list(range(10, 72)))
    while not request.is_over:
        bench.step()
    assert len(request.history) == 64
    assert [event.finish for event in request.events] == [None, "length"]


def test_an_interrupted_step_leaves_no_trace(bench: Bench) -> None:
    request = bench.request(list(range(10, 14)))
    batch = bench.scheduler.next_batch()
    bench.scheduler.commit(batch, None)
    assert (request.context.branch.length, len(request.context.pending), len(request.events)) == (0, 4, 0)
    assert bench.step() == [(request.id, 4)]


def test_a_withdrawn_request_gets_nothing_of_a_step_that_ran(bench: Bench) -> None:
    gone, other = bench.request([10]), bench.request([11])
    batch = bench.scheduler.next_batch()
    gone.is_withdrawn = True
    events = bench.scheduler.commit(batch, [Choice(3, -1.0), Choice(4, -1.0)])
    assert [event.token_id for event in events] == [4]
    assert (gone.history, other.history) == ([10], [11, 4])


def test_a_request_stopped_while_it_is_chosen_is_not_computed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, other = bench.request([10]), bench.request([11])
    candidates = bench.scheduler._candidates

    def stopped(guesses):
        chosen = candidates(guesses)
        gone.is_withdrawn = True
        return chosen

    monkeypatch.setattr(bench.scheduler, "_candidates", stopped)
    assert bench.step() == [(other.id, 1)]
    assert (gone.history, other.history) == ([10], [11, 7])


def test_a_batch_names_tokens_positions_pages_and_rows(model: Model) -> None:
    contexts = [Context(model.tree.root()) for _ in range(2)]
    contexts[0].append(range(20, 40))
    contexts[1].append([50, 51])
    contexts[0].branch.reserve(16)
    contexts[0].commit(16)
    for context in contexts:
        context.branch.reserve(len(context.pending))
    batch = make_batch([Share(contexts[0], 4, 1), Share(contexts[1], 2, 2)])
    assert batch.token_ids.tolist() == [36, 37, 38, 39, 50, 51]
    assert batch.positions.tolist() == [16, 17, 18, 19, 0, 1]
    assert batch.sequence.tolist() == [0, 0, 0, 0, 1, 1]
    assert batch.logit_rows.tolist() == [3, 4, 5]
    assert batch.page_tables.shape == (2, 2)
    assert batch.page_tables[1, 1] == -1
    assert len({page for table in batch.page_tables.tolist() for page in table}) == 4
    assert {view.format for view in batch[:5]} == {"i"}
    for context in contexts:
        context.release()


def test_a_request_without_pages_ends_with_an_error_and_the_others_go_on(bench: Bench) -> None:
    capacity = bench.model.tree.pool.capacity
    hoard = bench.model.tree.root()
    hoard.reserve(PAGE_TOKENS * (capacity - 1))
    first, second = bench.request([10]), bench.request([11])
    assert bench.step() == [(first.id, 1)]
    assert isinstance(second.error, OutOfPagesError)
    assert second.is_over
    hoard.release()

"""Advice on whole layers: beside what people have, how fast it comes, and what each of its stages earns."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import mean, median

from magus.advisor.candidates.advice import Advice
from magus.advisor.layers.joint import JointRuns
from magus.advisor.layers.orders import IN_TURN
from magus.advisor.layers.recommend import recommend_workload
from magus.advisor.layers.search import JointSearch
from magus.advisor.layers.timing import estimated_ticks
from magus.compiler import compile_file
from magus.compiler.ir import Scenario
from magus.examples import path
from tests.helpers.scenarios.mlp_backward import plain_backward

from .harness.report import Figure, main, timed

GRID = tuple((ranks, m, width) for ranks in (4, 8) for m in (1024, 4096, 8192) for width in (2048, 4096, 8192))
"""GPUs, tokens and width of the golden graphs; the inner width is 3.5 times as large."""

TABLE_M = 8192
"""Tokens of the table of ``examples/papers/layers.mgs``."""


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    yield from _golden()
    yield from _table()
    yield from _over_kernels()
    yield from _speed()
    yield from _ablations()


def _backward(ranks: int, m: int, width: int, repeat: str = "") -> Scenario:
    """An MLP backward with weight gradients, without its activation."""
    return plain_backward(m, repeat, ranks=ranks, width=width, inner=width * 7 // 2)


def _example(name: str, workload: str, **settings: int) -> Scenario:
    compiled = compile_file(path(name), tuple((param, str(value)) for param, value in settings.items()))
    return compiled.scenario(workload)


def _best_known(advice: Advice) -> int:
    return min(one.ticks for one in advice.candidates if not one.is_searched and not one.is_outside)


def _golden() -> Iterator[Figure]:
    """The advice over the best of what people have, on graphs of several sizes; a chain beside its pairs."""
    scenarios = [_backward(*point, repeat="repeat 12 dx as dy") for point in GRID]
    scenarios += [
        _example("layers/llama70b_layer", "layer", M=2048),
        _example("layers/llama70b_backward", "back", M=2048),
    ]
    found = [recommend_workload(replace(scenario, schedules=())) for scenario in scenarios]
    ratios = [advice.recommended.ticks / _best_known(advice) for advice in found]
    yield Figure(f"advice over the best of the baselines, worst of {len(found)} graphs", max(ratios), "x", "lower", 1)
    gains = [1 / ratio for ratio in ratios]
    yield Figure("gain over the best of the baselines, mean", mean(gains), "x", "higher")
    yield Figure("the same, most", max(gains), "x", "higher")
    chain = found[-2]
    in_turn = chain.named(IN_TURN)
    assert in_turn is not None, "each pair's own best is always a candidate"
    yield Figure("a chain: advice over each pair's own best", chain.recommended.ticks / in_turn.ticks, "x", "lower", 1)


def _table() -> Iterator[Figure]:
    """The MLP backward with the projection before it, whose 240 plans were tried one by one."""
    scenario = replace(_example("papers/layers", "back", M=TABLE_M), schedules=())
    seconds, advice = timed(partial(recommend_workload, scenario))
    yield Figure("MLP backward of the table, 8192 tokens", advice.recommended.best_us, "us", "lower", 4140)
    yield Figure("its kernels alone", advice.kernels_ticks / 10**8, "us", "lower")
    yield Figure("advice on its 7 ops", seconds, "s", "lower", 20)


def _over_kernels() -> Iterator[Figure]:
    """What the answer takes beyond all kernels alone."""
    for name, workload, target in (
        ("layers/llama70b_layer_backward", "back", 1.03),
        ("layers/llama70b_domino", "layer", 1.04),
    ):
        for tokens in (8192, 2048):
            advice = recommend_workload(replace(_example(name, workload, M=tokens), schedules=()))
            over = advice.recommended.ticks / advice.kernels_ticks
            yield Figure(f"{name}, {tokens} tokens, over kernels alone", over, "x", "lower", target)


def _speed() -> Iterator[Figure]:
    """Seconds of an answer."""
    whole = replace(_example("layers/llama70b_layer_backward", "back", M=8192), schedules=())
    seconds, advice = timed(partial(recommend_workload, whole))
    yield Figure(
        f"advice on {len(whole.workload.ops)} ops, 8192 tokens, {advice.searched} runs", seconds, "s", "lower", 45
    )
    batches = replace(_example("layers/llama70b_domino", "layer", M=8192), schedules=())
    seconds, advice = timed(partial(recommend_workload, batches))
    ops = sum(len(batches.workload.ops) * count for count in (1, 2))
    yield Figure(f"advice on {ops} ops of one and of two batches", seconds, "s", "lower", 90)


def _ablations() -> Iterator[Figure]:
    """What placement, small changes and the estimate earn: the time found without them, over that with all."""
    losses: dict[str, list[float]] = {"the solver": [], "small changes": [], "either": []}
    errors: list[float] = []
    for ranks, m, width in GRID[::3]:
        scenario = _backward(ranks, m, width, "repeat 12 dx as dy")
        full = _searched(scenario)
        least = min(full.found.values())
        for name, places, climbs in (
            ("the solver", False, True),
            ("small changes", True, False),
            ("either", False, False),
        ):
            part = _searched(scenario, places=places, climbs=climbs)
            losses[name].append(min(part.found.values()) / least)
        for choice in full.searched:
            space = full.origin[choice]
            estimate = estimated_ticks(space, choice)
            errors.append(abs(estimate / full.found[choice] - 1))
    for name, ratios in losses.items():
        yield Figure(f"time found without {name}, mean", mean(ratios), "x", "lower")
        yield Figure("the same, worst", max(ratios), "x", "lower")
    errors.sort()
    yield Figure(f"error of the estimate, median of {len(errors)} schedules", median(errors), "", "lower")
    yield Figure("the same, nine in ten", errors[len(errors) * 9 // 10], "", "lower", 0.05)


def _searched(scenario: Scenario, *, places: bool = True, climbs: bool = True) -> JointSearch:
    search = JointSearch(scenario, JointRuns(scenario.system, scenario.workload), places, climbs)
    search.run()
    return search


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))

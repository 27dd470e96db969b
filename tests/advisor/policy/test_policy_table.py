"""Policy tables: rules that hold for each size they claim, with the loss they state, and flips where times cross."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor, Request, RequestError
from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.policy.cover import axis_of
from magus.advisor.policy.reader import Policy
from magus.advisor.policy.table import PolicyRule, PolicyTable, policy_schema, policy_text
from magus.advisor.questions import advisor as recommend
from magus.advisor.questions.computing import computed_advice
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, Cancelled
from magus.compiler.planfile.file import ignore_warnings
from magus.compiler.planning.build import ScheduleError
from magus.compiler.request.scenario import scenario_of
from magus.compiler.resolve.expect.expectation import ON_OVERLAP
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.text.records import MAX_SHOWN
from magus.examples import path
from tests.helpers.paths import DOCS
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.some import some

pytestmark = pytest.mark.usefixtures("requested_once")
PREDICTED = AdviceOptions(verify=False, bespoke=0)
LAYER = Request("AG+GEMM", m=8192, n=3584, k=8192, gpu="H100", ranks=8, engines=("dma(7)",))
SUM = Request("all_reduce", num_bytes=1 << 20, gpu="H100", ranks=8)
SIZES = {LAYER: [256, 512], SUM: [4096 << 6 * idx for idx in range(3)]}


@pytest.fixture(scope="module")
def requested_once() -> Iterator[None]:
    """What was asked before is known: the table and what its rules are compared with are of the same advice."""
    known: dict[tuple[object, object], Advice] = {}

    def answered(proposals: Any, scenario: Any, options: Any, watcher: Any) -> Advice:
        requested = (scenario.case, options)
        advice = known.get(requested) or computed_advice(proposals, scenario, options, watcher)
        return advice if advice.interrupted else known.setdefault(requested, advice)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recommend, "computed_advice", answered)
        yield


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    return Advisor.load()


@pytest.fixture(scope="module", params=[LAYER, pytest.param(SUM, marks=pytest.mark.slow)], ids=["layer", "sum"])
def made(request: Any, advisor: Advisor, requested_once: None) -> tuple[Request, PolicyTable]:
    return request.param, advisor.policy_table(request.param, SIZES[request.param], PREDICTED)


def requested(request: Request, size: int) -> dict[str, Any]:
    keys = {key: getattr(request, key) for key in ("pattern", "gpu", "ranks", "dtype", "n", "k")}
    return {**keys, "topology": "switch", ("num_bytes" if request.num_bytes else "m"): size}


def at(request: Request, size: int) -> Request:
    return replace(request, num_bytes=size) if request.num_bytes else replace(request, m=size)


def main_rules(table: PolicyTable) -> list[PolicyRule]:
    """The rules without those behind them, for sizes that they cannot be cut for."""
    ends = [idx for idx, (one, other) in enumerate(pairwise(table.rules), 1) if other.least <= one.least]
    return list(table.rules[: ends[0] if ends else None])


def test_it_satisfies_its_schema_and_is_read_back(made: tuple[Request, PolicyTable]) -> None:
    document = json.loads(policy_text(made[1].document()))

    assert is_valid(document, policy_schema())
    assert Policy(document).rules == document["rules"] and document["rules"]
    assert json.loads((DOCS / "policy.schema.json").read_text(encoding="utf-8")) == policy_schema()


def test_it_is_a_line_and_a_table(made: tuple[Request, PolicyTable]) -> None:
    table = made[1]

    assert len(repr(table)) < 200 and len(table.rows()) == len(table.rules) > 0
    assert table._repr_html_().count("<tr>") == min(len(table.rules), MAX_SHOWN) + 1


def test_the_verdict_of_a_rule_is_about_its_schedule(made: tuple[Request, PolicyTable]) -> None:
    request, table = made

    for rule in some(table.rules):
        if not request.num_bytes:
            assert rule.verdict in {verdict.value for verdict in ON_OVERLAP}
        else:
            assert rule.verdict == ("library" if "library" in rule.schedule else "use")


def test_every_size_between_the_ends_has_a_schedule_that_can_be_built(made: tuple[Request, PolicyTable]) -> None:
    request, table = made
    policy, sizes = Policy(table.document()), SIZES[request]
    grain = axis_of(request).grain
    random = Random(1)

    for _ in range(60):
        size = round(2 ** random.uniform(sizes[0].bit_length(), sizes[-1].bit_length() - 1))
        rule = policy.rule(**requested(request, size))
        assert rule is not None and rule["min"] <= rule["size"] and size <= rule["max"]
        assert size <= rule["size"] <= size + rule["pad"] and rule["size"] % grain == 0
        schedule = resolve_schedule(scenario_of(at(request, rule["size"])).case, rule["schedule"], ignore_warnings)
        assert schedule.expression == rule["schedule"]


def test_beyond_the_sizes_that_were_looked_at_there_is_no_answer(made: tuple[Request, PolicyTable]) -> None:
    request, table = made
    policy, sizes = Policy(table.document()), SIZES[request]

    assert policy.rule(**requested(request, sizes[-1])) is not None
    assert policy.rule(**requested(request, 2 * sizes[-1])) is None
    assert policy.rule(**requested(request, sizes[0] // 2)) is None


def test_the_rules_lose_what_they_say(made: tuple[Request, PolicyTable], advisor: Advisor) -> None:
    request, table = made
    policy = Policy(table.document())

    for size in some([size for rule in main_rules(table) for size in rule.sizes]):
        rule = policy.rule(**requested(request, size))
        advice = advisor.recommend(at(request, size), PREDICTED)
        assert rule is not None
        times = {one.expression: one.best_us for one in advice.candidates}
        assert times[rule["schedule"]] <= min(times.values()) * (1.0001 + rule["loss"])
        near = times[rule["schedule"]] <= advice.recommended.best_us * 1.02
        assert near or size not in SIZES[request]
        low, high = rule["gain"]
        assert low - 1e-4 <= advice.serial.best_us / times[rule["schedule"]] <= high + 1e-4


def test_rules_are_checked_between_the_sizes_that_were_requested_for(made: tuple[Request, PolicyTable]) -> None:
    request, table = made
    looked = sorted({size for rule in table.rules for size in rule.sizes})

    for low, high in some(list(pairwise(SIZES[request]))):
        assert sum(low < size < high for size in looked) >= 3


@pytest.mark.slow
def test_schedules_change_where_their_times_cross(made: tuple[Request, PolicyTable], advisor: Advisor) -> None:
    request, table = made
    first = main_rules(table)
    flips = [(one, other) for one, other in pairwise(first) if one.schedule != other.schedule]

    assert flips
    for before, after in flips:
        low, high = before.sizes[-1], after.sizes[0]
        assert low < after.least <= high
        # Overlap takes the place of serial where the profile can tell their times apart.
        slack = 1.1 if (before.op.template == "serial") is not (after.op.template == "serial") else 1.02
        for size, faster, slower in ((low, before, after), (after.least, after, before)):
            candidates = advisor.recommend(at(request, size // 64 * 64), PREDICTED).candidates
            times = {one.expression: one.best_us for one in candidates}
            assert times[faster.schedule] <= slack * times.get(slower.schedule, inf)


def test_overlap_is_said_from_the_size_on_from_which_it_pays(made: tuple[Request, PolicyTable]) -> None:
    request, table = made
    if request is not LAYER:
        pytest.skip("a collective alone overlaps nothing")
    serial = [rule.op.template == "serial" for rule in main_rules(table)]

    assert serial == sorted(serial, reverse=True) and len(set(serial)) == 2


@pytest.mark.slow
def test_simulated_flips_are_where_simulations_cross(advisor: Advisor) -> None:
    request = replace(LAYER, n=1024, k=2048, ranks=4)
    table = advisor.policy_table(request, [256, 512, 1024], AdviceOptions(bespoke=0, top=2))

    assert table.simulated and table.document()["times"] == "simulated"
    assert table.rules[0].least == 256
    assert max(rule.most for rule in table.rules) == 1024


@pytest.mark.slow
def test_a_file_can_be_requested_too(advisor: Advisor) -> None:
    source = path("gemm_rs_h100").read_text(encoding="utf-8")
    scenario = compile_text(source).scenario()
    table = advisor.policy_table(scenario, [512, 2048], PREDICTED)

    assert {rule.pattern for rule in table.rules} == {"GEMM+RS"}
    assert {(rule.n, rule.k) for rule in table.rules} == {(8192, 3584)}


@pytest.mark.parametrize(
    ("question", "sizes", "message"),
    [
        (LAYER, [], "no sizes"),
        (LAYER, [12], "multiples of 8"),
        (LAYER, [0], "multiples of 8"),
        (LAYER, [16.0], "multiples of 8"),
        (SUM, [1001], "multiples of 16"),
        (replace(LAYER, pattern="GEMM"), [64], "varies alone"),
        (replace(LAYER, pattern="GEMM || all_gather", num_bytes=1 << 20), [64], "varies alone"),
        (compile_text(path("moe_dispatch_mi300x").read_text()).scenario(), [64], "varies alone"),
    ],
)
def test_what_makes_no_table_is_said(advisor: Advisor, question: Any, sizes: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        advisor.policy_table(question, sizes, PREDICTED)


def test_progress_is_reported_and_a_stop_leaves_no_table_with_gaps(advisor: Advisor) -> None:
    reported: list[tuple[int, int]] = []
    advisor.policy_table(LAYER, SIZES[LAYER], PREDICTED, progress=lambda done, total: reported.append((done, total)))
    assert reported[:2] == [(1, 2), (2, 2)] and all(done <= total for done, total in reported)

    with pytest.raises(Cancelled):
        advisor.policy_table(replace(LAYER, n=512), [512, 1024], PREDICTED, should_stop=lambda: True)


@pytest.mark.slow
def test_a_rule_names_what_can_be_built_for_other_sizes_too(advisor: Advisor) -> None:
    table = advisor.policy_table(LAYER, [4096, 8192], PREDICTED)
    rule = table.rules[0]

    assert rule.multiple_of > 8
    with pytest.raises(ScheduleError):
        resolve_schedule(scenario_of(replace(LAYER, m=4096 + 8)).case, rule.schedule, ignore_warnings)
    padded = Policy(table.document()).rule(**requested(LAYER, 4096 + 8))
    assert padded is not None and padded["size"] == 4096 + rule.multiple_of


def test_padding_is_no_slower_than_what_takes_the_size_as_it_is(advisor: Advisor) -> None:
    few = replace(LAYER, schedules=("serial", "hetero_fused_1d", "uniform_fused_1d"))
    table = advisor.policy_table(few, [4096, 8192], PREDICTED)
    policy, slower = Policy(table.document()), []
    for size in (8 * 513, 8 * 767):
        rule = policy.rule(**requested(few, size))
        assert rule is not None and rule["size"] > size
        alone = min(one.best_us for one in advisor.recommend(at(few, size), PREDICTED).candidates)
        slower.append(_us(at(few, rule["size"]), rule["schedule"]) / alone)

    assert max(slower) <= 1.02


def _us(request: Request, schedule: str) -> float:
    case = scenario_of(request).case
    return estimate_ticks(case, resolve_schedule(case, schedule, ignore_warnings)) / TICKS_PER_US


def test_where_no_overlap_is_promised_the_rule_is_plain_serial(advisor: Advisor) -> None:
    table = advisor.policy_table(replace(LAYER, engines=()), [16, 32], PREDICTED)

    assert {(rule.verdict, rule.schedule, rule.gain) for rule in table.rules} == {
        ("serial", "serial(engine=sm(16, library))", (1.0, 1.0))
    }

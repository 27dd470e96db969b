"""Kept results of simulations: equal to computed ones, and found again only by the same question."""

import shutil
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from magus.advisor import lower_bound
from magus.compiler import compile_file
from magus.compiler.ir import (
    TICKS_PER_US,
    EngineChoice,
    EngineKind,
    Explore,
    Late,
    NamedSchedule,
    OpCase,
    OpChoice,
    Variability,
)
from magus.compiler.planning.build import build_op_plan, declared
from magus.compiler.planning.plan import build_plan
from magus.examples import path as example
from magus.simcore import RunOptions, RunOutcome, WhatIf, plan_of, simulate, simulate_op, simulate_seeds
from magus.simcore.memo import memo as memo_module
from magus.simcore.memo.codec import _tuple_reader
from magus.simcore.memo.memo import Store, current_store, memo_of, memoized, memoizing
from tests.helpers.marks import thinned
from tests.helpers.scenarios.compiled import cases_in
from tests.helpers.scenarios.fabrics import torus
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather
from tests.helpers.some import some
from tests.simcore.lower.test_variability import JITTER

DMA = EngineChoice(EngineKind.DMA, 3)
SCENARIO = ag_gemm(512, 1024, 1024, ranks=4)
CHOICE = OpChoice("hetero_fused_1d", 8, DMA)
UNIT = 8192
SIMULATE = import_module("magus.simcore.simulate")  # not the function of that name
SEEDS = import_module("magus.simcore.simulate")
FILES = example("decode_small_batch").parent.rglob("*.mgs")
EXAMPLES = sorted(
    file
    for file in FILES
    if file.stem not in ("layers", "trace") and file.parent.name not in ("layers", "moe", "steps")
)


class Computed(Exception):
    """Raised where nothing may be computed."""


def computing_nothing(*_: object) -> Any:
    raise Computed


def is_known(scenario: OpCase, choice: OpChoice = CHOICE, **options: Any) -> bool:
    """Whether a simulation is answered without being run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SIMULATE, "_simulate", computing_nothing)
        try:
            simulate_op(scenario, build_op_plan(scenario, choice), **{"unit_bytes": UNIT, **options})
        except Computed:
            return False
    return True


@pytest.mark.quick(3)
@pytest.mark.usefixtures("compiled_core")
@pytest.mark.parametrize("file", thinned(EXAMPLES, 5), ids=lambda file: file.stem)
def test_what_is_kept_of_an_example_is_what_was_computed(file: Path, store: Store) -> None:
    for scenario in some(cases_in(compile_file(file))[:2]):
        schedules = [declared(scenario, named) for named in scenario.schedules]
        schedules.append(build_op_plan(scenario, OpChoice("serial", scenario.num_ranks, DMA)))
        for schedule in some(schedules[:2]):
            computed = simulate_op(scenario, schedule, unit_bytes=1 << 16)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(SIMULATE, "_simulate", computing_nothing)
                kept = simulate_op(scenario, schedule, unit_bytes=1 << 16)
            assert (kept, repr(kept)) == (computed, repr(computed))
            assert (kept.schedule is schedule) == (computed.schedule is schedule)


@pytest.mark.usefixtures("compiled_core")
def test_what_is_kept_of_a_graph_is_what_was_computed(store: Store) -> None:
    graph = compile_file(example("layers/llama70b_backward"), (("M", "1024"),)).workloads[0]
    plan = build_plan(graph.system, graph.workload, graph.schedules[0])
    computed = simulate(graph.system, plan, unit_bytes=1 << 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SIMULATE, "_simulate", computing_nothing)
        kept = simulate(graph.system, plan, unit_bytes=1 << 16)

    assert (kept, repr(kept)) == (computed, repr(computed))


@pytest.mark.parametrize(
    "scenario",
    [
        SCENARIO,
        gemm_rs(512, 1024, 1024, ranks=4, fabric=torus(2, 2)),
        replace(SCENARIO, system=replace(SCENARIO.system, variability=Variability(jitter=JITTER))),
    ],
)
def test_every_option_gives_what_it_gave(scenario: OpCase, store: Store) -> None:
    schedule = build_op_plan(scenario, CHOICE)
    for options in (
        {"what_if": WhatIf(UNIT, 17)},
        {"options": RunOptions(fold=False, observe=True)},
        {"seed": 3},
    ):
        computed = simulate_op(scenario, schedule, unit_bytes=UNIT, **options)
        assert is_known(scenario, **options)
        kept = simulate_op(scenario, schedule, unit_bytes=UNIT, **options)
        assert (kept, repr(kept)) == (computed, repr(computed))


def test_results_of_seeds_are_kept_batch_by_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = replace(SCENARIO, system=replace(SCENARIO.system, variability=Variability(jitter=JITTER)))
    schedule = build_op_plan(scenario, CHOICE)
    monkeypatch.setattr(SEEDS, "BATCH", 3)
    computed = simulate_seeds(scenario.system, plan_of(scenario, schedule), range(5), unit_bytes=UNIT)
    monkeypatch.setattr(SEEDS, "_simulate_batch", computing_nothing)
    kept = simulate_seeds(scenario.system, plan_of(scenario, schedule), range(5), unit_bytes=UNIT)

    assert (kept, repr(kept)) == (computed, repr(computed))
    assert simulate_seeds(scenario.system, plan_of(scenario, schedule), range(3), unit_bytes=UNIT) == computed[:3]
    for seeds, unit_bytes in ((range(4), UNIT), (range(1, 4), UNIT), (range(3), 1024)):
        with pytest.raises(Computed):
            simulate_seeds(scenario.system, plan_of(scenario, schedule), seeds, unit_bytes=unit_bytes)


def test_another_question_is_not_answered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_op(SCENARIO, build_op_plan(SCENARIO, CHOICE), unit_bytes=UNIT, seed=1)
    system = SCENARIO.system
    gpu = replace(system.gpu, sms=system.gpu.sms - 1)
    slower = replace(system.fabric.link, achieved_bytes_per_s=system.fabric.link.achieved_bytes_per_s - 1)
    late = Variability(late=(Late(1, TICKS_PER_US),))

    assert is_known(SCENARIO, seed=1)
    for other in (
        replace(SCENARIO, name="other"),
        ag_gemm(512, 1024, 1152, ranks=4),
        replace(SCENARIO, system=replace(system, gpu=gpu)),
        replace(SCENARIO, system=replace(system, fabric=replace(system.fabric, link=slower))),
        replace(SCENARIO, system=replace(system, variability=late)),
    ):
        assert not is_known(other, seed=1)
    for choice in (replace(CHOICE, chunks=16), replace(CHOICE, engine=EngineChoice(EngineKind.SM, 3))):
        assert not is_known(SCENARIO, choice, seed=1)
    others: tuple[dict[str, Any], ...] = (
        {"seed": 2},
        {"seed": None},
        {"unit_bytes": 1024},
        {"what_if": WhatIf(UNIT)},
        {"options": RunOptions(fold=False)},
        {"options": RunOptions(observe=True)},
    )
    for options in others:
        assert not is_known(SCENARIO, **{"seed": 1, **options})
    monkeypatch.setenv("MAGUS_ENGINE", "windows")
    assert not is_known(SCENARIO, seed=1)


def test_what_a_file_declares_and_explores_is_another_matter(store: Store) -> None:
    simulate_op(SCENARIO, build_op_plan(SCENARIO, CHOICE), unit_bytes=UNIT)

    assert is_known(replace(SCENARIO, explore=Explore.of(chunks=(8, 16)), schedules=(NamedSchedule("mine", CHOICE),)))


def test_nothing_is_kept_unasked(tmp_path: Path) -> None:
    assert current_store() is None
    simulate_op(SCENARIO, build_op_plan(SCENARIO, CHOICE), unit_bytes=UNIT)

    assert not is_known(SCENARIO)
    with memoizing(Store(tmp_path)), memoizing(None):
        simulate_op(SCENARIO, build_op_plan(SCENARIO, CHOICE), unit_bytes=UNIT)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("outcome", [outcome for outcome in RunOutcome if outcome is not RunOutcome.DONE])
def test_a_run_that_did_not_end_is_not_kept(outcome: RunOutcome, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = build_op_plan(SCENARIO, CHOICE)
    with memoizing(None):
        done = simulate_op(SCENARIO, schedule, unit_bytes=UNIT)
    monkeypatch.setattr(SIMULATE, "_simulate", lambda *_: replace(done, outcome=outcome))

    assert simulate_op(SCENARIO, schedule, unit_bytes=UNIT).outcome is outcome
    assert not is_known(SCENARIO)


def test_a_run_whose_explanation_was_stopped_is_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SIMULATE, "_explain", lambda *_, **__: (None, None))
    result = simulate_op(SCENARIO, build_op_plan(SCENARIO, CHOICE), unit_bytes=UNIT, what_if=WhatIf(UNIT))

    assert result.outcome is RunOutcome.DONE
    assert not is_known(SCENARIO, what_if=WhatIf(UNIT))


def test_what_lies_there_malformed_is_computed_again(store: Store) -> None:
    memo = memo_of(("question",))
    assert memo is not None
    for data in (b"", b"[", b'["Bound",1]', b'"text"', b'{"given":0}'):
        memo.write(data)
        assert memo.recall(int) is None
    assert memoized(memo, int, lambda: 3) == 3
    assert memoized(memo, int, computing_nothing) == 3


def test_an_answer_that_is_no_plain_data_is_given_and_not_kept(store: Store) -> None:
    answer = memoized(memo_of(("question",)), object, lambda: {np.int64(3)})

    assert answer == {3}
    assert not list(store.folder.iterdir())


def test_bounds_are_kept(store: Store) -> None:
    for scenario in (SCENARIO, lone_gather(4096, 4096)):
        bound = lower_bound(scenario)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("magus.advisor.bounds.lower_bound._lower_bound", computing_nothing)
            assert lower_bound(scenario) == bound
            with pytest.raises(Computed):
                lower_bound(scenario, (EngineKind.SM,))


@dataclass(frozen=True)
class Foreign:
    size: int = 1


LOCAL = _tuple_reader((int, str))  # a function of Magus within a function


@pytest.mark.parametrize("part", [Foreign(), Foreign, computing_nothing, lambda: 3, np.int64(1), object(), LOCAL])
def test_a_question_with_parts_from_outside_magus_has_no_place(part: object, store: Store) -> None:
    assert memo_of((part,)) is None


def test_parts_of_a_question_are_reported_apart(store: Store) -> None:
    questions = [
        (1,),
        ("1",),
        (1.0,),
        (True,),
        (None,),
        ((1,),),
        (Fraction(1),),
        (frozenset({"a", "b"}),),
        (("a", "b"),),
        (EngineKind.DMA,),
        (EngineKind.SM,),
        (EngineKind,),
        (DMA,),
        (build_op_plan,),
        (),
    ]
    memos = [memo_of(question) for question in questions]

    assert None not in memos
    assert len(set(memos)) == len(questions)
    assert memo_of((frozenset({"b", "a"}),)) == memo_of((frozenset({"a", "b"}),))


def test_another_version_is_another_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "magus"
    for package in memo_module.SIMULATOR:
        shutil.copytree(memo_module.ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))

    def digest() -> str:
        memo_module.sources_digest.cache_clear()
        return memo_module.sources_digest(memo_module.SIMULATOR, root)

    sound, changed = digest(), root / "simcore" / "kernels" / "gemm.py"
    assert sound == memo_module.sources_digest(memo_module.SIMULATOR)
    text = changed.read_text()
    changed.write_text(text.replace("a", "b", 1))
    assert digest() != sound
    changed.write_text(text)
    assert digest() == sound
    changed.rename(changed.with_name("other.py"))
    assert digest() != sound
    monkeypatch.setattr(np, "__version__", "0")
    assert digest() != sound


def test_without_sources_on_disk_nothing_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memo_of((1,), ("nothing",)) is None

    monkeypatch.setattr(memo_module, "_files", lambda folder: [f"{folder}/gone.py"])
    memo_module.sources_digest.cache_clear()
    try:
        assert memo_of((1,)) is None
    finally:
        memo_module.sources_digest.cache_clear()

"""Drawn scenarios: the same for a seed and an index, and of every family."""

from dataclasses import fields

import pytest

from magus.advisor.training.families import FABRICS, GPUS, MODELS, PATTERNS, SIZES, ScenarioFamily, draw


def test_a_scenario_depends_on_seed_and_index_alone() -> None:
    assert draw(1, 5) == draw(1, 5)
    assert draw(1, 5).scenario != draw(1, 6).scenario
    assert draw(1, 5).scenario != draw(2, 5).scenario


@pytest.mark.slow
def test_families_are_all_drawn() -> None:
    families = [draw(0, idx).family for idx in range(200)]

    seen = {field.name: {getattr(family, field.name) for family in families} for field in fields(ScenarioFamily)}
    topologies = {fabric.split("(")[0] for fabrics in FABRICS.values() for _, fabric in fabrics}
    assert seen["gpu"] == {gpu for _, _, gpu in GPUS}
    assert seen["topology"] == topologies
    assert seen["pattern"] == set(PATTERNS)
    assert seen["model"] == {model.name for model in MODELS}
    assert seen["size"] == set(SIZES)
    assert seen["ranks"] == {2, 4, 8}
    assert seen["moved"] == {False, True}


def test_hardware_is_as_shipped_or_moved() -> None:
    drawn = [draw(0, idx) for idx in range(60)]

    shipped = {(one.family.gpu, one.scenario.gpu) for one in drawn if not one.family.moved}
    moved = {(one.family.gpu, one.scenario.gpu) for one in drawn if one.family.moved}
    assert len({gpu for gpu, _ in shipped}) == len(shipped) > 5
    assert len(moved) == sum(one.family.moved for one in drawn) > 20
    assert not {gpu for _, gpu in shipped} & {gpu for _, gpu in moved}


def test_rows_are_shared_by_all_ranks() -> None:
    drawn = [draw(0, idx) for idx in range(100)]

    rows = [one.scenario.shape.moved.rows for one in drawn if one.scenario.shape.moved is not None]
    assert len(rows) == len(drawn)
    assert all(count % one.family.ranks == 0 for count, one in zip(rows, drawn, strict=True))
    assert any(count & (count - 1) for count in rows)

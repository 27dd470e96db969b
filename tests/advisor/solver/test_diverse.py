"""Samples of large spaces."""

from dataclasses import replace

import numpy as np
import pytest

from magus.advisor.solver import Space, enumerate_space
from magus.advisor.solver import enumerate as vectorised
from magus.advisor.solver.domains import Choices, Codes, Knobs
from magus.advisor.solver.memory import LISTED, SAMPLE, WEIGHTS, diverse
from magus.compiler.ir import Explore
from magus.compiler.resolve.schedules.explore import opened
from tests.helpers.scenarios.scenarios import ag_gemm, exploring


@pytest.fixture(scope="module")
def space() -> Space:
    return enumerate_space(exploring(ag_gemm(8192, 28672, 8192), opened(Explore())))


def parts(space: Space) -> tuple[Knobs, Codes]:
    assert isinstance(space.choices, Choices)
    return space.choices.knobs, space.choices.codes


def least_distance(knobs: Knobs, codes: Codes) -> int:
    """Between the two that differ least, by the weights."""
    columns = {knob: knobs.digits(codes, knob) for knob in knobs.values}
    distance = sum(WEIGHTS.get(knob, 1) * (each[:, None] != each[None, :]) for knob, each in columns.items())
    return int(np.asarray(distance)[np.triu_indices(len(codes), 1)].min())


def test_a_sample_has_every_template_and_no_two_that_are_alike(space: Space) -> None:
    knobs, codes = parts(space)
    templates = {choice.template for choice in space.choices}

    sample = diverse(knobs, codes, 24, seed=1)

    assert len(set(sample.tolist())) == 24 and set(sample.tolist()) <= set(codes.tolist())
    assert {knobs.choice_of(code).template for code in sample.tolist()} == templates
    random = np.random.default_rng(0).choice(codes, 24, replace=False)
    assert least_distance(knobs, sample) > least_distance(knobs, random)
    assert least_distance(knobs, sample) >= 4


def test_it_is_the_same_for_the_same_seed(space: Space) -> None:
    knobs, codes = parts(space)

    samples = [diverse(knobs, codes, 16, seed).tolist() for seed in (0, 0, 1)]

    assert samples[0] == samples[1] != samples[2]
    assert diverse(knobs, codes, len(codes)) is codes
    assert len(diverse(knobs, codes, 3)) == 3, "fewer than templates"


def test_a_large_space_shows_a_sample_and_says_how_large_it_is(space: Space) -> None:
    assert space.size == len(space.choices) > LISTED and space.complete
    assert len(space.shown()) == SAMPLE
    few = enumerate_space(exploring(ag_gemm(8192, 28672, 8192), opened(Explore())), limit=10)
    assert (len(few.choices), few.size, few.complete) == (10, space.size, False)
    assert few.knobs == space.knobs and set(few.choices) < set(space.choices)


def test_of_a_space_that_is_too_large_a_part_is_kept_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "MOST_CODES", 1000)

    part = enumerate_space(exploring(ag_gemm(8192, 28672, 8192), replace(opened(Explore()), dominance=False)))

    assert part.size is None and not part.complete and len(part.choices) > 1000


def test_structures_are_the_choices_carried_out_as_usual(space: Space) -> None:
    usual = enumerate_space(ag_gemm(8192, 28672, 8192))

    assert usual.structures == usual.choices
    assert set(usual.choices) <= set(space.structures)
    structures = [(each.template, each.chunks, each.engine, each.streams, each.algorithm) for each in space.choices]
    assert len(space.structures) == len(set(structures))

"""Records in place of searches, which take seconds: plain functions, so that other processes find them."""

import os
import time

from magus.advisor.candidates.predicted import usual_serials
from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.training.build import Attempt, failed_for
from magus.advisor.training.families import Drawn
from magus.advisor.training.record import Record, Tried
from magus.compiler.planning.build import build_op_plan, expression_of

FAILS, DIES = 2, 3
"""Scenarios that fail, and that end their process."""


def quick_record(drawn: Drawn) -> Record:
    """A record of two plans."""
    ticks = 1000 + drawn.idx
    plans = (
        Tried("serial(engine=dma(7))", "template", 2 * ticks, 1024, 2.0 * ticks),
        Tried("uniform_fused_1d(chunks=16, engine=dma(7))", "local search", ticks, 128, 0.1 + ticks),
    )
    return Record(drawn.seed, drawn.idx, drawn.family, ticks // 2, plans[0].expression, plans)


def serial_record(drawn: Drawn) -> Record:
    """A record of the usual serial schedule, as if it had been simulated."""
    scenario, (choice, *_) = drawn.scenario, usual_serials(drawn.scenario)
    ticks = round(estimate_ticks(scenario, build_op_plan(scenario, choice)))
    plan = Tried(expression_of(choice), "template", ticks + 10, 1024, float(ticks))
    return Record(drawn.seed, drawn.idx, drawn.family, 1, plan.expression, (plan,))


def failing_record(drawn: Drawn) -> Record:
    """As ``quick_record``, but one fails."""
    if drawn.idx == FAILS:
        raise KeyError("no such thing")
    return quick_record(drawn)


def deadly_record(drawn: Drawn) -> Record:
    """As ``quick_record``, but one ends its process."""
    if drawn.idx == DIES:
        os._exit(1)
    return quick_record(drawn)


def slow_record(drawn: Drawn) -> Record:
    """As ``quick_record``, a fifth of a second later."""
    time.sleep(0.2)
    return quick_record(drawn)


def attempt_of_process(idx: int) -> Attempt:
    """An attempt whose key is the number of the process that made it."""
    time.sleep(0.3)
    return Attempt(idx, failed_for(idx, "none"), key=str(os.getpid()))

"""The commands that advise: ``schedules``, ``advise`` and ``train``; and what they share with ``simulate``."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ...advisor import AdviceOptions, Advisor, ModelError, NoFeasibleSchedule, enumerate_space, lower_bound
from ...advisor.export import advice_document, space_document
from ...compiler import Scenario
from ...compiler.ir import Cancelled, Settings
from ...simcore import EngineUnavailable, RunTooLarge
from ..exit_codes import Exit
from ..text.door import print_json, put, say
from ..text.progress import progress_line
from ..text.render import advice_text
from ..text.space import space_text
from .console import guarded, show
from .inputs import compiled
from .interrupts import interruptible


def answered(action: Callable[[], Exit]) -> Exit:
    """Run ``action`` guarded; no feasible schedule and a damaged model have words of their own."""
    try:
        return guarded(action)
    except EngineUnavailable as error:
        say(f"magus: {error}")
        return Exit.USAGE
    except RunTooLarge as error:
        say(f"MGS406 error: {error}")
        return Exit.INPUT
    except Cancelled:
        say("magus: stopped before anything was found")
        return Exit.INTERRUPTED
    except ModelError as error:
        say(f"magus: the ranker cannot be used: {error}")
        return Exit.INPUT
    except NoFeasibleSchedule as error:
        say("MGS510 error: no schedule is feasible; these constraints together leave none:")
        for reason in error.reasons:
            say(f"  - {reason}")
        return Exit.NOT_FEASIBLE


def list_schedules(
    file: Path, bindings: Settings, *, workload: str | None, limit: int | None, as_json_text: bool
) -> Exit:
    """``magus schedules``: the feasible space in its canonical order, with the lower bound."""

    def action() -> Exit:
        scenario = scenario_of(file, bindings, workload)
        with interruptible() as stopped:
            space = enumerate_space(scenario, limit=limit, should_stop=stopped)
            cut_short = stopped()
        bound = lower_bound(scenario)
        if as_json_text:
            print_json(space_document(scenario, space, bound))
        else:
            put(space_text(scenario, space, bound))
        return Exit.INTERRUPTED if cut_short else Exit.DONE

    return answered(action)


def advise_file(
    file: Path,
    bindings: Settings,
    *,
    workload: str | None,
    top: int,
    bespoke: int,
    verify: bool,
    strict: bool,
    as_json_text: bool,
    workers: int,
) -> Exit:
    """``magus advise``: the answer with its proof."""

    def action() -> Exit:
        scenario = scenario_of(file, bindings, workload)
        advisor = Advisor.load()
        with progress_line() as progress, interruptible() as stopped:
            options = AdviceOptions(top=top, verify=verify, bespoke=bespoke, workers=workers)
            advice = advisor.recommend(scenario, options, progress=progress, should_stop=stopped)
        if as_json_text:
            print_json(advice_document(advice))
        else:
            put(advice_text(advice, top))
        return Exit.INTERRUPTED if advice.interrupted else strictly(scenario, strict, advice.outside_calibration)

    return answered(action)


def train_model(out: Path | None, *, seed: int, scenarios: int | None, as_json_text: bool, workers: int) -> Exit:
    """``magus train``: build the data set, fit, report on unseen scenarios, write the model."""
    from ...advisor.ranker.train import report_document, report_text, train

    def action() -> Exit:
        with progress_line() as progress:
            report = train(out=out, seed=seed, scenarios=scenarios, workers=workers, progress=progress)
        if as_json_text:
            print_json(report_document(report))
        else:
            put(report_text(report))
        return Exit.DONE

    return answered(action)


def scenario_of(file: Path, bindings: Settings, workload: str | None) -> Scenario:
    """The scenario of ``workload``, of the first one without a name; warnings are shown."""
    found = compiled(file, bindings)
    show(found.warnings)
    return found.scenario(workload)


def strictly(scenario: Scenario, strict: bool, outside: Sequence[str] = ()) -> Exit:
    """With ``--strict``, an answer that rests on a profile that is not validated, or ``outside`` it, is no answer."""
    if not strict:
        return Exit.DONE
    reasons = [f"outside what was fitted: {sentence}" for sentence in outside]
    if scenario.workload.gemm is not None and not scenario.gpu.gemm.validated:
        reasons.append(f"the GEMM profile of {scenario.gpu.name} is not validated against measurements")
    for reason in reasons:
        say(f"magus: --strict: {reason}")
    return Exit.NOT_FEASIBLE if reasons else Exit.DONE

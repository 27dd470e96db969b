"""The commands that simulate and advise: ``simulate``, ``schedules``, ``advise``, ``test`` and ``train``."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ..advisor import Advisor, ModelError, NoFeasibleSchedule, enumerate_space, lower_bound
from ..advisor.expect import ExpectationRunner
from ..advisor.export import advice_document, result_document, space_document
from ..advisor.recommend import packet_bytes
from ..advisor.solver.space import check_memory
from ..compiler import Scenario, compile_file
from ..compiler.schedule_text import resolve_schedule
from ..simcore import EngineUnavailable, Outcome, RunTooLarge, simulate
from .console import Bindings, guarded, print_json, say, show
from .exits import Exit
from .interrupts import interruptible
from .progress import progress_line
from .render import advice_text, result_text, space_text


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
    except ModelError as error:
        say(f"magus: the ranker cannot be used: {error}")
        return Exit.INPUT
    except NoFeasibleSchedule as error:
        say("MGS510 error: no schedule is feasible; these constraints together leave none:")
        for reason in error.reasons:
            say(f"  - {reason}")
        return Exit.NOT_FEASIBLE


def simulate_file(
    file: Path,
    bindings: Bindings,
    *,
    workload: str | None,
    schedule: str | None,
    at_line: bool,
    fold: bool,
    strict: bool,
    as_json_text: bool,
) -> Exit:
    """``magus simulate``: one schedule, by default the first that the file declares, else serial."""

    def action() -> Exit:
        scenario = _scenario(file, bindings, workload)
        chosen = resolve_schedule(scenario, schedule)
        check_memory(scenario, chosen)
        bound, packet = lower_bound(scenario), packet_bytes(scenario)
        with interruptible() as pressed, progress_line() as progress:
            result = simulate(
                scenario,
                chosen,
                unit_bytes=scenario.gpu.line_bytes if at_line else packet,
                fold=fold,
                bound_ticks=bound.ticks,
                explain_bytes=packet,
                observe=True,
                should_stop=pressed,
                progress=lambda line_hops: progress("run", line_hops, 0),
            )
        if as_json_text:
            print_json(result_document(result, scenario.workload.name))
        else:
            print(result_text(result, scenario, bound))
        if result.outcome is not Outcome.DONE:
            say(f"magus: {result.outcome.value}")
            for sentence in result.deadlock:
                say(f"  {sentence}")
            if result.outcome is Outcome.CANCELLED:
                raise KeyboardInterrupt
            return Exit.INPUT
        return _strictly(scenario, strict)

    return answered(action)


def list_schedules(
    file: Path, bindings: Bindings, *, workload: str | None, limit: int | None, as_json_text: bool
) -> Exit:
    """``magus schedules``: the feasible space in its canonical order, with the lower bound."""

    def action() -> Exit:
        scenario = _scenario(file, bindings, workload)
        space, bound = enumerate_space(scenario, limit=limit), lower_bound(scenario)
        if as_json_text:
            print_json(space_document(scenario, space, bound))
        else:
            print(space_text(scenario, space, bound))
        return Exit.DONE

    return answered(action)


def advise_file(
    file: Path,
    bindings: Bindings,
    *,
    workload: str | None,
    top: int,
    verify: bool,
    strict: bool,
    as_json_text: bool,
    workers: int,
) -> Exit:
    """``magus advise``: the answer with its proof."""

    def action() -> Exit:
        scenario = _scenario(file, bindings, workload)
        with progress_line() as progress:
            advice = Advisor.load().recommend(scenario, top=top, verify=verify, workers=workers, progress=progress)
        if as_json_text:
            print_json(advice_document(advice))
        else:
            print(advice_text(advice, top))
        return _strictly(scenario, strict)

    return answered(action)


def test_files(files: Sequence[Path], bindings: Bindings, workers: int) -> Exit:
    """``magus test``: every ``expect`` block, each with its own bindings."""
    advisor = cache(Advisor.load)
    return max([answered(lambda file=file: _test_file(file, bindings, advisor, workers)) for file in files])  # type: ignore[misc]


def _test_file(file: Path, bindings: Bindings, advisor: Callable[[], Advisor], workers: int) -> Exit:
    compiled = compile_file(file, bindings)
    if not compiled.expectations:
        say(f"{file}: no expect block")
    failed = passed = 0
    runners: dict[tuple[str, tuple[tuple[str, str], ...]], ExpectationRunner] = {}
    for expectation in compiled.expectations:
        key = (expectation.workload, expectation.bindings)
        if key not in runners:
            bound = compile_file(file, [*bindings, *expectation.bindings]) if expectation.bindings else compiled
            runners[key] = ExpectationRunner(bound.scenario(expectation.workload), advisor, workers)
        given = "".join(f" with {name} = {value}" for name, value in expectation.bindings)
        for result in runners[key].run(expectation):
            passed, failed = passed + result.passed, failed + (not result.passed)
            mark = "ok    " if result.passed else "FAILED"
            where = f"{file}:{result.check.span.location.line}"
            print(f"{mark} {where}: {result.check.text}{given}  ({result.found})")
    print(f"{file}: {passed} passed, {failed} failed")
    return Exit.INPUT if failed else Exit.DONE


def train_model(out: Path | None, *, seed: int, scenarios: int | None, as_json_text: bool, workers: int) -> Exit:
    """``magus train``: build the data set, fit, report on unseen scenarios, write the model."""
    from ..advisor.train import report_document, report_text, train

    def action() -> Exit:
        with progress_line() as progress:
            report = train(out=out, seed=seed, scenarios=scenarios, workers=workers, progress=progress)
        if as_json_text:
            print_json(report_document(report))
        else:
            print(report_text(report))
        return Exit.DONE

    return answered(action)


def _scenario(file: Path, bindings: Bindings, workload: str | None) -> Scenario:
    compiled = compile_file(file, bindings)
    show(compiled.warnings)
    return compiled.scenario(workload)


def _strictly(scenario: Scenario, strict: bool) -> Exit:
    """With ``--strict``, an answer that rests on a profile that is not validated is not an answer."""
    if not strict or scenario.workload.gemm is None or scenario.gpu.gemm.validated:
        return Exit.DONE
    say(f"magus: --strict: the GEMM profile of {scenario.gpu.name} is not validated against measurements")
    return Exit.NOT_FEASIBLE

"""How commands that simulate or advise run: errors become messages and exit codes, results are kept on disk."""

from collections.abc import Callable, Sequence

from ...advisor import ModelError, NoFeasibleSchedule
from ...advisor.work.on_dask import BackendError
from ...advisor.work.processes import forking
from ...compiler.ir import Cancelled, Scenario
from ...simcore import EngineUnavailable, RunTooLarge
from ..exit_codes import Exit
from ..text.door import say
from .inputs import report_errors, say_rejection


def run_command(action: Callable[[], Exit]) -> Exit:
    """Run ``action``; errors of the compiler, the simulator and the advisor become messages and an exit code.

    Its workers are forked: the one thread beside it prints how far it is, and sleeps.
    """
    try:
        with forking():
            return report_errors(action)
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
        say(f"magus: {error}")
        return Exit.INPUT
    except BackendError as error:
        say_rejection(error.rejection)
        return Exit.INPUT
    except NoFeasibleSchedule as error:
        say("MGS510 error: no schedule is feasible; these constraints together leave none:")
        for reason in error.reasons:
            say(f"  - {reason}")
        return Exit.NOT_FEASIBLE


def exit_code_if_strict(scenario: Scenario, strict: bool, outside: Sequence[str] = ()) -> Exit:
    """NOT_FEASIBLE under ``--strict`` if the GEMM profile is not validated or the question is ``outside`` its fit."""
    if not strict:
        return Exit.DONE
    reasons = [f"outside what was fitted: {sentence}" for sentence in outside]
    if any(case.shape.gemm for case in scenario.cases) and not scenario.gpu.gemm.validated:
        reasons.append(f"the GEMM profile of {scenario.gpu.name} is not validated against measurements")
    for reason in reasons:
        say(f"magus: --strict: {reason}")
    return Exit.NOT_FEASIBLE if reasons else Exit.DONE

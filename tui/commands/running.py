"""How commands that simulate or advise run: errors become messages and exit codes, results are kept on disk."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec

from ...advisor import ModelError, NoFeasibleSchedule
from ...advisor.work.processes import forking
from ...compiler.ir import Cancelled, Scenario
from ...simcore import EngineUnavailable, RunTooLarge
from ..text.door import Exit, say
from .inputs import reporting

P = ParamSpec("P")


def command(action: Callable[P, Exit]) -> Callable[P, Exit]:
    """Let errors of the compiler, the simulator and the advisor become messages and an exit code.

    Workers of ``action`` are forked: the one thread beside it prints how far it is, and sleeps.
    """
    reported = reporting(action)

    @wraps(action)
    def run(*given: P.args, **named: P.kwargs) -> Exit:
        try:
            with forking():
                return reported(*given, **named)
        except EngineUnavailable as error:
            say(f"magus: {error}")
            return Exit.USAGE
        except RunTooLarge as error:
            say(f"MGS406 error: {error}")
        except ModelError as error:
            say(f"magus: {error}")
        except Cancelled:
            say("magus: stopped before anything was found")
            return Exit.INTERRUPTED
        except NoFeasibleSchedule as error:
            say("MGS510 error: no schedule is feasible; these constraints together leave none:")
            for reason in error.reasons:
                say(f"  - {reason}")
            return Exit.NOT_FEASIBLE
        return Exit.INPUT

    return run


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

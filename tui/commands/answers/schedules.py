"""``magus schedules``: the feasible space in its canonical order, or the ops and their schedules; and the bound."""

from ....advisor import enumerate_space, lower_bound
from ....advisor.answer.export import schedules_document, space_document
from ....advisor.bounds.lower_bound import workload_bound
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.sweep import space_text
from ..inputs import ScenarioInput
from ..interrupts import interruptible
from ..running import run_command


def list_schedules(source: ScenarioInput, *, limit: int | None, as_json: bool) -> Exit:
    """Print at most ``limit`` feasible schedules and the bound on all of them; of several ops those of the file."""

    def action() -> Exit:
        question = source.scenario()
        case, space, cut_short = question.only_case, None, False
        if case is None:
            bound = workload_bound(question.system, question.workload)
            document = schedules_document(question, bound)
        else:
            with interruptible() as stopped:
                space = enumerate_space(case, limit=limit, should_stop=stopped)
                cut_short = stopped()
            bound = lower_bound(case)
            document = space_document(case, space, bound)
        if as_json:
            print_json(document)
        else:
            put(space_text(question, space, bound))
        return Exit.INTERRUPTED if cut_short else Exit.DONE

    return run_command(action)

"""``magus schedules``: the feasible space in its canonical order, with the lower bound."""

from ....advisor import enumerate_space, lower_bound
from ....advisor.answer.export import space_document
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.space import space_text
from ..graphs.simulate import list_graph_schedules
from ..inputs import ScenarioInput
from ..interrupts import interruptible
from ..running import run_command


def list_schedules(source: ScenarioInput, *, limit: int | None, as_json: bool) -> Exit:
    """Print at most ``limit`` feasible schedules and the bound on all of them."""

    def action() -> Exit:
        question = source.scenario()
        scenario = question.pair
        if scenario is None:
            return list_graph_schedules(question, as_json=as_json)
        with interruptible() as stopped:
            space = enumerate_space(scenario, limit=limit, should_stop=stopped)
            cut_short = stopped()
        bound = lower_bound(scenario)
        if as_json:
            print_json(space_document(scenario, space, bound))
        else:
            put(space_text(scenario, space, bound))
        return Exit.INTERRUPTED if cut_short else Exit.DONE

    return run_command(action)

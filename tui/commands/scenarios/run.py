"""``magus run``: schedules carried out with real data, and whether every rank ends with what it should."""

from ....compiler.codes import Code
from ....runtime import RunRefused, carry_out
from ....runtime.over_torch.launch import RankFailed, carry_out_over_torch
from ....runtime.run import Job, jobs_of
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.result import Carried, run_text, runs_document
from ..console import show
from ..inputs import ScenarioInput
from ..running import run_command


def run_file(source: ScenarioInput, *, schedule: str | None, seeds: range, over_torch: bool, as_json: bool) -> Exit:
    """Carry out ``schedule``, by default every one that the file declares, and print what became of it."""

    def action() -> Exit:
        scenario = source.scenario()
        carried: list[Carried] = []
        for job in jobs_of(scenario, schedule, show):
            carried.append(_carried(job, seeds, over_torch))
            if not as_json:
                put(run_text(carried[-1], seeds))
        if as_json:
            print_json(runs_document(scenario.name, scenario.num_ranks, seeds, carried))
        return Exit.DONE if all(each.exact for each in carried) else Exit.INPUT

    try:
        return run_command(action)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        say(f"{Code.MGS432.name} error: torch is not installed\n  help: pip install 'magus-gpu[torch]'")
        return Exit.USAGE
    except RankFailed as error:
        say(f"magus: {error}")
        return Exit.INPUT


def _carried(job: Job, seeds: range, over_torch: bool) -> Carried:
    system, workload, plan = job
    try:
        if over_torch:
            (report,) = carry_out_over_torch([job], seeds)
        else:
            report = carry_out(system, workload, plan, seeds)
        return Carried(plan.expression, report)
    except RunRefused as error:
        return Carried(plan.expression, None, error.rejection)

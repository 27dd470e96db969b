"""What the rules say of a problem that a test made up, without the scenario it would come from."""

from magus.compiler.ir import EngineChoice, OpChoice, Rejection
from magus.compiler.planning.build import all_rules
from magus.compiler.planning.knobs import ScheduleRequest
from magus.compiler.templates import Template
from magus.compiler.templates.base import TemplateInput
from tests.helpers.scenarios.scenarios import ag_gemm

_ANY = ag_gemm(64, 64, 64)
_READ = {"schedules", "streams", "engine", "algorithm", "transfer", "kernel", "waves", "sums", "trees"}


def reject_problem(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why ``template`` cannot schedule ``problem``, which it is given as it is; None if it can."""
    choice = OpChoice(
        template.name,
        problem.num_ranks * problem.pieces,
        EngineChoice(problem.engine, 1),
        problem.streams,
        problem.tactics,
        problem.algorithm,
        waves=problem.waves,
        sums=problem.sums,
    )
    request = ScheduleRequest(_ANY, choice)
    request.__dict__["problem"] = problem
    rules = (rule for rule in all_rules() if rule.knobs != ("schedules",) and _READ.issuperset(rule.knobs))
    return next((found for rule in rules if (found := rule.reject(request)) is not None), None)

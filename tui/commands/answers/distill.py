"""``magus distill``: a rule for a pattern on a system, small enough to read, as Python or JSON."""

import json
from pathlib import Path

from ....advisor import Request, RequestError
from ....advisor.policy.distill import distilled
from ....advisor.policy.rule_text import rule_document, rule_python, summary
from ....compiler.request.request import KERNEL_PATTERNS, one_of
from ...exit_codes import Exit
from ...text.door import put_text, say
from ...text.progress import progress_line
from ..console import save, say_request_error
from ..running import run_command

OVERLAPPING = tuple(pattern for pattern in KERNEL_PATTERNS if pattern.overlaps)
ANY = 1024
"""A size for each rank, so that all can be divided: the rule is for all sizes."""


def write_rule(
    question: dict[str, object], num_ranks: int, *, num_shapes: int, seed: int, as_json: bool, out: Path | None
) -> Exit:
    """Write the rule for the fields of a request in ``question`` to ``out`` or stdout, and say how good it is."""

    def action() -> Exit:
        try:
            one_of("pattern", question["pattern"], [pattern.value for pattern in OVERLAPPING])
            sizes = dict.fromkeys("mnk", ANY * num_ranks)
            request = Request(**question, ranks=num_ranks, **sizes)  # type: ignore[arg-type]
            with progress_line() as progress:
                rule = distilled(
                    request,
                    num_shapes=num_shapes,
                    seed=seed,
                    progress=lambda done, total: progress("distill", done, total),
                )
        except RequestError as error:
            say_request_error(error)
            return Exit.INPUT
        text = json.dumps(rule_document(rule), indent=2) + "\n" if as_json else rule_python(rule)
        if out is not None:
            return save(out, text, f"{out}: {summary(rule)}")
        say(summary(rule))
        put_text(text)
        return Exit.DONE

    return run_command(action)

"""Whether a run of the simulator and one of the oracle are the same, and in what they are not."""

from magus.simcore.program.program import Program, Run, RunOutcome
from tests.helpers.oracle.oracle import OracleRun


def differences(program: Program, found: Run, expected: OracleRun) -> list[str]:
    """Names of what differs."""
    stuck = tuple(op for op, done in enumerate(expected.done) if done < 0)
    pairs: dict[str, tuple[object, object]] = {
        "outcome": (found.outcome, RunOutcome.DEADLOCK if expected.deadlock else RunOutcome.DONE),
        "stuck": (found.stuck, stuck),
        "ready": (found.op_ready.tolist(), expected.ready),
        "start": (found.op_start.tolist(), expected.start),
        "done": (found.op_done.tolist(), expected.done),
        "makespan": (found.makespan_ticks, expected.makespan),
        "flow_last": (found.flow_last.tolist(), expected.flow_last),
        "server_free": (found.server_free.tolist(), expected.server_free),
        "line_hops": (found.line_hops, expected.line_hops),
        "polls": (found.op_polls.tolist(), expected.polls),
        "blocked": (found.server_blocked.tolist(), expected.blocked),
    }
    if found.hop_wait_ticks is not None:
        pairs["hop_wait"] = (found.hop_wait_ticks.tolist(), expected.hop_wait)
    return [name for name, (one, other) in pairs.items() if one != other]

"""What a step of a plan would have to wait for, so that what it uses is there: the help beside MGS508."""

from collections.abc import Iterable

from ..ir import Arrival, RankPlan, Rect, Step, TileGroup

_NAMED = 4


def bring_hint(plan: RankPlan, step: Step, missing: Rect, source: int, arrivals: Iterable[Arrival]) -> str:
    """Say which signals bring ``missing``, of ``arrivals`` from the rank ``source`` places further."""
    found: dict[str, list[Rect]] = {}
    own_transfers = {name for name, behind in plan.before().items() if step.name in behind}
    for arrival in arrivals:
        part = Rect.of(arrival.region).clip(missing)
        # What a rank sends only after the step cannot be waited for: every rank has the same plan.
        late = plan.schedule.symmetric and arrival.transfer.name in own_transfers
        if part is not None and not late:
            found.setdefault(arrival.transfer.signal, []).append(part)
    sender = (plan.rank + source) % plan.scenario.num_ranks
    return _wait_for(found, "brings", f" of rank {sender}")


def compute_hint(plan: RankPlan, step: Step, missing: Rect, owner: int, groups: Iterable[TileGroup]) -> str:
    """Say which of ``groups`` compute ``missing`` of block ``owner``."""
    n, before = plan.scenario.num_ranks, plan.before()
    found: dict[str, list[Rect]] = {}
    for group in groups:
        for region in group.regions:
            part = Rect.of(region).clip(missing) if (region.owner - owner) % n == 0 else None
            if part is not None and step.name not in before[group.name]:
                found.setdefault(group.name, []).append(part)
    return _wait_for(found, "computes", f" of block +{owner % n}")


def _wait_for(found: dict[str, list[Rect]], verb: str, where: str) -> str:
    if not found:
        return ""
    names = list(found)[:_NAMED]
    parts = list(dict.fromkeys(str(part) for name in names for part in found[name]))
    if len(found) > _NAMED:
        return f"add: after {', '.join(names)}, ... ({len(found)} in all)"
    verb = verb if len(names) == 1 else verb[:-1]
    return f"add: after {', '.join(names)}, which {verb} {' and '.join(parts[:_NAMED])}{where}"

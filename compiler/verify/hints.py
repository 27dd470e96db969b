"""The hint of MGS508: waits that bring or compute the data that a step uses."""

from collections.abc import Iterable

from ..ir import Arrival, RankPlan, Rect, Step, TileGroup

_MAX_NAMES = 4


def bring_hint(plan: RankPlan, step: Step, missing: Rect, source: int, arrivals: Iterable[Arrival]) -> str:
    """Name the signals of ``arrivals`` that bring ``missing`` from the rank ``source`` places further."""
    rects_by_name: dict[str, list[Rect]] = {}
    own_transfers = {name for name, behind in plan.before().items() if step.name in behind}
    for arrival in arrivals:
        part = Rect.of(arrival.region).clip(missing)
        # All ranks have the same plan: a transfer that a rank sends after the step cannot be waited for.
        late = plan.schedule.symmetric and arrival.transfer.name in own_transfers
        if part is not None and not late:
            rects_by_name.setdefault(arrival.transfer.signal, []).append(part)
    sender = (plan.rank + source) % plan.scenario.num_ranks
    return _wait_for(rects_by_name, "brings", f" of rank {sender}")


def compute_hint(plan: RankPlan, step: Step, missing: Rect, owner: int, groups: Iterable[TileGroup]) -> str:
    """Name those of ``groups`` that compute ``missing`` of block ``owner``."""
    n, before = plan.scenario.num_ranks, plan.before()
    rects_by_name: dict[str, list[Rect]] = {}
    for group in groups:
        for region in group.regions:
            part = Rect.of(region).clip(missing) if (region.owner - owner) % n == 0 else None
            if part is not None and step.name not in before[group.name]:
                rects_by_name.setdefault(group.name, []).append(part)
    return _wait_for(rects_by_name, "computes", f" of block +{owner % n}")


def _wait_for(rects_by_name: dict[str, list[Rect]], verb: str, where: str) -> str:
    if not rects_by_name:
        return ""
    names = list(rects_by_name)[:_MAX_NAMES]
    parts = list(dict.fromkeys(str(part) for name in names for part in rects_by_name[name]))
    if len(rects_by_name) > _MAX_NAMES:
        return f"add: after {', '.join(names)}, ... ({len(rects_by_name)} in all)"
    verb = verb if len(names) == 1 else verb[:-1]
    return f"add: after {', '.join(names)}, which {verb} {' and '.join(parts[:_MAX_NAMES])}{where}"

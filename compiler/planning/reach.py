"""Copies and sums that the switch of a system can make."""

from ..codes import Code
from ..ir import Rejection, System


def reject_reach(system: System, *, sums: bool) -> Rejection | None:
    """Why the fabric cannot copy to all ranks, or sum what all ranks hold; None if it can."""
    switch, word = system.fabric.one_switch, "reduces" if sums else "multicast"
    what = "sums what all ranks hold" if sums else "copies to all ranks at once"
    if switch is None:
        return Rejection(Code.MGS409, f"no switch of {system.name} {what}", "this needs fabric switch(...)")
    if not (switch.reduces if sums else switch.multicast):
        return Rejection(
            Code.MGS409, f"switch {switch.name} is not one that {what}", f"its profile says so: {word} yes"
        )
    return None

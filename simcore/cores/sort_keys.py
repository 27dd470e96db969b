"""Sort keys: a unit as one int64, so that sorting the integers puts units in the order in which they are served.

Fields from the top: server, time since an epoch, flow-hop, and whether it is the last unit of its flow (of flows with a
window every unit has that mark, since all their deliveries matter). The sign marks a departure that is a delivery.
"""

import numpy as np

from ..program.arrays import NONE, Int64Array
from ..program.limits import RunTooLarge
from ..program.program import Program

KEY_BITS = 63
"""Bits of a key without the sign."""

SIGN = -(1 << 63)
"""Marks deliveries; such keys sort before all others."""


class KeyWidthError(RunTooLarge):
    """Server, time and flow-hop do not fit into one int64."""

    @classmethod
    def of(cls, program: Program) -> "KeyWidthError":
        """The error for ``program``, with what it has too much of."""
        return cls(
            f"the core windows sorts units by keys of {KEY_BITS} bits, which do not hold {program.num_servers} "
            f"servers, {program.num_hops:.1e} flow-hops and the ticks for which units queue: simulate in packets, "
            "fold symmetric ranks, or use the core compiled"
        )


class Keys:
    """Field widths for a program, and tables by flow-hop and last-flag for moving units on."""

    def __init__(self, program: Program, offsets: Int64Array) -> None:
        """Arrivals at a server are in the time of the ops less its ``offsets`` [S], deliveries in that of the ops."""
        shift = max(program.num_hops, 1).bit_length() + 1  # of the flow-hop and the last-flag
        width = KEY_BITS - shift - program.num_servers.bit_length()
        if width < 1:
            raise KeyWidthError.of(program)
        self.time_shift, self.low_mask, self.time_limit = shift, (1 << shift) - 1, 1 << width
        self.server_field: Int64Array = np.arange(program.num_servers) << width  # [S] above a time
        self.server_edges = np.arange(program.num_servers + 1) << (width + shift)  # [S + 1] in a key
        self.server_bits = np.repeat(self.server_field[program.hop_server] << shift, 2)  # [2H] in a key

        # A departure before service, with its server field, plus this is the arrival at the next hop, without one.
        clock = np.append(offsets[program.hop_server], 0)  # [H + 1]; NONE is -1, the last
        ticks = (program.service_ticks + program.latency_ticks - self.server_field)[program.hop_server]
        ticks += clock[:-1] - clock[program.hop_next]
        hops = np.arange(program.num_hops)
        ends = program.hop_next == NONE
        onward = np.repeat(ticks << shift, 2).reshape(-1, 2)  # [H, is last unit]
        onward[:, 0] += program.hop_next << 1
        onward[:, 1] += np.where(ends, (hops << 1) + SIGN, program.hop_next << 1) + 1
        heard_of = np.ones(onward.shape, np.bool_)  # [H, is last unit] whether anything follows from the departure
        heard_of[ends, 0] = False
        self.onward, self.heard_of = onward.ravel(), heard_of.ravel()

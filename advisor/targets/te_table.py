"""The overlap of Transformer Engine for all products of a layer, as YAML: ``--tp-comm-overlap-cfg`` of Megatron.

It is the best table that its methods and flags allow (``layers/transformer_engine.py``), not a part of the
recommended schedule. Keys that the table does not decide keep the defaults of Transformer Engine, which ends with an
error at a key that it does not know.
"""

from ..implementations.offers import Offer, OpSetting, Order
from ..layers.transformer_engine import NAME, RING
from ..policy.table import PolicyTable, SweepPoint
from .base import Options, comments, heading, refused, settings_text
from .settings import nearest_of

OFF = "leave out --tp-comm-overlap"


def te_table_text(table: PolicyTable, options: Options) -> str:
    """Return the file of a table of several ops.

    Raises
    ------
    Refused
        If points want different tables, or none pays.
    """
    offers = [(point, *_offer(point)) for point in table.points]
    first = offers[0][2]
    for point, _, order in offers:
        if order.table.settings != first.table.settings or order.table.flags != first.table.flags:
            both = f"{settings_text(point)} wants another than {settings_text(offers[0][0])}"
            raise refused(f"a layer has one table, and {both}", "sweep the rows of this run alone")
    if options["te"] == "1" and any(setting.method == RING for setting in first.table.settings):
        raise refused(
            "ring_exchange is simulated by copy engines, which Transformer Engine 1 does not use", "--with te=2"
        )
    why = (
        *(_why(point, offer) for point, offer, _ in offers),
        f"not known, and left out: {first.unknown}",
        f"flags: {' '.join(first.table.flags)} --tp-comm-overlap-cfg FILE",
        "environment: CUDA_DEVICE_MAX_CONNECTIONS=1, where GPUs are older than Blackwell",
    )
    blocks = {setting.layer: _block(setting) for setting in first.table.settings}
    return f"{heading(table, 'megatron')}{comments(*why)}{''.join(blocks.values())}"


def _why(point: SweepPoint, offer: Offer) -> str:
    gain, offers = offer.promise.speedup, point.advice.offers
    library = "" if offers is None else f" over {offers.library}"
    return f"{settings_text(point)}: {gain:.2f}x{library}; the recommended schedule {point.advice.speedup:.2f}x"


def _offer(point: SweepPoint) -> tuple[Offer, Order]:
    """The table for one point.

    Raises
    ------
    Refused
        If there is none, or nothing pays.
    """
    advice, offer = point.advice, point.advice.offer(NAME)
    where = settings_text(point)
    if offer is None or offer.order is None:
        message = f"{where}: no table of Transformer Engine is known for {advice.scenario.name}"
        nearest = nearest_of("megatron", point)
        raise refused(message, nearest or "it overlaps AG+GEMM and GEMM+RS on one node of H100, H200 or B200")
    if not offer.promise.pays or not offer.order.table.settings:
        raise refused(f"{where}: no overlap of Transformer Engine pays", OFF)
    return offer, offer.order


def _block(setting: OpSetting) -> str:
    keys = {"method": setting.method}
    if setting.copy_engine:
        keys["use_ce"] = "true"
    if setting.num_sm:
        keys["num_sm"] = str(setting.num_sm)
    if setting.num_splits:
        keys["num_splits"] = str(setting.num_splits)
    return f"{setting.layer}:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())

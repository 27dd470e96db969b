"""Chakra traces as the converter of PyTorch writes them, by the library of protobuf from fields of et_def.proto."""

import json
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES = {
    "AttributeProto": [
        ("name", 1, _FIELD.TYPE_STRING),
        ("int64_val", 9, _FIELD.TYPE_INT64),
        ("bool_val", 27, _FIELD.TYPE_BOOL),
        ("string_val", 29, _FIELD.TYPE_STRING),
    ],
    "IOInfo": [(name, number, _FIELD.TYPE_STRING) for number, name in enumerate(("values", "shapes", "types"), 1)],
    "GlobalMetadata": [("version", 1, _FIELD.TYPE_STRING), ("attr", 2, "AttributeProto")],
    "Node": [
        ("id", 1, _FIELD.TYPE_UINT64),
        ("name", 2, _FIELD.TYPE_STRING),
        ("type", 3, _FIELD.TYPE_INT32),
        ("ctrl_deps", 4, _FIELD.TYPE_UINT64),
        ("start_time_micros", 6, _FIELD.TYPE_UINT64),
        ("duration_micros", 7, _FIELD.TYPE_UINT64),
        ("inputs", 8, "IOInfo"),
        ("attr", 10, "AttributeProto"),
    ],
}
_REPEATED = ("attr", "ctrl_deps")
BF16 = "Tensor(c10::BFloat16)"
METADATA, COMPUTE, COLLECTIVE = 1, 4, 7
ALL_GATHER, REDUCE_SCATTER = 2, 7


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        one_of = name == "AttributeProto"
        if one_of:
            message.oneof_decl.add(name="value")  # so that 0 and False are written
        for member, number, kind in members:
            field = message.field.add(name=member, number=number)
            if one_of and member != "name":
                field.oneof_index = 0
            field.label = _FIELD.LABEL_REPEATED if member in _REPEATED else _FIELD.LABEL_OPTIONAL
            field.type = _FIELD.TYPE_MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                field.type_name = f".ChakraProtoMsg.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}") for name in _MESSAGES)
    return dict(zip(_MESSAGES, map(message_factory.GetMessageClass, found), strict=True))


_CLASSES = _classes()


def record(message: Any) -> bytes:
    """A message behind its length."""
    data: bytes = message.SerializeToString()
    size, head = len(data), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(head) + bytes([size]) + data


def node(id: int, name: str, kind: int, parent: int | None = None, **said: Any) -> bytes:
    """A node; ``said`` are ``us``, ``start``, ``shapes``, ``types``, ``values``, and attributes."""
    inputs = _CLASSES["IOInfo"](**{key: str(said.pop(key)) for key in ("values", "shapes", "types") if key in said})
    made = _CLASSES["Node"](
        id=id,
        name=name,
        type=kind,
        ctrl_deps=[] if parent is None else [parent],
        start_time_micros=said.pop("start", 0),
        duration_micros=said.pop("us", 0),
        inputs=inputs,
    )
    for key, value in said.items():
        kinds = {bool: "bool_val", int: "int64_val", str: "string_val"}
        made.attr.append(_CLASSES["AttributeProto"](**{"name": key, kinds[type(value)]: value}))
    return record(made)


def gemm(id: int, shape: tuple[int, int, int], us: int, **said: Any) -> list[bytes]:
    """An operation [m, n, k] and its kernel."""
    m, n, k = shape
    operation = node(
        id, "aten::mm", COMPUTE, 1, shapes=[[m, k], [k, n]], types=[BF16, BF16], values=[[1], [2]], is_cpu_op=True
    )
    return [operation, node(id + 1, "nvjet_hsh_128x256", COMPUTE, id, us=us, is_cpu_op=False, **said)]


def collective(id: int, kind: int, num_bytes: int, us: int, group: str = "0", **said: Any) -> bytes:
    """A kernel of NCCL with the bytes that go in."""
    attributes = {"comm_type": kind, "comm_size": num_bytes, "pg_name": group, "is_cpu_op": False}
    return node(
        id, "ncclDevKernel", COLLECTIVE, 1, us=us, types=[BF16], shapes=[[num_bytes // 2]], **attributes, **said
    )


def groups(*sizes: tuple[str, int]) -> bytes:
    """The node that tells how many ranks groups have."""
    reported = json.dumps([{"pg_name": name, "group_size": size, "ranks": list(range(size))} for name, size in sizes])
    return node(2, "## process_group:init ##", METADATA, values=[reported], shapes=[[]], types=["String"])


def trace(nodes: Iterable[bytes], version: str = "0.0.4") -> bytes:
    """A whole trace."""
    return record(_CLASSES["GlobalMetadata"](version=version)) + b"".join(nodes)


def layer(id: int, ranks: int = 8) -> list[bytes]:
    """AG+GEMM, then GEMM+RS, of 4096 tokens."""
    tokens, hidden, inner = 4096, 8192, 3584
    return [
        collective(id, ALL_GATHER, 2 * tokens * hidden // ranks, 190),
        *gemm(id + 1, (tokens, inner, hidden), 370),
        *gemm(id + 3, (tokens, hidden, inner), 380),
        collective(id + 5, REDUCE_SCATTER, 2 * tokens * hidden, 200),
    ]


LAYERS = trace([groups(("0", 8)), *(each for number in range(3) for each in layer(10 + 10 * number))])

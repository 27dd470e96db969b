"""The parse tables of the grammar, kept beside it as JSON: making them takes longer than to check most files.

They are of one grammar and one version of lark, which the first line of the file vouches for together with all that
follows. Where it does not fit, the tables are made from the grammar. Reading them runs nothing that they say.
"""

import hashlib
import json
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef


def tables_text(made: Lark, grammar: str) -> str:
    """The file of the tables of ``made``, which was made from ``grammar``; what has numbers for keys as pairs."""
    data, memo = made.memo_serialize([TerminalDef, Rule])
    options = {name: value for name, value in data["options"].items() if name != "postlex"}
    table = data["parser"]["parser"]
    states = [(state, list(actions.items())) for state, actions in table["states"].items()]
    table = {**table, "states": states, "tokens": list(table["tokens"].items())}
    data = {**data, "options": options, "parser": {**data["parser"], "parser": table}}
    content = json.dumps({"data": data, "memo": list(memo.items())}, separators=(",", ":"))
    return f"{_stamp(grammar, content)}\n{content}\n"


def read_tables(text: str, grammar: str, postlex: Any) -> Lark | None:
    """The lexer and parser of ``grammar`` from the file of their tables; None if it is not theirs or is damaged."""
    stamp, _, content = text.partition("\n")
    content = content.removesuffix("\n")
    if stamp != _stamp(grammar, content):
        return None
    try:
        found = json.loads(content)
        data, table = found["data"], found["data"]["parser"]["parser"]
        table["states"] = {state: dict(actions) for state, actions in table["states"]}
        table["tokens"] = dict(table["tokens"])
        loader: Any = Lark  # whose function has no types
        loaded: Lark = loader._load_from_dict(data, dict(found["memo"]), postlex=postlex)
    except Exception:  # whatever lark makes of a file that vouches for itself and holds no tables
        return None
    return loaded


def _stamp(grammar: str, content: str) -> str:
    """The version of lark, and the hash of what the tables depend on and of them."""
    digest = hashlib.sha256(f"{lark.__version__}\n{grammar}\n{content}".encode()).hexdigest()
    return f"lark {lark.__version__} {digest}"

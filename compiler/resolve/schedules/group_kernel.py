"""Kernels by what their work-groups do: ``kernel pull { groups 32; waves 4; get { load 16; waitcnt 0; reduce } }``."""

from ...codes import Code
from ...ir import Arbitration, GroupKernel, WaveLoop, WithLoaded
from ...text import syntax as ast
from ...text.diagnostics import Report, listing
from ...text.names import Entry
from ...text.vocabulary import KERNEL_LOOPS, KERNEL_NUMBERS, KERNEL_WORDS, LOOP_NUMBERS, PROGRAM_BUFFERS, PROGRAM_WORDS
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_word, known_head, one_of, said_in
from .plan_steps import shard_in

_EXAMPLE = "get { load 16; waitcnt 0; store }"
_THEN = tuple(each.value for each in WithLoaded)
_NUMBERS = {each.name: each for each in (*KERNEL_NUMBERS, *LOOP_NUMBERS)}


def check_buffer(name: ast.Name, report: Report) -> None:
    """Report a buffer that a program does not have."""
    one_of(PROGRAM_BUFFERS, name, "buffer", report, f"buffers are {listing(PROGRAM_BUFFERS)}")


class GroupKernelReader:
    """Reads the kernels of a file."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._report = reading, reading.report

    def read(self, entry: Entry) -> GroupKernel:
        """Return the kernel that ``entry`` declares; report what is wrong with it."""
        declaration, reading = entry.device, self._reading.inside(entry.scope)
        owner = f"kernel {entry.name}"
        said = self._statements(declaration.block, KERNEL_WORDS, owner)
        numbers = {word: self._number(said[word], reading) for word in said if word in _NUMBERS}
        loops = {word: self._loop(said[word], word, reading) for word in said if word in KERNEL_LOOPS}
        arbitration = self._arbitration(said["arbitration"]) if "arbitration" in said else Arbitration.FIFO
        if "groups" not in said or not loops:
            missing = "groups" if "groups" not in said else " or ".join(KERNEL_LOOPS)
            hint = "groups 32" if missing == "groups" else _EXAMPLE
            raise self._report.fail(Code.MGS209, f"{owner} does not say {missing}", declaration.span, hint)
        if "program" in said and said["program"].block is not None:
            self.check_program(said["program"].block)
        put, get = loops.get("put"), loops.get("get")
        waves, request = numbers.get("waves", 1), numbers.get("request", 0)
        return GroupKernel(entry.name, numbers["groups"], put, get, waves, request, arbitration)

    def program(self, entry: Entry) -> tuple[int, ast.BlockNode]:
        """Return the chunks of a block, 1 if not said, and the program of the kernel that ``entry`` declares."""
        declaration = entry.device
        said = self._statements(declaration.block, KERNEL_WORDS, f"kernel {entry.name}")
        program = said["program"].block if "program" in said else None
        if program is None:
            message = f"kernel {entry.name} says no program"
            raise self._report.fail(Code.MGS209, message, declaration.span, "program { copy output.shard(0) to 1 }")
        return self._number(said["chunks"], self._reading.inside(entry.scope)) if "chunks" in said else 1, program

    def check_program(self, block: ast.BlockNode) -> None:
        """Report each statement and each buffer of a program that is unknown, whatever schedule it is for."""
        for statement in block.statements:
            with self._report.attempt():
                word = known_head(statement, PROGRAM_WORDS, "a program", self._report)
                assert isinstance(statement, ast.Say)
                if statement.block is not None:
                    self.check_program(statement.block)
                _, *written = statement.phrase[0].parts
                found = shard_in(written[0]) if written and word in ("load", "store", "copy") else None
                if found is not None:
                    check_buffer(found[0], self._report)

    def _statements(self, block: ast.BlockNode, known: tuple[str, ...], owner: str) -> dict[str, ast.Say]:
        """The statements of a block by their first word."""
        with self._report.whole():
            said = dict(said_in(block, known, owner, self._report))
            for word, statement in said.items():
                if statement.block is not None and word not in (*KERNEL_LOOPS, "program"):
                    raise self._report.fail(Code.MGS116, f"{word} opens no block", statement.span)
        return said

    def _number(self, statement: ast.Say, reading: Reading) -> int:
        wanted = _NUMBERS[head_word(statement)]
        return int(reading.number(wanted, behind(statement, self._report).only(wanted.name)).amount)

    def _arbitration(self, statement: ast.Say) -> Arbitration:
        words, known = behind(statement, self._report), tuple(each.value for each in Arbitration)
        word = words.take_name(f"one of {listing(known)}")
        words.end()
        return Arbitration(one_of(known, word, "arbitration", self._report, f"it is {listing(known)}"))

    def _loop(self, statement: ast.Say, word: str, reading: Reading) -> WaveLoop:
        """Read ``get { load 16; waitcnt 0; store }``, in this order."""
        if statement.block is None:
            raise self._report.fail(Code.MGS116, f"{word} opens a block", statement.span, _EXAMPLE)
        Words(statement.phrase, self._report).take(word)
        said = self._statements(statement.block, KERNEL_LOOPS[word], word)
        ends = [each for each in said if each in _THEN]
        if "load" not in said or len(ends) != 1 or list(said) != [each for each in KERNEL_LOOPS[word] if each in said]:
            message = f"{word} loads lines, waits for them, and ends with {' or '.join(KERNEL_LOOPS[word][-2:])}"
            if word == "put":
                message = "put loads lines and stores them"
            raise self._report.fail(Code.MGS116, message, statement.span, _EXAMPLE.replace("get", word))
        load = self._number(said["load"], reading)
        left = self._number(said["waitcnt"], reading) if "waitcnt" in said else 0
        if left >= load:
            message = f"waitcnt {left} waits for none of the {load} loaded lines, and {ends[0]} needs them"
            raise self._report.fail(Code.MGS508, message, said["waitcnt"].span, f"less than {load}")
        if load % (load - left):
            message = f"{load} lines under way do not divide into turns of {load - left}, load less waitcnt"
            raise self._report.fail(Code.MGS304, message, said["waitcnt"].span, "for instance load 16; waitcnt 8")
        Words(said[ends[0]].phrase, self._report).take(ends[0])
        return WaveLoop(load, left, WithLoaded(ends[0]))

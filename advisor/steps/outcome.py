"""One schedule of a step: its run, its memory, and what a user compares."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ...compiler.ir import TICKS_PER_SECOND, JsonObject, Rejection, Settings, Shard
from ...compiler.ir.step import KEEP_ALL, KEEP_LEAST, ContextKind, StepScenario, StepSchedule
from ...compiler.planning.build import ScheduleError
from ...simcore.steps.orders import rejected
from ...simcore.steps.step import StepRun, layers_of_chunks, run_step
from .layer_times import LayerTimes
from .memory import StageMemory, memory_of, updated_of
from .times import ends_sharing, handed_on, have_copies, ticks_of, weights_of


@dataclass(frozen=True)
class StepOutcome:
    """A step under one schedule, with the parameters of its file set so.

    Attributes
    ----------
    scenario, schedule, settings
        What was asked.
    run
        Its simulation.
    memory
        Of one rank of each stage.
    """

    scenario: StepScenario
    schedule: StepSchedule
    settings: Settings
    run: StepRun
    memory: tuple[StageMemory, ...]

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return self.run.makespan_ticks / TICKS_PER_SECOND

    @property
    def tokens_per_gpu_s(self) -> float:
        """Tokens of the batch for each GPU and second."""
        return self.scenario.step.tokens / self.seconds / self.scenario.system.num_ranks

    @cached_property
    def memory_bytes(self) -> int:
        """Memory of the stage that needs most."""
        return max(stage.total for stage in self.memory)

    @property
    def fits(self) -> bool:
        """Whether every stage fits into a GPU, and into what the file allows."""
        return self.memory_bytes <= memory_limit(self.scenario)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the axes of the system, by name."""
        return {axis.name: axis.size for axis in self.scenario.system.mesh}

    @property
    def shares_weights(self) -> bool:
        """Whether a rank has a shard alone of its weights, which are gathered for each pass (FSDP)."""
        return self.schedule.zero == 3 or ends_sharing(self.scenario.step) is not None

    @property
    def microbatch(self) -> Fraction:
        """Sequences that one rank, or one group that shares a layer, takes at once."""
        forward = self.scenario.step.blocks[0].parts[0].forward
        # Ranks without columns of their own have sequences of their own, as with FSDP and with experts.
        own = 1 if any(each.shard is Shard.COLS for each in weights_of(forward)) else forward.num_ranks
        return Fraction(handed_on(forward).rows * self.sizes.get("cp", 1), self.scenario.step.length * own)

    @property
    def layout(self) -> str:
        """The sizes of the axes of the system, and of a microbatch but for one sequence: ``tp4 dp8 pp4 mb2``."""
        axes = [f"{name}{size}" for name, size in self.sizes.items()]
        sequences = "" if self.microbatch == 1 else f"mb{float(self.microbatch):g}"
        return " ".join(filter(None, (*axes, sequences)))

    @property
    def words(self) -> str:
        """How it is carried out beside its layout, in short: ``interleaved(5) zero 1``."""
        schedule, blocks = self.schedule, self.scenario.step.blocks
        derived = any(keep for block in blocks for part in block.parts for keep, _ in part.backward)
        shares = have_copies(self.scenario)
        pipeline = schedule.pipeline.expression.replace("chunks=", "") if self.scenario.num_stages > 1 else ""
        keeps = KEEP_LEAST if schedule.keep == KEEP_LEAST else "some"
        kept = f"keep {keeps}" if derived and schedule.keep != KEEP_ALL else ""
        ring = self.scenario.in_context and schedule.context is ContextKind.RING
        return " ".join(
            filter(None, (pipeline, "ring" if ring else "", f"zero {schedule.zero}" if shares else "", kept))
        )

    def document(self) -> JsonObject:
        """Return the figures as JSON: seconds, bytes, shares."""
        return {
            "schedule": self.schedule.name,
            "settings": dict(self.settings),
            "mesh": self.sizes,
            "pipeline": self.schedule.pipeline.expression,
            "zero": self.schedule.zero,
            "keep": self.schedule.keep,
            "context": self.schedule.context.value if self.scenario.in_context else None,
            "stack": None if self.schedule.stack is None else self.schedule.stack.name,
            "overlap": [each.value for each in self.schedule.overlapped],
            "microbatch": float(self.microbatch),
            "microbatches": self.scenario.step.microbatches,
            "stages": list(self.run.chunks),
            "step_s": self.seconds,
            "tokens_per_gpu_s": self.tokens_per_gpu_s,
            "bubble": self.run.bubble,
            "exposed": self.run.exposed,
            "optimizer_s": self.run.optimizer_ticks / TICKS_PER_SECOND,
            "memory_bytes": [stage.total for stage in self.memory],
            "fits": self.fits,
        }


def memory_limit(scenario: StepScenario) -> int:
    """Return the bytes that a rank may use: what the file allows, and no more than the GPU has."""
    capacity = scenario.system.gpu.hbm.capacity_bytes
    return min(capacity, scenario.explore.memory_bytes or capacity)


def chunks_of(scenario: StepScenario, schedule: StepSchedule) -> tuple[int, ...]:
    """Return the layers of each chunk.

    Raises
    ------
    ScheduleError
        If the pipeline cannot take the layers or the microbatches.
    """
    rejection = rejected(schedule.pipeline, scenario.num_stages, scenario.step.microbatches)
    found = rejection or layers_of_chunks(scenario.step.num_layers, scenario.num_stages, schedule)
    if isinstance(found, Rejection):
        raise ScheduleError(found)
    return found


def outcome_of(
    scenario: StepScenario, schedule: StepSchedule, times: LayerTimes, settings: Settings = ()
) -> StepOutcome:
    """Simulate a step under a schedule.

    Raises
    ------
    ScheduleError
        If the pipeline cannot take the layers or the microbatches, or a layer cannot be simulated so.
    """
    counts = chunks_of(scenario, schedule)
    ticks = ticks_of(scenario, schedule, times, updated_of(scenario, schedule, counts))
    run = run_step(ticks, schedule, scenario.num_stages, scenario.step.microbatches)
    return StepOutcome(scenario, schedule, settings, run, memory_of(scenario, schedule, counts))

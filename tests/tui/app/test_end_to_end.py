"""The app on a real file: compiled, advised on and simulated, nothing made by hand."""

from pathlib import Path

import pytest

from magus.advisor.candidates.advice import Advice
from magus.compiler.ir import Pattern
from magus.tui.app.app import MagusApp
from magus.tui.app.session.job import JobProblem, ProblemKind
from magus.tui.text.render import threshold_sentence
from tests.helpers.scenarios.drawn import SYSTEMS, TEXTS
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until

PROFILE = """\
time_us,rank,signal,bytes
0.9,3,s_x1,65536
"""
FILE = """\
mgs 1
use "amd/mi300x"
system node { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on node {
  x = tensor bf16[1024, 2048] shard rows
  w = tensor bf16[2048, 4096] shard cols
  y = gemm(all_gather(x), w)
}
explore up { schedules serial, uniform_fused_1d, hetero_fused_1d; engine dma }
"""


@pytest.mark.slow
async def test_a_file_from_text_to_timeline(tmp_path: Path) -> None:
    path = tmp_path / "small.mgs"
    path.write_text(FILE, encoding="utf-8")
    app = MagusApp(path, workers=1)
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: app.session.job is not None and app.session.job.answer is not None)
        await settled(pilot)
        job = app.session.job
        assert job is not None
        assert isinstance(job.answer, Advice), job.answer
        assert job.answer.threshold is not None
        assert threshold_sentence(job.answer.threshold) in screen_text(app)

        await press(pilot, *("j",) * (len(job.answer.candidates) - 1))
        last = job.answer.candidates[-1].expression

        assert f"Timeline: {last}" in screen_text(app)
        assert job.runs[last].result.waterfall is not None
        path.write_text(FILE.replace("gpus 4", "gpus four"), encoding="utf-8")
        await press(pilot, "e")
        assert "The file cannot be used" in screen_text(app)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", TEXTS, ids=lambda pattern: pattern.value)
async def test_every_pattern_is_answered_in_a_small_terminal(tmp_path: Path, pattern: Pattern) -> None:
    path = tmp_path / "small.mgs"
    system, workload = SYSTEMS[0].format(ranks=4), TEXTS[pattern].format(m=256, n=256, k=256)
    path.write_text(
        f'use "nvidia/h100"\nsystem s {{ {system} }}\nworkload one on s {{ {workload} }}\n', encoding="utf-8"
    )
    app = MagusApp(path, workers=1)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: app.session.job is not None and app.session.job.answer is not None)
        await settled(pilot)
        job = app.session.job
        assert job is not None
        assert isinstance(job.answer, Advice), job.answer
        shown = screen_text(app)

        await press(pilot, "2")
        timeline = screen_text(app)
        await press(pilot, "3")

        assert job.answer.name_of(job.answer.recommended.expression) in " ".join(shown.split())
        assert "stream 0" in timeline or "dma" in timeline or "copy" in timeline
        assert "No schedule in the reach" in screen_text(app)


@pytest.mark.slow
async def test_a_profile_to_replay_is_refused_as_the_file_s_matter(tmp_path: Path) -> None:
    path = tmp_path / "small.mgs"
    (tmp_path / "profile.csv").write_text(PROFILE, encoding="utf-8")
    replayed = FILE.replace("full_mesh(xgmi) }", 'full_mesh(xgmi); replay "profile.csv" }')
    path.write_text(replayed, encoding="utf-8")
    app = MagusApp(path, workers=1)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: app.session.job is not None and app.session.job.answer is not None)
        await settled(pilot)
        job = app.session.job
        assert job is not None and isinstance(job.answer, JobProblem)
        assert job.answer.kind is ProblemKind.FILE
        assert "MGS523" in screen_text(app)

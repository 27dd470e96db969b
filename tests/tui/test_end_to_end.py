"""The app on a real file: compiled, advised on and simulated, nothing made by hand."""

from pathlib import Path

import pytest

from magus.advisor.advice import Advice
from magus.tui.app import MagusApp
from tests.tui.driving import LARGE, press, screen_text, settled, until

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

        await press(pilot, *("j",) * (len(job.answer.candidates) - 1))
        last = job.answer.candidates[-1].expression

        assert f"Timeline: {last}" in screen_text(app)
        assert job.results[last].waterfall is not None
        path.write_text(FILE.replace("gpus 4", "gpus four"), encoding="utf-8")
        await press(pilot, "e")
        assert "The file cannot be used" in screen_text(app)

"""Behaviour 24 with real processes: writes and reads map one to one, though writers are killed."""

from __future__ import annotations

import asyncio
import io
import json
import os

import pytest

import stratalog as sl
from soak.process_writers import process_writers
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.soak import History, SoakOptions, SoakReport, soak

pytestmark = [pytest.mark.slow, pytest.mark.s3]

OPTIONS = SoakOptions(rate=100.0, duration_s=30.0, life_s=5.0, chore_s=2.0)
LIMIT_S = 280.0


def test_behaviour_24_records_map_one_to_one_while_processes_are_killed(s3_url: str) -> None:
    file = io.BytesIO()

    async def scenario() -> tuple[SoakReport, list[int]]:
        async with process_writers(s3_url) as writers:
            report = await soak(
                s3_url, options=OPTIONS, open_writer=writers.open, history=History(file)
            )
        assert (await sl.verify(s3_url)).proven
        await destroy(s3_url)
        return report, writers.pids

    report, pids = asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))
    figures = report.figures
    assert report.proven, report.violations
    assert figures.read == figures.acknowledged + figures.landed > 300
    assert figures.lag == 0
    for done in ("killed", "unknown", "collected", "swept", "pins", "side_reads"):
        assert getattr(figures, done) > 0, done
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    appends = [line for line in lines if line["kind"] == "append"]
    assert sum(line["count"] for line in appends) == figures.called
    assert len(pids) == figures.opened
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

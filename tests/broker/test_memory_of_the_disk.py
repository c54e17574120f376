"""A broker's ``memory_bytes`` bounds what its disk keeps in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.broker import BrokerOptions
from stratalog.broker.broker import disk_options

MIB = 1024 * 1024


@pytest.mark.parametrize("memory_mib", [8, 64, 512, 4096, 100_000])
def test_wal_files_and_queue_fit_into_it(tmp_path: Path, memory_mib: int) -> None:
    options = disk_options(BrokerOptions(data=tmp_path, memory_bytes=memory_mib * MIB))
    assert options.memory_bytes_max == memory_mib * MIB
    waiting = options.wal_files_max * options.wal_file_bytes
    assert waiting + options.queue_bytes_max <= memory_mib * MIB


def test_the_default_is_half_a_gibibyte(tmp_path: Path) -> None:
    options = disk_options(BrokerOptions(data=tmp_path))
    assert options.memory_bytes_max == 512 * MIB
    assert options.wal_file_bytes == 128 * MIB


def test_segments_are_merged_as_far_as_retention_allows(tmp_path: Path) -> None:
    hour = 3_600_000
    for retention_ms, expected in [(8 * hour, hour), (None, None), (1, 1)]:
        options = disk_options(BrokerOptions(data=tmp_path, retention_ms=retention_ms))
        assert options.merge_time_max == expected

"""The checks object to bugs that were put in on purpose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest

from segments import planted, stages
from segments.model import BrokenPromise
from segments.power import Played, Stage, Step, opened, play, prologue, survive_power_loss
from segments.witness import Witness, read_all
from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import IndexSet
from stratalog.testing import Simulation

Plant = Callable[[], AbstractContextManager[None]]

PLANTS = [
    (planted.acknowledge_before_the_sync, stages.sparse_writing),
    (planted.flush_forgets_what_lives, stages.checkpoint_with_live),
    (planted.compaction_drops_a_live_entry, stages.major),
    (planted.wal_file_deleted_early, stages.flush),
    (planted.absence_as_commit_point, stages.flush),
    (planted.epoch_ignored_on_overwrite, stages.overwriting),
    (planted.found_is_taken_for_durable, stages.sparse_writing),
]


@pytest.mark.parametrize(("plant", "step"), PLANTS, ids=lambda each: each.__name__)
def test_the_matrix_of_crashes_finds_a_planted_bug(plant: Plant, step: Step) -> None:
    stage = next(each for each in stages.STAGES if each.step is step)
    with plant(), pytest.raises((BrokenPromise, Corrupt, Invalid)):
        survive_power_loss(stage, thoroughly=True)


async def read_everything(witness: Witness) -> None:
    await read_all(await witness.disk.partition("a"))


async def read_sparsely(witness: Witness) -> None:
    partition = await witness.disk.partition("a")
    async for _ in partition.read(IndexSet.of([1, 6, 10])):
        continue


async def compact(witness: Witness) -> None:
    await witness.compact("a")


WAYS = [read_everything, read_sparsely, compact]


def rot(stage: Stage, way: Step) -> Played:
    """One bit of an entry that lives turns over, and then the entry is used."""
    left = prologue(stage)
    path = next(path for path in left.files.names() if path.startswith("seg/"))
    left.files.damage(path, 64 + Random(0).randrange(40), 0b100)

    async def script(simulation: Simulation) -> None:
        witness = await opened(left.files, left.model, stage, simulation)
        await way(witness)

    play(left.files, script, seed=2)
    return left


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
def test_a_rotten_entry_is_noticed(way: Step) -> None:
    with pytest.raises(Corrupt):
        rot(Stage(stages.major, stages.half_dead), way)


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
def test_a_rotten_entry_is_not_noticed_without_checksums(
    way: Step,
) -> None:
    with planted.checksum_skipped():
        rot(Stage(stages.major, stages.half_dead), way)

"""The checks object to bugs that were put in on purpose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest
from _pytest.outcomes import Failed
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from segments import planted, scenarios
from segments.failing import survive_failures
from segments.model import BrokenPromise
from segments.power import Played, Scenario, Step, opened, play, prologue, survive_power_loss
from segments.scenarios import patched
from segments.states import states, tiny
from segments.test_against_a_dictionary import DiskMachine
from segments.test_every_flip import cuts, flips, must_be_found
from segments.witness import Witness, read_all
from stratalog.errors import Conflict, Corrupt, Invalid, StratalogError
from stratalog.indexset import IndexSet
from stratalog.testing import Simulation

Plant = Callable[[], AbstractContextManager[None]]
FOUND = (BrokenPromise, Corrupt, Invalid, Conflict)
"""A write that fits and is refused shows as much as a promise that is broken."""
BRIEFLY = settings(
    DiskMachine.TestCase.settings, max_examples=200, phases=[Phase.generate], database=None
)

PLANTS = [
    (planted.acknowledge_before_the_sync, scenarios.sparse_writing),
    (planted.flush_forgets_what_lives, scenarios.checkpoint_with_live),
    (planted.compaction_drops_a_live_entry, scenarios.major),
    (planted.wal_file_deleted_early, scenarios.flush),
    (planted.absence_as_commit_point, scenarios.flush),
    (planted.epoch_ignored_on_overwrite, scenarios.overwriting),
    (planted.found_is_taken_for_durable, scenarios.sparse_writing),
    (planted.closed_stays, scenarios.closing_and_opening),
    (planted.second_copy_first, scenarios.flush),
    (planted.named_before_its_size, scenarios.sparse_writing),
    (planted.span_forgotten_in_a_segment, scenarios.spans),
    (planted.sections_in_batches_of_their_own, scenarios.together),
    (planted.strangers_are_merged, scenarios.merging),
    (planted.prepared_is_taken_for_begun, scenarios.writing_over),
    (planted.any_life_counts, scenarios.writing_over),
    (planted.nonce_stays, scenarios.writing_over),
    (planted.written_over_before_the_record, scenarios.writing_over),
    (planted.named_before_its_head, scenarios.writing_over),
    (planted.prepared_after_a_failure, scenarios.failing_while_writing_over),
]


@pytest.mark.parametrize(("plant", "step"), PLANTS, ids=lambda each: each.__name__)
def test_the_matrix_of_crashes_finds_a_planted_bug(plant: Plant, step: Step) -> None:
    scenario = next(each for each in scenarios.ALL if each.step is step)
    with plant(), patched(scenario), pytest.raises(FOUND):
        survive_power_loss(scenario, thoroughly=True)


def test_a_failing_disk_finds_a_note_that_counts_too_early() -> None:
    scenario = next(each for each in scenarios.SCENARIOS if each.step is scenarios.together)
    plant = planted.note_applied_before_it_is_durable
    with plant(), patched(scenario), pytest.raises(BrokenPromise):
        survive_failures(scenario)


@pytest.mark.parametrize(
    "plant",
    [
        planted.repeated_write_is_not_compared,
        planted.any_index_ends_an_entry,
        planted.checkpoint_of_notes_forgets_one,
    ],
    ids=lambda each: each.__name__,
)
def test_the_dictionary_finds_a_planted_bug(plant: Plant) -> None:
    with plant(), pytest.raises((AssertionError, Failed, StratalogError)):
        run_state_machine_as_test(DiskMachine, settings=BRIEFLY)


async def read_everything(witness: Witness) -> None:
    await read_all(await witness.disk.partition("a"))


async def read_sparsely(witness: Witness) -> None:
    partition = await witness.disk.partition("a")
    async for _ in partition.read(IndexSet.of([1, 6, 10])):
        continue


async def compact(witness: Witness) -> None:
    await witness.compact("a")


WAYS = [read_everything, read_sparsely, compact]


def rot(scenario: Scenario, way: Step) -> Played:
    """One bit of an entry that lives turns over, and then the entry is used."""
    left = prologue(scenario)
    path = next(path for path in left.files.names() if path.startswith("seg/"))
    left.files.damage(path, 64 + Random(0).randrange(40), 0b100)

    async def script(simulation: Simulation) -> None:
        witness = await opened(left.files, left.model, scenario, simulation)
        await way(witness)

    play(left.files, script, seed=2)
    return left


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
def test_a_rotten_entry_is_noticed(way: Step) -> None:
    with pytest.raises(Corrupt):
        rot(Scenario(scenarios.major, scenarios.half_dead), way)


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
def test_a_rotten_entry_is_not_noticed_without_checksums(
    way: Step,
) -> None:
    with planted.checksum_skipped():
        rot(Scenario(scenarios.major, scenarios.half_dead), way)


DAMAGE_PLANTS = [
    (planted.damaged_is_taken_for_torn, "empty_partition-crashed"),
    (planted.any_checksum_fits, "several_batches-crashed"),
    (planted.closed_is_not_compared, "several_batches-closed"),
    (planted.sizes_are_not_compared, "several_batches-crashed"),
    (planted.doubtful_bytes_are_dropped, "several_batches-crashed"),
    (planted.trailer_is_believed, "several_batches-crashed"),
    (planted.trailer_is_believed, "written_over-closed"),
]


@pytest.mark.parametrize(
    ("plant", "name"), DAMAGE_PLANTS, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_flip_or_a_cut_finds_a_planted_bug(plant: Plant, name: str) -> None:
    state = states()[name]
    with tiny(), plant(), pytest.raises((AssertionError, StratalogError)):
        must_be_found(state, [*flips(state), *cuts(state)])

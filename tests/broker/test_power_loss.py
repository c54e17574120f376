"""Power is lost at every step of what a broker does for its clients."""

from __future__ import annotations

import asyncio

import pytest

from broker.broker_lives import BrokerLife, Step, survive
from simulation import planted_serving
from simulation.planting import Plant
from simulation.promises import PromiseBroken
from simulation.serving_client import Refused
from stratalog.errors import StratalogError


async def some_records(life: BrokerLife) -> None:
    await life.create("one")
    await life.append("one")
    await life.begin("one")
    await life.produce()


async def records_in_segments(life: BrokerLife) -> None:
    await some_records(life)
    for _ in range(4):
        await life.append("one", size=100)
    await life.life.context.disk.flush()


async def append(life: BrokerLife) -> None:
    await life.append("one")


async def produce(life: BrokerLife) -> None:
    await life.produce()
    await life.produce()


async def begin_again(life: BrokerLife) -> None:
    await life.begin("one")
    await life.produce()


async def commit(life: BrokerLife) -> None:
    await life.commit("one")
    await life.commit("one")


async def join(life: BrokerLife) -> None:
    await life.commit("one")
    await life.join()
    await life.join()


async def delete_records(life: BrokerLife) -> None:
    await life.delete_records("one", 1)  # in the middle of a batch
    await life.append("one")
    await life.delete_records("one", 4)


async def shorten(life: BrokerLife) -> None:
    await life.bound("one")
    assert life.log("one").log_start > 0
    await life.append("one")


async def take_checkpoints(life: BrokerLife) -> None:
    await life.append("one", size=300)
    await life.produce()
    await asyncio.sleep(1.0)  # of virtual time: no append waits for a checkpoint
    assert life.life.context.disk.stats.minor_compactions > 0


async def make_again(life: BrokerLife) -> None:
    await life.commit("one")
    for producer in life.ledger.producers:
        producer.topic = None
    await life.delete("one")
    await life.create("one")
    await life.append("one")
    await life.commit("one")


@pytest.mark.parametrize(
    ("step", "prologue"),
    [
        (append, some_records),
        (produce, some_records),
        (begin_again, some_records),
        (commit, some_records),
        (join, some_records),
        (delete_records, some_records),
        (shorten, records_in_segments),
        (take_checkpoints, some_records),
        (make_again, some_records),
    ],
)
def test_what_clients_were_told_is_there_whenever_the_power_is_lost(
    step: Step, prologue: Step
) -> None:
    assert survive(step, prologue) > 3


@pytest.mark.parametrize(
    ("plant", "step"),
    [
        (planted_serving.acknowledge_before_durable, append),
        (planted_serving.duplicate_answered_before_its_original, produce),
        (planted_serving.producer_ids_given_again, begin_again),
        (planted_serving.group_offsets_not_replayed, commit),
        (planted_serving.log_start_not_durable, delete_records),
        (planted_serving.log_start_lost_at_a_restart, delete_records),
        (planted_serving.topic_name_reused_with_its_data, make_again),
    ],
    ids=lambda each: each.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, step: Step) -> None:
    with plant(), pytest.raises((PromiseBroken, AssertionError, Refused, StratalogError)):
        survive(step, some_records)

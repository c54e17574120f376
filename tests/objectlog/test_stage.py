"""Stages: the uploads of a long job are spared, and one that was revoked can link nothing."""

from __future__ import annotations

import asyncio
import json

import pytest

import stratalog as sl
from objectlog.leftovers import everything, litter, unlinked_data
from objectlog.staging import Job, log_of
from objectlog.whole_log import FakeClock, check_whole_log, reachable, run
from objectlog.wrapped_stores import GateStore, Trick, TrickyStore
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, StratalogError, Unknown
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.upload_guard import UploadGuard, UploadGuardStore, upload_guard_path
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import Blob, MemoryStore
from stratalog.store.closing import open_json
from stratalog.testing import Simulation, simulate

TRICKS: list[Trick] = ["lost", "dropped", "echoed", "refused", "late"]


async def states(store: sl.Store | str) -> dict[str, str]:
    return {stage.incarnation: stage.state for stage in await UploadGuardStore(store).list()}


class TestLife:
    def test_from_registering_to_its_release(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            assert await UploadGuardStore(store).list() == []
            stage = await UploadGuard.register(
                store, owner="compactor", note="topic a", runtime=FakeClock(1_700_000)
            )
            assert await stage.is_live()
            (listed,) = await UploadGuardStore(store).list()
            assert listed.incarnation == stage.incarnation == stage.names.incarnation
            assert (listed.owner, listed.note, listed.epoch_us) == (
                "compactor",
                "topic a",
                1_700_000,
            )
            await stage.release()
            assert not await stage.is_live()
            assert await states(store) == {stage.incarnation: "released"}
            await stage.release()

        run(main())

    def test_every_stage_has_an_incarnation_of_its_own(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            stages = await asyncio.gather(*(UploadGuard.register(store) for _ in range(10)))
            assert await states(store) == {each.incarnation: "live" for each in stages}
            assert len(await states(store)) == 10

        run(main())

    def test_a_revoked_one_is_not_live_and_can_be_released(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            stage = await UploadGuard.register(store)
            assert (await UploadGuardStore(store).revoke(stage.incarnation)).state == "revoked"
            assert not await stage.is_live()
            assert (await UploadGuardStore(store).revoke(stage.incarnation)).state == "revoked"
            await stage.release()
            assert (await UploadGuardStore(store).revoke(stage.incarnation)).state == "released"

        run(main())

    def test_there_is_none_to_revoke(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            with pytest.raises(NotFound):
                await UploadGuardStore(store).revoke("0123456789ab")
            with pytest.raises(Invalid):
                await UploadGuardStore(store).revoke("../manifest")

        run(main())

    def test_only_a_log_that_is_ours_has_stages(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            with pytest.raises(NotFound):
                await UploadGuard.register(store)
            await log_of(store)
            for owner, note in [("", ""), ("a\nb", ""), ("me", "\0"), ("me", "x" * 1001)]:
                with pytest.raises(Invalid):
                    await UploadGuard.register(store, owner=owner, note=note)
            assert await UploadGuardStore(store).list() == []

        run(main())

    def test_fields_of_others_survive(self) -> None:
        async def main() -> None:
            store = await log_of(MemoryStore())
            stage = await UploadGuard.register(store)
            path = upload_guard_path(stage.incarnation)
            blob = await store.get(path)
            marked = {**json.loads(open_json(blob.data, None)), "mark": [1, 2]}
            await store.put_if_match(path, json.dumps(marked).encode(), blob.etag)
            await stage.release()
            assert json.loads((await store.get(path)).data)["mark"] == [1, 2]

        run(main())

    def test_files_of_others_beside_stages_are_no_stages(self) -> None:
        async def main() -> None:
            store = await log_of(MemoryStore())
            await store.put_if_absent("stage/README.txt", b"not a stage")
            assert await UploadGuardStore(store).list() == []

        run(main())

    @pytest.mark.parametrize("damage", [b"", b"{}", None])
    def test_damage_stops_whoever_reads_it(self, damage: bytes | None) -> None:
        async def main() -> None:
            store = await log_of(MemoryStore())
            stage = await UploadGuard.register(store)
            path = upload_guard_path("0123456789ab")
            data = (await store.get(upload_guard_path(stage.incarnation))).data
            await store.put_if_absent(path, data if damage is None else damage)
            with pytest.raises(Corrupt) as caught:
                await UploadGuardStore(store).list()
            assert caught.value.path == path

        run(main())


class TestLinking:
    def test_a_live_stage_links_what_was_uploaded_before_a_sweep(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            job = await Job.upload(store, await UploadGuard.register(store))
            strangers = await litter(store)
            report = await sweep(store)
            assert report.deleted.objects == len(strangers)
            assert set(report.spared) == {job.stage.incarnation}
            assert report.spared[job.stage.incarnation].objects == 1
            await job.link()
            await job.stage.release()
            assert job.path in await reachable(store)
            assert len(await check_whole_log(store)) == 4
            assert await unlinked_data(store) == set()

        run(main())

    @pytest.mark.parametrize("end", ["revoke", "release"])
    def test_one_that_ended_links_nothing(self, store_url: str, end: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            job = await Job.upload(store, await UploadGuard.register(store))
            if end == "revoke":
                await UploadGuardStore(store).revoke(job.stage.incarnation)
            else:
                await job.stage.release()
            before = await everything(store)
            with pytest.raises(Conflict, match="not live"):
                await job.link()
            assert await everything(store) == before

        run(main())

    def test_the_manifest_is_read_first_and_the_stage_just_before_the_put(self) -> None:
        """The other way round, a sweep in between would take what is then linked."""

        class Order(GateStore):
            async def get(self, path: str) -> Blob:
                asked.append(path)
                return await super().get(path)

        asked: list[str] = []

        async def main() -> None:
            store = await log_of(MemoryStore())
            stage = await UploadGuard.register(Order(store, "nothing"))
            job = await Job.upload(store, stage)
            asked.clear()
            await job.link()
            assert asked == [MANIFEST_PATH, upload_guard_path(stage.incarnation)]

        run(main())

    def test_a_job_that_sleeps_before_its_put_loses_it_to_the_sweep_that_revoked_it(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            gate = GateStore(store, MANIFEST_PATH)
            job = await Job.upload(store, await UploadGuard.register(gate))
            linking = asyncio.ensure_future(job.link())
            await gate.arrived.wait()
            report = await sweep(store, revoke=[job.stage.incarnation])
            assert report.deleted.objects == 1
            assert await unlinked_data(store) == set()
            gate.open()
            with pytest.raises(Conflict, match="not live"):
                await linking
            assert len(await check_whole_log(store)) == 4

        run(main())

    def test_a_job_that_wins_against_the_sweep_keeps_its_upload(self, store_url: str) -> None:
        """It saw its stage alive; its put lands after the stage was revoked."""

        async def main() -> None:
            store = await log_of(store_url)
            gate = GateStore(store, MANIFEST_PATH)
            job = await Job.upload(store, await UploadGuard.register(gate))
            linking = asyncio.ensure_future(job.link())
            await gate.arrived.wait()
            await UploadGuardStore(store).revoke(job.stage.incarnation)
            gate.open()
            await linking
            assert (await sweep(store)).deleted.objects == 0
            assert job.path in await reachable(store)
            assert len(await check_whole_log(store)) == 4

        run(main())

    @pytest.mark.parametrize("trick", TRICKS)
    def test_a_link_whose_answer_was_lost_is_settled(self, trick: Trick) -> None:
        async def main() -> None:
            store = await log_of(MemoryStore())
            tricky = TrickyStore(store, MANIFEST_PATH)
            job = await Job.upload(store, await UploadGuard.register(tricky))
            tricky.tricks.append(trick)
            await job.link()
            await tricky.land_late()
            assert job.path in await reachable(store)
            assert len(await check_whole_log(store)) == 4

        run(main())


class TestRegisteringTwice:
    """However late the put that registered a stage arrives again, it revives nobody."""

    def test_a_revoked_stage_stays_as_a_tombstone(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            stage = await UploadGuard.register(store)
            path = upload_guard_path(stage.incarnation)
            registered = (await store.get(path)).data
            await litter(store, stage.names)
            report = await sweep(store, revoke=[stage.incarnation])
            assert (report.deleted.objects, report.stages, report.stages_removed) == (4, (), 0)
            with pytest.raises(StratalogError):
                await store.put_if_absent(path, registered)
            assert not await stage.is_live()

        run(main())

    def test_a_released_stage_is_swept_and_its_job_stays_released(self, store_url: str) -> None:
        async def main() -> None:
            store = await log_of(store_url)
            stage = await UploadGuard.register(store)
            path = upload_guard_path(stage.incarnation)
            registered = (await store.get(path)).data
            await stage.release()
            assert (await sweep(store, dry_run=True)).stages_removed == 1
            assert await states(store) == {stage.incarnation: "released"}
            assert (await sweep(store)).stages_removed == 1
            assert await states(store) == {}
            await store.put_if_absent(path, registered)
            assert not await stage.is_live()

        run(main())


class TestLostAnswers:
    @pytest.mark.parametrize("trick", TRICKS)
    @pytest.mark.parametrize("repeats", [1, 2])
    def test_every_change_is_settled_by_reading_back(self, trick: Trick, repeats: int) -> None:
        async def main(simulation: Simulation) -> None:
            store = await log_of(MemoryStore())
            tricky = TrickyStore(store, "stage/", [trick] * repeats)
            first = await UploadGuard.register(tricky, runtime=simulation.runtime)
            second = await UploadGuard.register(tricky, runtime=simulation.runtime)
            await tricky.land_late()
            assert set((await states(store)).values()) == {"live"}
            tricky.tricks.extend([trick] * repeats)
            await UploadGuardStore(tricky, runtime=simulation.runtime).revoke(first.incarnation)
            await tricky.land_late()
            tricky.tricks.extend([trick] * repeats)
            await second.release()
            await tricky.land_late()
            assert await states(store) == {
                first.incarnation: "revoked",
                second.incarnation: "released",
            }

        simulate(main, seed=1)

    def test_a_stage_in_doubt_is_not_given_to_its_job(self) -> None:
        """Its put may land once nobody asks any more: then it protects nothing, and is listed."""

        class Silent(TrickyStore):
            async def put_if_absent(self, path: str, data: bytes) -> str:
                self.tricks.append("late")
                return await super().put_if_absent(path, data)

        async def main(simulation: Simulation) -> None:
            store = await log_of(MemoryStore())
            silent = Silent(store, "stage/")
            with pytest.raises(Unknown):
                await UploadGuard.register(silent, runtime=simulation.runtime)
            assert await states(store) == {}
            await silent.land_late()
            assert list((await states(store)).values()) == ["live"]

        simulate(main, seed=1)

    def test_a_revocation_and_a_release_at_once(self) -> None:
        async def main() -> None:
            store = await log_of(MemoryStore())
            stage = await UploadGuard.register(store)
            gate = GateStore(store, "stage/")
            revoking = asyncio.ensure_future(UploadGuardStore(gate).revoke(stage.incarnation))
            await gate.arrived.wait()
            await stage.release()
            gate.open()
            assert (await revoking).state == "released"

        run(main())

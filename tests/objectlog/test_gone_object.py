"""A missing object: replaced by a newer manifest, or lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from objectlog.whole_log import run
from stratalog.errors import Conflict, Corrupt, NotFound, Trimmed
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, load_manifest
from stratalog.objectlog.tree.gone_object import ATTEMPTS_MAX, Reloads, on_newest_tree
from stratalog.runtime import Runtime
from stratalog.store import MemoryStore, Store

A, B = (NotFound("not here", path=f"snapshot/{each}") for each in "ab")


async def put_another(store: MemoryStore) -> str:
    """A newer version of the manifest; gives its write id."""
    manifest = Manifest.of_new_log("test", Runtime())
    await store.delete_many([MANIFEST_PATH])
    await store.put_if_absent(MANIFEST_PATH, manifest.to_json())
    assert manifest.write_id is not None
    return manifest.write_id


def walk(
    store: MemoryStore, *gone: NotFound, changes: bool = True
) -> tuple[list[str | None], Callable[[Manifest], Awaitable[str]]]:
    """A walk that misses these objects, one at each attempt, and the versions that it has seen."""
    seen: list[str | None] = []

    async def work(manifest: Manifest) -> str:
        seen.append(manifest.write_id)
        if len(seen) > len(gone):
            return "walked"
        if changes:
            await put_another(store)
        raise gone[len(seen) - 1]

    return seen, work


def test_a_tree_that_is_whole_is_walked_once() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        version = await put_another(store)
        seen, work = walk(store)
        assert await on_newest_tree(store, work) == "walked"
        assert seen == [version]

    run(scenario())


def test_an_object_that_a_newer_manifest_does_without_is_no_damage() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        seen, work = walk(store, A, B)
        assert await on_newest_tree(store, work) == "walked"
        assert len(set(seen)) == 3
        assert seen[-1] == (await load_manifest(store))[0].write_id

    run(scenario())


def test_an_object_that_the_same_manifest_still_links_is_lost() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        seen, work = walk(store, A, changes=False)
        with pytest.raises(Corrupt, match="snapshot/a is missing although the log links it"):
            await on_newest_tree(store, work)
        assert len(seen) == 1

    run(scenario())


def test_an_object_that_newer_manifests_lead_to_again_is_lost() -> None:
    """Appends give the log a new version at each attempt, which does not bring the node back."""

    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        seen, work = walk(store, A, B, A)
        with pytest.raises(Corrupt, match="snapshot/a is missing"):
            await on_newest_tree(store, work)
        assert len(seen) == 3

    run(scenario())


def test_a_tree_that_changes_at_each_attempt_is_given_up() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        gone = [NotFound("not here", path=f"snapshot/{number}") for number in range(ATTEMPTS_MAX)]
        seen, work = walk(store, *gone)
        with pytest.raises(Conflict, match="the tree changes faster than it can be walked"):
            await on_newest_tree(store, work)
        assert len(seen) == ATTEMPTS_MAX

    run(scenario())


def test_a_log_that_is_destroyed_meanwhile_is_not_damaged() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)

        async def work(_manifest: Manifest) -> None:
            await store.delete_many([MANIFEST_PATH])
            raise A

        with pytest.raises(NotFound, match="there is no log"):
            await on_newest_tree(store, work)

    run(scenario())


def test_manifests_that_may_not_be_walked_are_refused_at_each_attempt() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        loads = 0

        async def load(store: Store) -> tuple[Manifest, str]:
            nonlocal loads
            loads += 1
            if loads == 2:
                raise Conflict("not now")
            return await load_manifest(store)

        _, work = walk(store, A)
        with pytest.raises(Conflict, match="not now"):
            await on_newest_tree(store, work, load=load)

    run(scenario())


def test_a_caller_may_know_that_the_newest_manifest_leads_there() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        with pytest.raises(Corrupt, match="snapshot/a is missing"):
            await Reloads(store).after(A, None, lambda _: True)

    run(scenario())


def test_a_caller_may_explain_better_why_an_object_is_gone() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        _, etag = await load_manifest(store)

        def explain(_manifest: Manifest) -> bool:
            raise Trimmed("the log starts at 7", first_offset=7)

        with pytest.raises(Trimmed):
            await Reloads(store).after(A, etag, explain)

    run(scenario())


def test_the_newest_manifest_is_given_back() -> None:
    async def scenario() -> None:
        store = MemoryStore("reload")
        await put_another(store)
        _, etag = await load_manifest(store)
        version = await put_another(store)
        assert (await Reloads(store).after(A, etag)).write_id == version

    run(scenario())

"""Settling a conditional put: what is stored decides, and doubt is never reported as certainty."""

from __future__ import annotations

import asyncio

import pytest

from stratalog.errors import Conflict, Denied, Exists, Unavailable, Unknown
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store.cas import Landed, Overtaken, Patience, create, put_once, swap
from stratalog.store.memory import MemoryStore
from stratalog.store.protocol import Blob

PATH = "some/object"


class Moody(MemoryStore):
    """Loses the answers to puts that landed, and may refuse to be read afterwards."""

    def __init__(self, read_error: Exception | None = None) -> None:
        super().__init__("moody")
        self.read_error = read_error
        self.losing = False

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        answer = await super().put_if_match(path, data, etag)
        if self.losing:
            raise Unknown("the answer was lost")
        return answer

    async def put_if_absent(self, path: str, data: bytes) -> str:
        answer = await super().put_if_absent(path, data)
        if self.losing:
            raise Unknown("the answer was lost")
        return answer

    async def get(self, path: str) -> Blob:
        if self.losing and self.read_error is not None:
            raise self.read_error
        return await super().get(path)


def patience(timeout_s: float = 5.0) -> Patience:
    return Patience(DEFAULT_RUNTIME, timeout_s)


def test_a_swap_whose_answer_was_lost_is_recognised_by_its_content() -> None:
    async def main() -> None:
        store = Moody()
        etag = await store.put_if_absent(PATH, b"1")
        store.losing = True
        settled = await swap(store, PATH, b"2", etag, lambda blob: blob.data == b"2", patience())
        assert settled == Landed((await store.get(PATH)).etag)

    asyncio.run(main())


@pytest.mark.parametrize("error", [Denied("expired"), Unavailable("down")], ids=lambda e: e.kind)
def test_a_swap_that_cannot_be_read_back_is_unknown_and_nothing_else(error: Exception) -> None:
    async def main() -> None:
        store = Moody(error)
        etag = await store.put_if_absent(PATH, b"1")
        store.losing = True
        with pytest.raises(Unknown):
            await swap(store, PATH, b"2", etag, lambda _: False, patience(0.05))

    asyncio.run(main())


def test_a_denied_first_attempt_is_denied() -> None:
    class Forbidding(MemoryStore):
        async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
            raise Denied("no")

    async def main() -> None:
        store = Forbidding()
        etag = await store.put_if_absent(PATH, b"1")
        with pytest.raises(Denied):
            await swap(store, PATH, b"2", etag, lambda _: False, patience())

    asyncio.run(main())


def test_a_denial_after_a_lost_answer_leaves_it_unknown() -> None:
    class LosesThenForbids(MemoryStore):
        attempts = 0

        async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
            self.attempts += 1
            raise Unknown("lost") if self.attempts == 1 else Denied("no")

    async def main() -> None:
        store = LosesThenForbids()
        etag = await store.put_if_absent(PATH, b"1")
        with pytest.raises(Unknown):
            await swap(store, PATH, b"2", etag, lambda _: False, patience(0.1))
        assert store.attempts > 1

    asyncio.run(main())


def test_a_swap_from_a_version_that_is_gone_is_overtaken() -> None:
    async def main() -> None:
        store = MemoryStore()
        etag = await store.put_if_absent(PATH, b"1")
        await store.put_if_match(PATH, b"other", etag)
        settled = await swap(store, PATH, b"2", etag, lambda blob: blob.data == b"2", patience())
        assert isinstance(settled, Overtaken)
        assert settled.answered
        assert settled.current is not None
        assert settled.current.data == b"other"

    asyncio.run(main())


def test_a_refusal_without_a_reason_is_tried_again_from_the_same_version() -> None:
    class Refusing(MemoryStore):
        refusals = 2

        async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
            if self.refusals:
                self.refusals -= 1
                raise Conflict("409")
            return await super().put_if_match(path, data, etag)

    async def main() -> None:
        store = Refusing()
        etag = await store.put_if_absent(PATH, b"1")
        settled = await swap(store, PATH, b"2", etag, lambda _: False, patience())
        assert isinstance(settled, Landed)

    asyncio.run(main())


def test_creating_what_somebody_else_created_exists_unless_an_answer_was_lost() -> None:
    async def main() -> None:
        store = Moody()
        await store.put_if_absent(PATH, b"theirs")
        with pytest.raises(Exists):
            await create(store, PATH, b"mine", patience())
        store.losing = True
        other = "another/object"
        assert await create(store, other, b"mine", patience()) == (await store.get(other)).etag

    asyncio.run(main())


def test_an_immutable_object_never_settles_for_other_bytes_under_its_name() -> None:
    async def main() -> None:
        store = MemoryStore()
        names = iter(["taken", "free"])
        await store.put_if_absent("taken", b"theirs")
        assert await put_once(store, lambda: next(names), b"mine", patience()) == "free"
        assert (await store.get("taken")).data == b"theirs"

    asyncio.run(main())

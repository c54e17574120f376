"""Tests that are scenarios: each runs in an event loop of its own, on a store of its own."""

import asyncio
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from stratalog.store import Store

P = ParamSpec("P")
S = TypeVar("S", bound="Scenarios")


class Scenarios(ABC):
    """Runs scenarios, for a bounded time if a subclass says so."""

    _timeout_s: float | None = None

    @abstractmethod
    async def make_store(self) -> Store:
        """A fresh, empty store."""

    def run(self, scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(self._timeout_s):
                await scenario(await self.make_store())

        asyncio.run(main())


def scenario(
    coroutine: Callable[Concatenate[S, Store, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], None]:
    """The coroutine as a test, to which no store need be given."""

    @functools.wraps(coroutine)
    def test(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.run(lambda store: coroutine(self, store, *args, **kwargs))

    signature = inspect.signature(coroutine)
    parameters = [each for each in signature.parameters.values() if each.name != "store"]
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test

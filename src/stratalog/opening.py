"""``await X.open(…)`` and ``async with X.open(…) as x``, from one call."""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from stratalog.errors import StratalogError


class Closeable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)

NOT_OPEN = "it is not open yet; await it, or use `async with`"


class Opening(Generic[C]):
    """An open that has not begun yet. Await it, or enter it and have it closed at the end."""

    def __init__(self, start: Callable[[], Awaitable[C]]) -> None:
        self._start = start
        self._opened: C | None = None

    def __await__(self) -> Generator[object, None, C]:
        return self._start().__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._start()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._opened is not None
        try:
            await self._opened.close()
        except StratalogError:
            # What went wrong inside comes first.
            if error is None:
                raise

    # A forgotten ``await`` fails with a hint. Type checkers report it only without these methods.
    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError(NOT_OPEN)

        def __exit__(self, *_: object) -> None:
            """Without it, Python would not ask ``__enter__``."""

        def __getattr__(self, name: str) -> NoReturn:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            # Names with an underscore are asked for by Python itself, when it copies and the like.
            if not name.startswith("_"):
                message = f"{message}: {NOT_OPEN}"
            raise AttributeError(message, name=name, obj=self)

"""The three pages of a broker, from the time before it serves until it has stopped."""

from __future__ import annotations

from stratalog.broker.context import BrokerContext
from stratalog.broker.http import exposition
from stratalog.broker.http.health import State, health_page, readiness, readiness_page
from stratalog.broker.http.metrics import families_of
from stratalog.broker.http.metrics import process as families_of_process
from stratalog.broker.http.process import usage
from stratalog.broker.http.server import Page, PageServer
from stratalog.broker.options import Address


class Server:
    """An HTTP server that shows what a broker does. Probes see it before its data is open."""

    def __init__(self) -> None:
        self._context: BrokerContext | None = None
        self._state = State.OPENING
        self._server = PageServer(
            {"/metrics": self._metrics, "/healthz": health_page, "/readyz": self._readiness}
        )

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._server.address

    async def listen(self, where: Address) -> None:
        await self._server.listen(where)

    def watch(self, context: BrokerContext) -> None:
        """The broker serves: show what it counts, and that it is ready."""
        self._context = context
        self._state = State.SERVING

    def stopping(self) -> None:
        """The broker is about to stop: send it nobody."""
        self._state = State.STOPPING

    async def close(self) -> None:
        await self._server.close()

    def _metrics(self) -> Page:
        now = usage()
        found = (
            families_of_process(now) if self._context is None else families_of(self._context, now)
        )
        return Page(exposition.render(found), exposition.CONTENT_TYPE)

    def _readiness(self) -> Page:
        context = self._context
        found = readiness(
            self._state,
            log_is_down=context is not None and context.groups.is_down,
            disk_failure=None if context is None else context.disk.failure,
        )
        return readiness_page(found)


async def serve(where: Address) -> Server:
    """Begin to answer at this address. ``watch`` then tells what to answer."""
    server = Server()
    await server.listen(where)
    return server

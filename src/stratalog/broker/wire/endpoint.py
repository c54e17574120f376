"""Where clients connect: the socket that listens, and the connections that it has."""

import asyncio
from typing import Final

from stratalog.broker.options import Address, BrokerOptions
from stratalog.broker.wire.connection import Connection, Dispatch, Shared
from stratalog.broker.wire.memory import RequestMemory
from stratalog.errors import Unavailable

LOOK_S: Final = 0.5
"""How often all connections are looked at for what is late."""
BACKLOG: Final = 1024


def limited(options: BrokerOptions, dispatch: Dispatch) -> Shared:
    """What the connections of a broker with these options have in common."""
    return Shared(
        dispatch=dispatch,
        memory=RequestMemory(options.request_memory_bytes),
        request_bytes_max=options.request_bytes_max,
        in_flight_max=options.in_flight_max,
        unsent_bytes_max=options.unsent_bytes_max,
        connections_max=options.connections_max,
        frame_s_max=options.frame_ms_max / 1000,
        idle_s_max=options.idle_ms_max / 1000,
    )


class Endpoint:
    """A listening socket and its connections."""

    def __init__(self, server: asyncio.Server, shared: Shared, address: Address) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._next_look = self._loop.call_later(LOOK_S, self._look)
        self.shared = shared
        self.address = address
        """Where it listens, with the port that was chosen."""

    @classmethod
    async def listen(cls, options: BrokerOptions, dispatch: Dispatch) -> "Endpoint":
        """``Unavailable`` if the address cannot be had."""
        loop = asyncio.get_running_loop()
        shared = limited(options, dispatch)
        wanted = Address.parse(options.listen)
        try:
            server = await loop.create_server(
                lambda: Connection(shared, loop), wanted.host, wanted.port, backlog=BACKLOG
            )
        except OSError as error:
            raise Unavailable(
                f"{wanted} cannot be listened on: {error.strerror or error}",
                hint="Stop what uses it, or choose another address with --listen.",
            ) from error
        port: int = server.sockets[0].getsockname()[1]
        return cls(server, shared, Address(wanted.host, port))

    def drain(self) -> None:
        """Take no more connections and no more requests."""
        self._server.close()
        for each in list(self.shared.connections):
            each.drain()

    async def quiet(self) -> None:
        """Wait until everything that came in is answered and sent."""
        while busy := [each for each in self.shared.connections if not each.is_quiet]:
            await asyncio.wait([each.when_quiet() for each in busy])

    async def close(self) -> None:
        """Close all connections, whatever they wait for."""
        self._next_look.cancel()
        self._server.close()
        for each in list(self.shared.connections):
            each.close() if each.is_quiet else each.abort()
        tasks = list(self.shared.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _look(self) -> None:
        now = self._loop.time()
        for each in list(self.shared.connections):
            each.look(now)
        self._next_look = self._loop.call_later(LOOK_S, self._look)

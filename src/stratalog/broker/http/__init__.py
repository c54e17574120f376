"""`/metrics` for Prometheus, `/healthz` and `/readyz` for probes, on a port of their own.

server = await serve(Address.parse("127.0.0.1:9644"))   # /readyz: 503, opening
server.watch(context)                                   # /readyz: 200
server.stopping()                                       # /readyz: 503, stopping
await server.close()
"""

from stratalog.broker.http.pages import Server, serve
from stratalog.broker.http.server import cannot_listen

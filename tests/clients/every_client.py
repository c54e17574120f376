"""The published Python clients, by name."""

from __future__ import annotations

from clients.asynchronous import Asynchronous
from clients.confluent import Confluent
from clients.published_client import PublishedClient
from clients.pure_python import PurePython

CLIENTS: dict[str, type[PublishedClient]] = {
    each.name: each for each in (Confluent, Asynchronous, PurePython)
}

"""What a session needs to be there: packages of Python, and a server that answers."""

import importlib.util
import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from stratalog.errors import Invalid, Unavailable

CONNECT_TIMEOUT_S = 10.0
CONNECT_PORT = 15002
MASTER_PORT = 7077

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

# What Spark Connect imports, and the package that has it.
CONNECT_PACKAGES = {
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}


def require_pyspark() -> None:
    """To be called before a module is imported that imports Spark."""
    missing = [package for package in ("pyspark", "pandas") if not has_module(package)]
    if missing:
        raise Invalid(
            f"Spark is not installed: there is no package {' and no package '.join(missing)}",
            hint='Install it: `pip install "stratalog[spark]"`.',
        )


def require_connect(url: str) -> None:
    """Refuse to open a session without the packages that it imports, or without a server."""
    from pyspark import __version__

    missing = [package for module, package in CONNECT_PACKAGES.items() if not has_module(module)]
    if missing:
        raise Invalid(
            f"Spark Connect needs packages that are not installed: {', '.join(missing)}",
            hint=f'Install them: `pip install "pyspark[connect]=={__version__}"`.',
        )
    address = urlsplit(url)
    if not any(proxy in os.environ for proxy in _PROXIES):
        _require_answer(
            "Spark Connect server", [(str(address.hostname), address.port or CONNECT_PORT)]
        )


def require_master(master: str) -> None:
    """Refuse to open a session on a cluster whose master does not answer."""
    if not master.startswith("spark://"):
        return
    try:
        parts = [urlsplit(f"//{each}") for each in master.removeprefix("spark://").split(",")]
        addresses = [(part.hostname or "", part.port or MASTER_PORT) for part in parts]
    except ValueError as error:
        raise Invalid(
            f"not the URL of a Spark master: {master}", hint="Write spark://host:7077."
        ) from error
    _require_answer("Spark master", addresses)


def has_module(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _require_answer(what: str, addresses: Sequence[tuple[str, int]]) -> None:
    """Spark itself would try for a minute, or for ten, before it says that nothing is there."""
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
        except OSError:
            continue
        return
    places = ", ".join(f"{host}:{port}" for host, port in addresses)
    raise Unavailable(
        f"no {what} answers at {places}",
        hint="Check that it runs, and that this machine can reach it.",
    )

"""Opening a Spark session: the right Java, the right Python, and nothing printed.

    master     local[*] if nothing else is said; local[N], spark://host:port, yarn, k8s://…
    remote     sc://host:15002, a server of Spark Connect; needs no Java here
    conf       settings of Spark, which win over those below

What is set unless ``conf`` or the site's ``spark-defaults.conf`` says otherwise:

    everywhere    no user interface, no progress bar, no log; times in UTC; Arrow
    local only    sockets on 127.0.0.1 alone; as many shuffle partitions as cores; at most 2 GiB and
                  at most a quarter of this machine's memory; tables in the temporary directory

With ``spark.log.level`` or ``spark.ui.showConsoleProgress`` what the JVM prints appears on standard
error. A session that exists already is used as it is: of all the settings only ``conf`` is
applied to it. Under ``spark-submit`` the settings are those of the submission, likewise.

The JVM lives as long as this process. What a JVM takes only at its start (``spark.driver.memory``,
jars, options of Java) must therefore be in the first call.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stratalog.errors import Invalid, Unavailable
from stratalog.pipeline.spark import (
    check_conf,
    choose_place,
    default_settings,
    find_java,
    is_remote,
    jvm_environment,
    launch_jvm,
    readable_spark_errors,
    silence_pyspark,
    site_settings,
    wants_to_hear,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["can_run_here", "has_session", "open_session", "require_pyspark", "session"]

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


def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] = {},
    name: str = "stratalog",
) -> SparkSession:
    """The Spark session of this process, opened if there is none. ``stop()`` it when done."""
    require_pyspark()
    check_conf(conf)
    site = site_settings(os.environ)
    place = choose_place(master, remote, conf, os.environ, site)
    asked = {"spark.master": master, "spark.remote": remote}
    conf = {**conf, **{key: value for key, value in asked.items() if value is not None}}
    with readable_spark_errors(otherwise=Invalid):
        if has_session():
            return _use_existing(conf)
        if not wants_to_hear({**site, **conf}):
            silence_pyspark()
        if place.remote is not None:
            return _open_remote(place.remote, conf)
        assert place.master is not None
        return _open_classic(place.master, conf, site, name)


@contextmanager
def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] = {},
    name: str = "stratalog",
) -> Iterator[SparkSession]:
    """A session for a while. One that existed before is used, and is not stopped."""
    require_pyspark()
    existed = has_session()
    spark = open_session(master=master, remote=remote, conf=conf, name=name)
    try:
        yield spark
    finally:
        if not existed:
            _stop(spark)


def can_run_here() -> bool:
    """Whether a session that is not remote is open in this process, or could be opened."""
    if _missing_packages():
        return False
    if has_session():
        return not is_remote(open_session())
    if "SPARK_REMOTE" in os.environ:
        return False
    try:
        find_java()
    except Invalid:
        return False
    return True


def has_session() -> bool:
    """Whether this process has a Spark session, or a context that one would be opened on."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        try:
            SparkSession.active()
        except PySparkRuntimeError:
            return False
        return True
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _use_existing(conf: Mapping[str, str]) -> SparkSession:
    """The session that is there, with these settings, if it is where it was asked for."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        spark = SparkSession.active()
        there, is_elsewhere = "a Spark Connect server", "spark.master" in conf
    else:
        spark = SparkSession.builder.getOrCreate()
        there = str(spark.sparkContext.master)
        is_elsewhere = "spark.remote" in conf or conf.get("spark.master", there) != there
    if is_elsewhere:
        raise Invalid(
            f"this process has a Spark session already, on {there}",
            hint="Use that one, or stop it first.",
        )
    _set_all(spark, conf)
    return spark


def _set_all(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Apply settings to a running session. PySpark itself ignores those that come too late."""
    for key, value in conf.items():
        if key not in ("spark.master", "spark.remote") and spark.conf.get(key, None) != value:
            spark.conf.set(key, value)


def _open_remote(url: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    _require_connect(url)
    spark = SparkSession.builder.remote(url).getOrCreate()
    _set_all(spark, {"spark.sql.session.timeZone": "UTC", **conf})
    return spark


def _open_classic(
    master: str, conf: Mapping[str, str], site: Mapping[str, str], name: str
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise Invalid(
            "this process was a client of Spark Connect, and PySpark cannot be both",
            hint="Open the session in a process of its own.",
        )
    _require_master(master)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = dict(conf)
    if not is_submitted:
        defaults = default_settings(master, os.environ)
        settings = {
            "spark.master": master,
            "spark.app.name": name,
            **{key: value for key, value in defaults.items() if key not in site},
            **conf,
        }
        if warehouse := defaults.get("spark.sql.warehouse.dir"):
            atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    is_heard = is_submitted or wants_to_hear({**site, **conf})
    with jvm_environment(conf, needs_java=not is_submitted and SparkContext._gateway is None):
        if SparkContext._gateway is None:
            gateway = launch_jvm(settings, is_heard=is_heard)
            SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
        spark = SparkSession.builder.config(map={**settings}).getOrCreate()
    try:
        spark.conf.get("spark.sql.session.timeZone")  # Spark looks at its settings only now
    except BaseException:
        spark.stop()
        raise
    return spark


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except OSError:  # the JVM is gone; what is left of the session is on this side
        spark.sparkContext.stop()


# What a session needs to be there


def require_pyspark() -> None:
    """To be called before a module is imported that imports Spark."""
    missing = _missing_packages()
    if missing:
        raise Invalid(
            f"Spark is not installed: there is no package {' and no package '.join(missing)}",
            hint='Install it: `pip install "stratalog[spark]"`.',
        )


def _missing_packages() -> list[str]:
    return [package for package in ("pyspark", "pandas") if not has_module(package)]


def _require_connect(url: str) -> None:
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


def _require_master(master: str) -> None:
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

"""The settings of a Spark session: where it runs, and the defaults.

Everything here is decided from what was asked for, the environment and the machine, without Spark.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from stratalog.errors import Invalid

LOOPBACK = "127.0.0.1"
DRIVER_MEMORY_MIB_MAX = 2048
DRIVER_MEMORY_MIB_MIN = 512  # Spark refuses to start with less than 450 MiB

_CORES = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?")
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_WRITE_REMOTE = 'Write remote="sc://host:15002".'


class Place(NamedTuple):
    """Where the work is done: one of the two is set."""

    master: str | None
    remote: str | None


def choose_place(
    master: str | None,
    remote: str | None,
    conf: Mapping[str, str],
    environment: Mapping[str, str],
    site: Mapping[str, str],
) -> Place:
    """Where to work, from all the places where one can say so."""
    master = _one_of("master", master, conf.get("spark.master"))
    remote = _one_of("remote", remote, conf.get("spark.remote"))
    if master is None and remote is None:
        remote = environment.get("SPARK_REMOTE")
        master = environment.get("MASTER")
    elif master is not None and "SPARK_REMOTE" in environment:
        raise Invalid(
            f"the master {master} was asked for, but SPARK_REMOTE is set as well",
            hint="Unset SPARK_REMOTE, or leave out the master.",
        )
    if master is not None and remote is not None:
        raise Invalid(
            "a session has a master or a remote, not both",
            hint="Give master=… to run Spark from here, or remote=… for a Spark Connect server.",
        )
    if remote is not None:
        if not remote.startswith("sc://") or not urlsplit(remote).hostname:
            raise Invalid("not the URL of a Spark Connect server", hint=_WRITE_REMOTE)
        return Place(None, remote)
    master = master or site.get("spark.master") or "local[*]"
    if master.startswith("sc://"):
        raise Invalid("a Spark Connect server is a remote, not a master", hint=_WRITE_REMOTE)
    return Place(master, None)


def default_settings(
    master: str,
    environment: Mapping[str, str],
    *,
    cores: int | None = None,
    memory_bytes: int | None = None,
) -> dict[str, str]:
    """What is set unless somebody has set it: for this machine, or for one with so much."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if not master.startswith("local"):
        return settings
    settings |= {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.warehouse.dir": str(
            Path(tempfile.gettempdir()) / f"stratalog-warehouse-{os.getpid()}"
        ),
    }
    if (threads := _CORES.fullmatch(master)) is not None:
        count = cores or _cores_here() if threads[1] == "*" else int(threads[1] or 1)
        settings["spark.sql.shuffle.partitions"] = str(max(count, 1))
    if (folder := environment.get("TMPDIR")) and '"' not in folder:  # Java does not look at it
        settings["spark.driver.defaultJavaOptions"] = f'"-Djava.io.tmpdir={folder}"'
    if "SPARK_DRIVER_MEMORY" not in environment:
        settings["spark.driver.memory"] = (
            f"{driver_memory_mib(memory_bytes or _memory_bytes_here())}m"
        )
    return settings


def driver_memory_mib(memory_bytes: int) -> int:
    """A quarter of the memory, within what Spark needs at least and what it should take at most."""
    quarter = memory_bytes // 4 // 1024 // 1024
    return min(max(quarter, DRIVER_MEMORY_MIB_MIN), DRIVER_MEMORY_MIB_MAX)


def site_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What this site's ``spark-defaults.conf`` says, so that our defaults do not override it."""
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    if not folder:
        return {}
    try:
        text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (re.split(r"[\s=:]+", line.strip(), maxsplit=1) for line in text.splitlines())
    return {pair[0]: pair[-1] for pair in pairs if pair[0] and not pair[0].startswith(("#", "!"))}


def _one_of(what: str, argument: str | None, setting: str | None) -> str | None:
    """The place that was named, by the argument or by the setting that means the same."""
    if argument is not None and setting is not None and argument != setting:
        raise Invalid(
            f'{what}= and conf["spark.{what}"] name different places',
            hint="Leave one of them out.",
        )
    return argument if argument is not None else setting


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuse what Spark would ignore without a word."""
    for key in conf:
        if not key.startswith("spark."):
            raise Invalid(
                f"not a setting of Spark: {key!r}",
                hint="They begin with spark., those of Hadoop with spark.hadoop.; for example "
                'conf={"spark.executor.memory": "4g"}.',
            )


def wants_to_hear(conf: Mapping[str, str]) -> bool:
    """Whether somebody asked for something that the JVM prints."""
    return (
        "spark.log.level" in conf
        or "spark.ui.showConsoleProgress" in conf
        or "log4j" in conf.get("spark.driver.extraJavaOptions", "")
    )


def _cores_here() -> int:
    can_tell = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if can_tell else os.cpu_count() or 1


def _memory_bytes_here() -> int:
    """The memory of this machine, or what the container may use of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _MEMORY_LIMITS:
        try:
            total = min(total, int(limit.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return total

"""The same code on a real cluster: a master, two workers, and a driver that only asks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stratalog as sl
from pipeline.cluster import Cluster, standalone_cluster
from s3_server import S3Server
from stratalog.pipeline.run_report import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.s3]

HERE = Path(__file__).parent
LIMIT_S = 240.0
RECORDS = 1000

Told = dict[str, Any]

# Tells for each task where it ran, with which Python, and what it found there; then reads a log.
DRIVER = """
import json, os, sys
import pyarrow as pa
from stratalog.pipeline.session import session

def tell(batches):
    import stratalog
    for _ in batches:
        facts = {
            "place": os.getcwd(),
            "python": sys.executable,
            "version": stratalog.__version__,
            "variable": os.environ.get("TOLD"),
            "pid": os.getpid(),
        }
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(facts)]})

master, url, conf = sys.argv[1:]
with session(master=master, conf=json.loads(conf)) as spark:
    rows = spark.range(2, numPartitions=2).mapInArrow(tell, "told string").collect()
    log = spark.read.format("stratalog").load(url)
    print(json.dumps({
        "master": spark.sparkContext.master,
        "tasks": [json.loads(row.told) for row in rows],
        "records": log.distinct().count(),
    }))
"""


async def write(url: str) -> None:
    await sl.create_log(url)
    async with sl.LogWriter.open(url) as writer:
        for number in range(10):
            await writer.append_many([b"%d-%d" % (number, each) for each in range(RECORDS // 10)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Cluster]:
    """Its executors know the S3 server of the run, as they inherit its address."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def drive(cluster: Cluster, worker_path: str, folder: Path, *call: str, **conf: str) -> Told:
    """What a driver tells that is a process of its own, and wrote nothing else."""
    settings = {**cluster.conf, **{f"spark.executorEnv.{name}": conf[name] for name in conf}}
    done = subprocess.run(
        [sys.executable, *call, json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": worker_path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told: Told = json.loads(done.stdout)
    return told


def test_workers_of_a_cluster_do_the_work(
    cluster: Cluster, tmp_path: Path, worker_path: str, s3_url: str
) -> None:
    asyncio.run(write(s3_url))
    told = drive(cluster, worker_path, tmp_path, "-c", DRIVER, cluster.master, s3_url, TOLD="yes")
    assert told["master"] == cluster.master
    assert told["records"] == RECORDS
    places = [Path(task["place"]) for task in told["tasks"]]
    for folder in cluster.worker_folders:
        assert any(place.is_relative_to(folder) for place in places)
    for task in told["tasks"]:
        assert task["python"] == sys.executable
        assert task["version"] == sl.__version__
        assert task["variable"] == "yes"


def test_one_pass_of_source_sink_stream_and_all_jobs(
    cluster: Cluster, tmp_path: Path, worker_path: str, s3_url: str
) -> None:
    script, checkpoint = str(HERE / "cluster_pass.py"), str(tmp_path / "checkpoint")
    told = drive(cluster, worker_path, tmp_path, script, cluster.master, s3_url, checkpoint)
    assert told["read"] == 300
    assert (told["sunk"], told["streamed"]) == (100, 100)
    assert told["ok"], told["troubles"]
    assert told["stages"] == list(STAGES)
    assert told["merged"] == 500
    names = [*(f"log-{number}" for number in range(6)), "streamed", "sunk"]
    assert told["state"] == dict.fromkeys(names, 7)

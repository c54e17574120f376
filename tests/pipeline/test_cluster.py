"""The same code on a real cluster: a master, two workers, and a driver that only asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stratalog as sl
from pipeline.cluster import Cluster, standalone_cluster
from s3_server import S3Server
from stratalog.pipeline.run.run_report import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.xdist_group("cluster")]

HERE = Path(__file__).parent
LIMIT_S = 240.0

Told = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Cluster]:
    """Its executors know the S3 server of the run, as they inherit its address."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def told(
    cluster: Cluster,
    s3_server: S3Server,
    worker_path: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Told:
    """What a driver tells that is a process of its own, and wrote nothing else."""
    folder = tmp_path_factory.mktemp("driver")
    script, root = HERE / "cluster_pass.py", f"s3://{s3_server.bucket}/{uuid.uuid4().hex[:12]}"
    conf = {**cluster.conf, "spark.executorEnv.TOLD": "yes"}
    done = subprocess.run(
        [sys.executable, script, cluster.master, root, folder / "checkpoint", json.dumps(conf)],
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


def test_workers_of_a_cluster_do_the_work(cluster: Cluster, told: Told) -> None:
    assert told["master"] == cluster.master
    places = [Path(task["place"]) for task in told["tasks"]]
    for folder in cluster.worker_folders:
        assert any(place.is_relative_to(folder) for place in places)
    for task in told["tasks"]:
        assert task["python"] == sys.executable
        assert task["version"] == sl.__version__
        assert task["variable"] == "yes"


def test_one_pass_of_source_sink_stream_and_all_jobs(told: Told) -> None:
    assert told["read"] == 300
    assert (told["sunk"], told["loaded"], told["streamed"]) == (100, 100, 100)
    assert told["ok"], told["troubles"]
    assert told["stages"] == list(STAGES)
    assert told["merged"] == 500
    names = [*(f"log-{number}" for number in range(6)), "streamed", "sunk"]
    assert told["state"] == dict.fromkeys(names, 7)

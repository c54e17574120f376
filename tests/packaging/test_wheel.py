"""What a user gets from the wheel, seen from an environment that holds nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from signals import Program
from stratalog._version import __version__

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    # A PYTHONPATH of the caller would show the new environment the source tree.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", out, cwd=ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the scripts of a fresh environment with only the wheel in it."""
    return _environment(tmp_path_factory.mktemp("venv"), str(wheel))


@pytest.fixture(scope="module")
def with_broker(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the extra that the broker needs."""
    return _environment(tmp_path_factory.mktemp("with-broker"), f"{wheel}[broker]")


def _environment(venv: Path, wheel: str) -> Path:
    uv: Sequence[str] = (sys.executable, "-m", "uv", "--quiet")
    run(*uv, "venv", "--clear", "--python", sys.executable, venv, cwd=venv)
    constraints = ROOT / "requirements" / "dev.txt"
    python = venv / "bin" / "python"
    run(*uv, "pip", "install", "--python", python, "-c", constraints, wheel, cwd=venv)
    return venv / "bin"


def test_the_wheel_holds_the_typed_package_and_its_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    # The small one is how Spark finds the data source: it looks for packages named `pyspark_…`.
    assert tops == {"stratalog", "pyspark_stratalog", f"stratalog-{__version__}.dist-info"}
    assert "stratalog/py.typed" in names
    assert f"stratalog-{__version__}.dist-info/licenses/LICENSE" in names


def test_the_wheel_holds_every_module_of_the_source_tree(wheel: Path) -> None:
    source = ROOT / "src"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
    assert held == expected


def test_the_installed_command_prints_its_version(installed: Path, tmp_path: Path) -> None:
    assert __version__ in run(installed / "stratalog", "--version", cwd=tmp_path)


def test_the_installed_library_imports_from_its_own_place(installed: Path, tmp_path: Path) -> None:
    code = "import stratalog; print(stratalog.__version__); print(stratalog.__file__)"
    version, place = run(installed / "python", "-I", "-c", code, cwd=tmp_path).splitlines()
    assert version == __version__
    assert Path(place).is_relative_to(installed.parent)


def test_the_installed_library_needs_no_testing_tools(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.util as u; print(u.find_spec('pytest'), u.find_spec('hypothesis'))"
    assert run(installed / "python", "-I", "-c", code, cwd=tmp_path).split() == ["None", "None"]


def test_without_spark_the_pipeline_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    assert "materialize" in run(installed / "stratalog", "pipeline", "--help", cwd=tmp_path)
    code = "from stratalog.pipeline.session import open_session\nopen_session()"
    done = subprocess.run(
        [installed / "python", "-I", "-c", code], text=True, capture_output=True, check=False
    )
    assert "Spark is not installed" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("compact", "log", "--key", "body"),
        ("compact", "log", "--live", "SELECT 1"),
        ("erase", "log", "--where", "true", "--yes"),
        ("pipeline", "run", "herd", "--key", "body"),
        ("pipeline", "materialize", "herd", "--key", "body"),
        ("pipeline", "collect", "herd"),
        ("pipeline", "scrub", "herd"),
        ("pipeline", "verify", "herd"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_without_spark_every_command_that_needs_it_says_what_to_install(
    installed: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    stratalog = installed / "stratalog"
    run(stratalog, "init", "log", cwd=tmp_path)
    run(stratalog, "herd", "create", "herd", "orders", cwd=tmp_path)
    done = subprocess.run(
        [stratalog, *command], cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: Spark is not installed")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["serve --data data", "topics list", "groups list"])
def test_without_the_extra_the_broker_says_what_to_install(
    installed: Path, tmp_path: Path, command: str
) -> None:
    done = subprocess.run(
        [installed / "stratalog", *command.split()],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the broker is not installed")
    assert 'pip install "stratalog[broker]"' in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_with_the_extra_a_broker_serves_and_its_commands_reach_it(
    with_broker: Path, tmp_path: Path
) -> None:
    stratalog = with_broker / "stratalog"
    where = ["--data", "data", "--listen", "127.0.0.1:0", "--http", "none"]
    with Program([stratalog, "serve", *where], cwd=tmp_path, stderr=subprocess.PIPE) as broker:
        assert broker.stderr is not None
        ready = next(line for line in broker.stderr if line.startswith(b"ready "))
        at = ("--bootstrap", ready.split()[1].removeprefix(b"kafka=").decode())
        run(stratalog, "topics", "create", "orders", *at, cwd=tmp_path)
        assert "orders" in run(stratalog, "topics", "list", *at, cwd=tmp_path)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0

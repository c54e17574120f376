"""Java is found where people have it, or the refusal says what was found and what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.errors import Invalid
from stratalog.pipeline.spark import java
from stratalog.pipeline.spark.java import (
    Java,
    Unfit,
    choose,
    find_java,
    install_hint,
    judge,
    major_in,
    major_of,
)

ROOT = Path(__file__).parents[2]

TEMURIN_8 = 'openjdk version "1.8.0_392"\nOpenJDK Runtime Environment (Temurin)(build 1.8.0_392)\n'
SETTINGS = """Property settings:
    java.home = /opt/java/21
    java.specification.version = 21
    java.version = 21.0.4

openjdk version "21.0.4" 2024-07-16 LTS
"""


def make_java(home: Path, *, release: str | None = None, script: str = "exit 1") -> Path:
    """A Java that consists of a file ``release`` and a shell script."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{release}"\n')
    return home


def look(usual: Path | None = None, **environment: str) -> Java:
    return find_java(environment, usual_homes=[f"{usual}/*"] if usual else [])


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("1.8.0_392", 8), ("11.0.2+9", 11), ("x", None)],
)
def test_a_version_has_a_major_version(version: str, major: int | None) -> None:
    assert major_of(version) == major


def test_the_major_version_is_read_from_what_java_says_of_itself() -> None:
    assert major_in('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\nOS_ARCH="x86"\n') == 17
    assert major_in("") is None
    assert major_in(TEMURIN_8) == 8
    assert major_in(SETTINGS) == 21
    assert major_in("Unable to locate a Java Runtime.") is None


def test_seventeen_is_new_enough() -> None:
    home = Path("/opt/java")
    assert judge("here", home, 17) == Java(home, 17)
    assert judge("here", home, 25) == Java(home, 25)
    assert judge("here", home, 16) == Unfit("here", "is Java 16")
    assert judge("here", home, None) == Unfit("here", "does not tell its version")


def test_the_first_that_will_do_is_taken_and_no_other_is_looked_at() -> None:
    def candidates() -> Iterator[Java | Unfit]:
        yield Unfit("here", "is Java 8")
        yield Java(Path("/opt/java"), 17)
        pytest.fail("looked further")

    assert choose(candidates()).major == 17


def test_the_refusal_names_everything_that_was_found() -> None:
    with pytest.raises(Invalid) as refused:
        choose([Unfit("JAVA_HOME=/a", "is Java 8"), Unfit("/usr/bin/java", "is Java 11")])
    assert refused.value.message == (
        "Spark needs Java 17 or newer: JAVA_HOME=/a is Java 8; /usr/bin/java is Java 11"
    )
    assert "set JAVA_HOME" in refused.value.hint


@pytest.mark.parametrize(
    ("system", "distribution", "is_root", "command"),
    [
        (
            "linux",
            {"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "24.04"},
            False,
            "`sudo apt-get install -y openjdk-17-jre-headless`",
        ),
        (
            "linux",
            {"ID": "debian", "VERSION_ID": "12"},
            True,
            "`apt-get install -y openjdk-17-jre-headless`",
        ),
        (
            "linux",
            {"ID": "debian", "VERSION_ID": "13"},
            True,
            "`apt-get install -y openjdk-21-jre-headless`",
        ),
        ("linux", {"ID": "fedora"}, False, "`sudo dnf install -y java-21-openjdk-headless`"),
        (
            "linux",
            {"ID": "rocky", "ID_LIKE": "rhel centos fedora"},
            True,
            "`dnf install -y java-21-openjdk-headless`",
        ),
        ("linux", {"ID": "alpine"}, True, "`apk add bash openjdk17-jre-headless`"),
        ("darwin", {}, False, "`brew install openjdk@17`"),
        ("linux", {"ID": "nixos"}, False, "Install a Java runtime, version 17 or newer."),
        ("linux", {}, False, "Install a Java runtime, version 17 or newer."),
    ],
)
def test_the_hint_has_the_command_of_this_system(
    system: str, distribution: dict[str, str], is_root: bool, command: str
) -> None:
    assert command in install_hint(system, distribution, is_root=is_root)


def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen = make_java(tmp_path / "chosen", release="21.0.4")
    other = make_java(tmp_path / "other", release="17.0.15")
    found = look(JAVA_HOME=str(chosen), PATH=str(other / "bin"))
    assert found == Java(chosen, 21)


@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.2"])
def test_an_old_java_home_is_passed_over(tmp_path: Path, old: str) -> None:
    chosen = make_java(tmp_path / "chosen", release=old)
    other = make_java(tmp_path / "other", release="17.0.15")
    assert look(JAVA_HOME=str(chosen), PATH=str(other / "bin")) == Java(other, 17)


def test_the_home_of_the_one_on_the_path_is_behind_its_links(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm" / "java-17", release="17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert look(PATH=str(tmp_path / "bin")) == Java(home, 17)


def test_a_script_on_the_path_is_asked_for_its_home(tmp_path: Path) -> None:
    shims = make_java(tmp_path / "shims", script=f"cat >&2 <<'TEXT'\n{SETTINGS}TEXT")
    assert look(PATH=str(shims / "bin")) == Java(Path("/opt/java/21"), 21)


def test_of_those_in_the_usual_places_the_oldest_that_will_do_is_taken(tmp_path: Path) -> None:
    for name, release in (("a", "25"), ("b", "11.0.2"), ("c", "17.0.15"), ("d", "21.0.4")):
        make_java(tmp_path / name, release=release)
    (tmp_path / "sources-only").mkdir()
    assert look(usual=tmp_path) == Java(tmp_path / "c", 17)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "does not start (exit code 1)"),
        ("echo hello", "does not tell its version"),
        ("exec sleep 60", "does not answer"),
    ],
)
def test_a_broken_java_is_named(
    tmp_path: Path, script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "PROBE_TIMEOUT_S", 2.0)
    broken = make_java(tmp_path / "broken", script=script)
    with pytest.raises(Invalid) as refused:
        look(JAVA_HOME=str(broken), PATH="")
    assert refused.value.message.endswith(f": JAVA_HOME={broken} {why}")


def test_a_program_that_is_none_is_named(tmp_path: Path) -> None:
    broken = make_java(tmp_path / "broken")
    (broken / "bin" / "java").write_bytes(b"\0\0\0\0")
    with pytest.raises(Invalid, match=r"does not start \(Exec format error\)"):
        look(JAVA_HOME=str(broken), PATH="")


def test_nothing_at_all_is_said_as_well(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="none was found"):
        look(PATH=str(tmp_path))
    with pytest.raises(Invalid, match="has no bin/java"):
        look(JAVA_HOME=str(tmp_path), PATH="")


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(Invalid, match="Windows") as refused:
        look()
    assert "remote=" in refused.value.hint


def test_the_java_that_was_found_here_runs() -> None:
    found = find_java(os.environ)
    done = subprocess.run(
        [found.home / "bin" / "java", "-version"], capture_output=True, text=True, check=True
    )
    assert major_in(done.stderr) == found.major


# ---- ./dev ------------------------------------------------------------------------------------


class Dev:
    """``./dev`` in a tree of its own, that is set up, on a system with only a few programs."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.programs = folder / "bin"
        self.jvms = folder / "jvm"
        for place in (self.root / ".venv" / "bin", self.programs, self.jvms):
            place.mkdir(parents=True)
        inputs = ("requirements/uv.txt", "requirements/dev.txt", "pyproject.toml")
        told = f"{self.root}\n"
        for name in (*inputs, "src/stratalog/_version.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(f"# {name}\n")
            told += f"# {name}\n"
        (self.root / ".venv" / ".inputs").write_text(told)
        shutil.copy(ROOT / "dev", self.root)
        self.add_script(self.root / ".venv" / "bin" / "python", 'echo "$JAVA_HOME"')
        for name in ("sh", "cat", "cmp", "dirname", "head", "mkdir", "sed"):
            (self.programs / name).symlink_to(str(shutil.which(name)))
        self.add("id", "echo 1000")

    def add(self, name: str, script: str) -> None:
        self.add_script(self.programs / name, script)

    def add_script(self, place: Path, script: str) -> None:
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / "dev", *command],
            env={"PATH": str(self.programs), "STRATALOG_JVM_DIR": str(self.jvms), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def dev(tmp_path: Path) -> Dev:
    return Dev(tmp_path.resolve())


NEEDS_JAVA = [["setup"], ["demo"], ["test", "-k", "x"], ["bench", "x"], ["soak"]]
JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""


@pytest.mark.parametrize("command", NEEDS_JAVA, ids=lambda command: command[0])
def test_dev_without_java_says_which_command_to_run(dev: Dev, command: list[str]) -> None:
    dev.add("apt-get", "echo called; exit 1")
    dev.add("apt-cache", "exit 0")
    dev.add("sudo", "exit 1")
    done = dev.run(*command)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "dev: Spark needs Java 17 or newer. Run: sudo apt-get install -y openjdk-17-jre-headless\n"
    )


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("dnf", "sudo dnf install -y java-21-openjdk-headless"),
        ("apk", "sudo apk add bash openjdk17-jre-headless"),
    ],
)
def test_dev_knows_other_package_managers(dev: Dev, manager: str, command: str) -> None:
    dev.add(manager, "exit 1")
    done = dev.run("demo")
    assert done.returncode == 3
    assert done.stderr.endswith(f"Run: {command}\n")


def test_dev_without_a_package_manager_asks_for_java_home(dev: Dev) -> None:
    done = dev.run("demo")
    assert done.returncode == 3
    assert "JAVA_HOME=/path/to/java ./dev demo" in done.stderr


@pytest.mark.parametrize("command", [["help"], ["python"], ["sim"]], ids=lambda command: command[0])
def test_dev_needs_java_only_for_spark(dev: Dev, command: list[str]) -> None:
    assert dev.run(*command).returncode == 0


def test_dev_installs_java_where_it_may(dev: Dev) -> None:
    home = dev.jvms / "java-21"
    dev.add("id", "echo 0")
    dev.add("apt-cache", '[ "$2" = openjdk-21-jre-headless ]')
    dev.add("chmod", f'exec {shutil.which("chmod")} "$@"')
    dev.add(
        "apt-get",
        f"""echo "apt-get $*"
[ "$1" = update ] || {{
mkdir -p {home}/bin
printf '%s\\n' '#!/bin/sh' 'echo openjdk version \\"21.0.4\\" >&2' >{home}/bin/java
chmod 755 {home}/bin/java
}}""",
    )
    done = dev.run("demo")
    assert (done.returncode, done.stdout) == (0, f"{home}\n")
    assert done.stderr == (
        "apt-get update\n"
        "dev: installing Java: apt-get install -y openjdk-21-jre-headless\n"
        "apt-get install -y openjdk-21-jre-headless\n"
    )


def test_dev_takes_the_java_that_is_there(dev: Dev, tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", script="""echo 'java version "1.8.0_392"' >&2""")
    usual = make_java(dev.jvms / "java-17", script=JAVA_17)
    assert dev.run("demo", JAVA_HOME=str(old)).stdout == f"{usual}\n"
    on_path = make_java(tmp_path / "on path", script=JAVA_17)
    dev.add("java", f"echo '    java.home = {on_path}' >&2")
    assert dev.run("demo", JAVA_HOME=str(old)).stdout == f"{on_path}\n"
    chosen = make_java(tmp_path / "chosen", script=JAVA_17)
    assert dev.run("demo", JAVA_HOME=str(chosen)).stdout == f"{chosen}\n"

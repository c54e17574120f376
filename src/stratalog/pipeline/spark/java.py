"""Finding the Java that Spark runs on.

Spark needs Java 17 or newer. Looked at in this order, and the first that is new enough is taken:

    JAVA_HOME                     what the user chose
    java on the PATH              what the system chose
    the usual places              /usr/lib/jvm and where macOS and Homebrew put it, oldest first

One that is too old or does not run is passed over. If none is left, the error names each of them
and the command that installs one on this system.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from stratalog.errors import Invalid

MAJOR_MIN = 17
PROBE_TIMEOUT_S = 20.0
USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)

_VERSION = re.compile(
    r'(?:^JAVA_VERSION="?|java\.specification\.version = |version ")([^"\s]+)', re.MULTILINE
)
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """A Java that was found: its home, which becomes JAVA_HOME, and its major version."""

    home: Path
    major: int


@dataclass(frozen=True)
class Unfit:
    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.place} {self.why}"


def find_java(
    environment: Mapping[str, str] | None = None, *, usual_homes: Sequence[str] = USUAL_HOMES
) -> Java:
    """The first Java that is new enough, or ``Invalid`` with what was found and what to install."""
    if sys.platform == "win32":
        raise Invalid(
            "Spark needs files of Hadoop on Windows that PySpark does not bring",
            hint='Use Linux, macOS or WSL, or a Spark Connect server: remote="sc://host:15002".',
        )
    return choose(_candidates(os.environ if environment is None else environment, usual_homes))


def choose(candidates: Iterable[Java | Unfit]) -> Java:
    """The first that will do. Later ones are not even looked at."""
    unfit: list[Unfit] = []
    for candidate in candidates:
        if isinstance(candidate, Java):
            return candidate
        unfit.append(candidate)
    found = "; ".join(map(str, unfit)) if unfit else "none was found"
    raise Invalid(
        f"Spark needs Java {MAJOR_MIN} or newer: {found}",
        hint=f"{install_hint(sys.platform, _distribution(), is_root=os.geteuid() == 0)} "
        f"If you have one, set JAVA_HOME to its directory.",
        expected=MAJOR_MIN,
    )


def judge(place: str, home: Path, major: int | None) -> Java | Unfit:
    if major is None:
        return Unfit(place, "does not tell its version")
    if major < MAJOR_MIN:
        return Unfit(place, f"is Java {major}")
    return Java(home, major)


def major_of(version: str) -> int | None:
    """17 for ``17.0.15``, 21 for ``21-ea``, 8 for ``1.8.0_392``."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else None


def major_in(text: str) -> int | None:
    """The major version in the file ``release`` of a Java's home, or in what ``java`` prints."""
    found = _VERSION.search(text)
    return major_of(found[1]) if found else None


def install_hint(system: str, distribution: Mapping[str, str], *, is_root: bool) -> str:
    """How to install a Java here: ``distribution`` is what /etc/os-release says."""
    families = {distribution.get("ID", ""), *distribution.get("ID_LIKE", "").split()}
    if system == "darwin":
        return "Install one: `brew install openjdk@17`."
    if "debian" in families:
        command = f"apt-get install -y {_package_for_debian(families, distribution)}"
    elif families & {"fedora", "rhel", "centos"}:
        command = "dnf install -y java-21-openjdk-headless"
    elif "alpine" in families:
        command = "apk add bash openjdk17-jre-headless"  # Spark's scripts are written for bash
    else:
        return f"Install a Java runtime, version {MAJOR_MIN} or newer."
    return f"Install one: `{'' if is_root else 'sudo '}{command}`."


def _package_for_debian(families: set[str], distribution: Mapping[str, str]) -> str:
    """Debian has no Java 17 since its version 13; Ubuntu still has."""
    version = major_of(distribution.get("VERSION_ID", ""))
    newer = "ubuntu" not in families and (version is None or version >= 13)
    return f"openjdk-{21 if newer else 17}-jre-headless"


def _distribution() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _candidates(
    environment: Mapping[str, str], usual_homes: Sequence[str]
) -> Iterator[Java | Unfit]:
    seen: set[Path] = set()
    if home := environment.get("JAVA_HOME"):
        seen.add(Path(home).resolve())
        yield _examine(f"JAVA_HOME={home}", Path(home))
    if java := shutil.which("java", path=environment.get("PATH", "")):
        home_on_path = Path(java).resolve().parent.parent
        if home_on_path not in seen:
            seen.add(home_on_path)
            yield _examine(java, home_on_path, Path(java))
    homes = {
        Path(home).resolve() for usual in usual_homes for home in glob(os.path.expanduser(usual))
    }
    rest = [home for home in homes - seen if (home / "bin" / "java").exists()]
    yield from sorted((_examine(str(home), home) for home in rest), key=_oldest_first)


def _oldest_first(candidate: Java | Unfit) -> tuple[int, str]:
    """The oldest that will do is the one that Spark has run on for longest."""
    if isinstance(candidate, Java):
        return candidate.major, str(candidate.home)
    return 0, candidate.place


def _examine(place: str, home: Path, java: Path | None = None) -> Java | Unfit:
    """Look at one Java. Its file ``release`` is enough; without it, it is asked."""
    program = java or home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return Unfit(place, "has no bin/java")
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _ask(place, home, program)
    major = major_in(release)
    return _ask(place, home, program) if major is None else judge(place, home, major)


def _ask(place: str, home: Path, program: Path) -> Java | Unfit:
    """Run it. It also prints its home, since the one on the PATH may be a script of its own."""
    try:
        done = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Unfit(place, "does not answer")
    except OSError as error:
        return Unfit(place, f"does not start ({error.strerror})")
    printed = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        return Unfit(place, f"does not start (exit code {done.returncode})")
    found = _HOME.search(printed)
    return judge(place, Path(found[1].strip()) if found else home, major_in(printed))

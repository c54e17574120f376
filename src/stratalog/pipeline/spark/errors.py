"""From what Spark raises to an error that says what happened and what to do next.

An error of a Python worker reaches the driver as text only: the worker's traceback, inside a
message of the JVM, inside an exception of PySpark. A traceback has the class and the message of an
error, not its hint nor its facts. So code that runs in a worker goes into ``whole_errors()``, which
has the error write them all below its message, as one line of JSON:

    stratalog.errors.Trimmed: the log starts at 7
    stratalog-error: {"kind": "trimmed", "message": "the log starts at 7", "first_offset": 7, …}

``tidy_error`` finds that line, or else the class and the message, and builds the error anew. Of
everything else that Spark raises it keeps the one line that says it, without the frames of the JVM.
"""

import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from stratalog import errors
from stratalog.errors import Closed, Invalid, NotFound, StratalogError, Trimmed, Unavailable
from stratalog.store import redact

CAUSES_MAX = 32
MARK = "stratalog-error: "
SHOW_MORE = 'conf={"spark.log.level": "WARN"} shows what Spark itself has to say.'

_LIBRARIES = ("pyspark", "py4j", "grpc")
_CLASSES = {
    each.__name__: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, StratalogError)
}
_KINDS = {each.kind: each for each in _CLASSES.values()}

_TRACEBACK = "Traceback (most recent call last):\n"
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_END_OF_MESSAGE = re.compile(
    r"^(?:\s*$|\tat |\s*SQLSTATE: |=== Streaming Query|JVM stacktrace:|Driver stacktrace:|"
    + MARK
    + ")"
)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_JAVA_CLASS = re.compile(
    r"^(?:[a-z][\w$]*\.)+(?:[A-Z][\w$]*Exception(?:: |$)|(?=[A-Z][\w$]*Error(?:: |$)))"
)
_CONDITION = re.compile(r"\[(?!STREAM_FAILED)[A-Z][A-Z0-9_.]+\] ")
_REFUSED = re.compile(r"IllegalArgumentException|INVALID_CONF|CANNOT_CONFIGURE")
_SQLSTATE = re.compile(r"\s*SQLSTATE: .*$")
_NOISE = re.compile(r"^(?:\s*$|\tat |An error occurred while calling |JVM stacktrace:)")


class Known(NamedTuple):
    """A failure that people meet: how its text is recognised, and what they do about it."""

    pattern: re.Pattern[str]
    kind: type[StratalogError]
    hint: str


_OTHER_PYTHON = (
    'Install "stratalog[spark]" for the Python of the workers, or name another Python with '
    'conf={"spark.pyspark.python": "/path/to/python"}; it must have the driver\'s version.'
)
_KNOWN = (
    Known(re.compile(r"No module named "), Invalid, _OTHER_PYTHON),
    Known(re.compile(r"PYTHON_VERSION_MISMATCH|different version .* than"), Invalid, _OTHER_PYTHON),
    Known(re.compile(r"Cannot run program .*python", re.IGNORECASE), Invalid, _OTHER_PYTHON),
    Known(
        re.compile(r"Class org\.apache\.hadoop\.fs\.\S+ not found|No FileSystem for scheme"),
        Invalid,
        "PySpark comes without the jars for this store. Add them with "
        'conf={"spark.jars.packages": …} (docs/guide/cluster.md), or let Arrow read.',
    ),
    Known(
        re.compile(r"java\.lang\.OutOfMemoryError"),
        Unavailable,
        "Give Spark more memory (spark.driver.memory, on a cluster spark.executor.memory), "
        "or each task less to do.",
    ),
    Known(
        re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)"),
        Unavailable,
        f"It crashed, or the system ended it for want of memory. {SHOW_MORE}",
    ),
    Known(
        re.compile(r"stopped SparkContext|SparkContext (?:was|has been) shut ?down"),
        Closed,
        "The session was stopped. Open a new one.",
    ),
    Known(
        re.compile(r"StatusCode\.UNAVAILABLE|failed to connect to all addresses"),
        Unavailable,
        "Check that the Spark Connect server runs and can be reached from here.",
    ),
    Known(
        re.compile(r"FILE_NOT_EXIST|File .* does not exist"),
        NotFound,
        "A file that was planned is gone: collected without a pin, or lost. Read again with "
        'via="arrow", which tells which of the two, or scrub the log.',
    ),
    Known(re.compile(r"PATH_NOT_FOUND"), NotFound, "Check the path that the message names."),
    Known(
        re.compile(r"DATA_SOURCE_NOT_FOUND"),
        Invalid,
        'For "stratalog", install the package for the Python that Spark uses '
        '(conf={"spark.pyspark.python": …}).',
    ),
    Known(
        re.compile(r"CANNOT_MODIFY_(?:STATIC_)?CONFIG"),
        Invalid,
        "Spark takes it only when it starts. Stop the session and open it with this setting, in a "
        "new process if it is one for the JVM.",
    ),
)


@contextmanager
def whole_errors() -> Iterator[None]:
    """In a worker: have an error of ours take its hint and its facts along to the driver."""
    try:
        yield
    except StratalogError as error:
        if not any(note.startswith(MARK) for note in getattr(error, "__notes__", ())):
            error.add_note(MARK + json.dumps(_facts_of(error)))
        raise


@contextmanager
def readable_spark_errors(otherwise: type[StratalogError] = Unavailable) -> Iterator[None]:
    """On the driver: raise what ``tidy_error`` makes of an error of Spark.

    The original stays in ``__context__``, where a debugger finds it; it is not printed.
    """
    try:
        yield
    except Exception as error:
        tidy = tidy_error(error, otherwise)
        if tidy is None or tidy is error:
            raise
        raise tidy from None


def tidy_error(
    error: BaseException, otherwise: type[StratalogError] = Unavailable
) -> StratalogError | None:
    """The error of ours that this one carries or amounts to. None if Spark did not raise it.

    ``otherwise`` is the kind of what nothing else is known about than that Spark failed.
    """
    if isinstance(error, StratalogError):
        return error
    if not _is_of_spark(error):
        return None
    texts = [_text_of(each) for each in _with_causes(error)]
    for text in texts:
        if (carried := _carried(text) or _raised_in_worker(text)) is not None:
            return carried
    return _of_spark(error, texts, otherwise)


def telling_line(text: str, pattern: re.Pattern[str] = _CONDITION) -> str:
    """The line of Spark's message that says what happened.

    One with the pattern is preferred (by default a condition that Spark has a name for), then the
    first cause, which the JVM names last, then the first line.
    """
    causes = reversed(_CAUSE.findall(text))
    lines = [*causes, *(line for line in text.splitlines() if not _NOISE.match(line))]
    lines.sort(key=lambda line: pattern.search(line) is None)
    return next(filter(None, map(_without_decoration, lines)), "Spark failed without a word")


def _facts_of(error: StratalogError) -> dict[str, object]:
    names = ("kind", "message", "hint", "path")
    facts: dict[str, object] = {name: getattr(error, name) for name in names}
    if isinstance(error, Trimmed):
        facts["first_offset"] = error.first_offset
    return facts


def _carried(text: str) -> StratalogError | None:
    """The error that wrote itself down whole. The last one counts: it is the one that got out."""
    at = text.rfind(MARK + "{")
    if at < 0:
        return None
    try:
        facts, _ = json.JSONDecoder().raw_decode(text, at + len(MARK))
    except ValueError:
        return None
    kind = _KINDS.get(facts.get("kind"), StratalogError)
    message, hint = str(facts.get("message")), facts.get("hint")
    if kind is Trimmed:
        return Trimmed(message, first_offset=facts.get("first_offset", 1), hint=hint)
    return kind(message, hint=hint, path=facts.get("path"))


class _Raised(NamedTuple):
    name: str
    message: str
    frame: str

    def __str__(self) -> str:
        name = self.name.rpartition(".")[2]
        raised = f"{name}: {self.message}" if self.message else name
        return f"{raised} ({self.frame})"


def _raised_in_worker(text: str) -> StratalogError | None:
    """The last error of ours in the tracebacks of this text, known by its class."""
    for raised in reversed(list(_tracebacks(text))):
        module, _, name = raised.name.rpartition(".")
        if module == errors.__name__ and name in _CLASSES:
            kind = _CLASSES[name]
            return kind(raised.message, hint=kind.default_hint)
    return None


def _tracebacks(text: str) -> Iterator[_Raised]:
    for block in text.split(_TRACEBACK)[1:]:
        frame, found = "", None
        lines = iter(block.splitlines())
        for line in lines:
            if (place := _FRAME.match(line)) is not None:
                frame = f"{place[1]}, line {place[2]}, in {place[3]}"
            elif (found := _RAISED.match(line)) is not None:
                break
        if found is None:
            continue
        message = [found[2] or ""]
        for line in lines:
            if _END_OF_MESSAGE.match(line):
                break
            message.append(line)
        yield _Raised(found[1], "\n".join(message), frame)


def _of_spark(
    error: BaseException, texts: list[str], otherwise: type[StratalogError]
) -> StratalogError:
    """What Spark itself has to say, or a Python worker that is not ours to explain."""
    if _is_lost_connection(error):
        return Unavailable(
            "the JVM of Spark does not answer any more",
            hint="It may have run out of memory: raise spark.driver.memory, and start again.",
        )
    whole = "\n".join(texts)
    known = next((each for each in _KNOWN if each.pattern.search(whole)), None)
    raised = next(reversed(list(_tracebacks(whole))), None)
    if raised is not None:
        message = f"a Python worker failed with {raised}"
    else:
        message = telling_line(whole, known.pattern) if known else telling_line(texts[-1])
    message = redact(message)
    if known is not None:
        return known.kind(message, hint=known.hint)
    if raised is not None:
        return StratalogError(message, hint="Look at the place that the message names.")
    if otherwise is Invalid or _is_refusal(error, whole):
        return Invalid(message)
    return otherwise(message, hint=f"Try again. {SHOW_MORE}")


def _is_of_spark(error: BaseException) -> bool:
    libraries = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    return not libraries.isdisjoint(_LIBRARIES) or _is_lost_connection(error)


def _is_lost_connection(error: BaseException) -> bool:
    """Whether the JVM could not be reached. Py4J lets some errors of sockets pass as they are."""
    if any(each.__name__ == "Py4JNetworkError" for each in type(error).__mro__):
        return True
    frames = list(traceback.walk_tb(error.__traceback__)) if isinstance(error, OSError) else []
    return any(frame.f_globals.get("__name__", "").startswith("py4j.") for frame, _ in frames)


def _is_refusal(error: BaseException, text: str) -> bool:
    """Whether Spark refused the call, in contrast to failing at it."""
    from pyspark import errors as of_spark

    refusals = (
        of_spark.AnalysisException,
        of_spark.IllegalArgumentException,
        of_spark.PySparkAttributeError,
        of_spark.PySparkImportError,
        of_spark.PySparkTypeError,
        of_spark.PySparkValueError,
        of_spark.UnsupportedOperationException,
    )
    return isinstance(error, refusals) or _REFUSED.search(text) is not None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what PySpark has kept of its causes, outermost first."""
    seen: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if seen is None:
            return
        yield seen
        cause = getattr(seen, "_cause", None) or seen.__cause__
        seen = cause if isinstance(cause, BaseException) else None


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it asks the JVM for its stack, and the JVM may be gone
        return type(error).__name__


def _without_decoration(line: str) -> str:
    """Without the class of Java, the name of the condition and the code that SQL gives it."""
    line = line.strip().removeprefix(": ")
    while (plain := _CONDITION.sub("", _JAVA_CLASS.sub("", line))) != line:
        line = plain
    return _SQLSTATE.sub("", line).strip()

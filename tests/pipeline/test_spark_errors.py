"""Errors that come back from Spark say what happened and what to do, and nothing of the JVM."""

from __future__ import annotations

import importlib
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkRuntimeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from stratalog import errors
from stratalog.errors import (
    Closed,
    Corrupt,
    Invalid,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
)
from stratalog.pipeline.spark.errors import (
    readable_spark_errors,
    telling_line,
    tidy_error,
    whole_errors,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, StratalogError)
]


class Py4JJavaError(Exception):
    """Stands for the one of Py4J, which needs a JVM to be made."""


class Py4JNetworkError(Exception):
    """Stands for the one of Py4J."""


Py4JJavaError.__module__ = Py4JNetworkError.__module__ = "py4j.protocol"


def as_spark_tells(error: Exception, *, whole: bool = False) -> Py4JJavaError:
    """What the driver gets when a worker raises this: the traceback in a message of the JVM."""
    try:
        if whole:
            with whole_errors():
                raise error
        raise error
    except Exception as raised:
        told = "".join(traceback.format_exception(raised))
    return Py4JJavaError(
        "An error occurred while calling o57.count.\n: org.apache.spark.SparkException: "
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
        f"failure: Lost task 0.3: org.apache.spark.api.python.PythonException: {told}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n\n"
        "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.run(DAG.scala:1)\n"
        f"Caused by: org.apache.spark.api.python.PythonException: {told}\n\t... 1 more\n"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_ours_keeps_its_class_and_message(kind: type[StratalogError]) -> None:
    found = tidy_error(as_spark_tells(kind("log/x is not what it was")))
    assert type(found) is kind
    assert found.message == "log/x is not what it was"
    assert found.hint == kind.default_hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_error_keeps_its_hint_and_its_facts(kind: type[StratalogError]) -> None:
    sent = (
        Trimmed("two lines:\n\ngone", first_offset=7, hint="Begin “later”.")
        if kind is Trimmed
        else kind("two lines:\n\nlost", hint="Begin “again”.", path="log/x")
    )
    found = tidy_error(as_spark_tells(sent, whole=True))
    assert type(found) is kind
    assert (found.message, found.hint, found.path) == (sent.message, sent.hint, sent.path)
    assert getattr(found, "first_offset", None) == getattr(sent, "first_offset", None)


def test_an_error_is_written_down_once_however_often_it_passes() -> None:
    error = Corrupt("log/x")
    with pytest.raises(Corrupt), whole_errors(), whole_errors():
        raise error
    assert len(error.__notes__) == 1


def test_a_message_of_several_lines_is_kept_without_what_spark_adds() -> None:
    error = PySparkRuntimeError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
        '  File "source.py", line 1, in read\n'
        "stratalog.errors.Corrupt: one line\nand another\n SQLSTATE: 38000\n"
    )
    found = tidy_error(error)
    assert isinstance(found, Corrupt)
    assert found.message == "one line\nand another"


def test_of_several_errors_of_ours_the_last_one_counts() -> None:
    error = Corrupt("the later one")
    error.__cause__ = NotFound("the earlier one")
    found = tidy_error(as_spark_tells(error))
    assert isinstance(found, Corrupt)
    assert found.message == "the later one"


def test_an_error_of_ours_behind_another_is_found() -> None:
    with pytest.raises(Corrupt) as reason:
        raise Corrupt("the reason")
    error = RuntimeError("something about it")
    error.__cause__ = reason.value
    found = tidy_error(as_spark_tells(error))
    assert isinstance(found, Corrupt)
    assert found.message == "the reason"


def test_an_error_that_names_one_of_ours_is_not_one() -> None:
    found = tidy_error(as_spark_tells(ValueError("stratalog.errors.Corrupt: not at all")))
    assert type(found) is StratalogError


def test_a_foreign_error_of_a_worker_says_where_it_was_raised() -> None:
    found = tidy_error(as_spark_tells(KeyError("color")))
    assert type(found) is StratalogError
    assert found.message.startswith("a Python worker failed with KeyError: 'color' (")
    assert "in as_spark_tells" in found.message


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (
            as_spark_tells(ModuleNotFoundError("No module named 'stratalog'")),
            Invalid,
            "No module named 'stratalog'",
            "spark.pyspark.python",
        ),
        (
            Py4JJavaError(
                "An error occurred while calling o1.count.\n: org.apache.spark.SparkException: Job "
                "aborted\n\tat a.B(B.scala:1)\nCaused by: java.io.IOException: Cannot run program "
                '"/no/python": error=2, No such file\n\tat a.B.c(B.scala:1)\n'
                "Caused by: java.io.IOException: error=2, No such file\n\t... 32 more\n"
            ),
            Invalid,
            'Cannot run program "/no/python": error=2, No such file',
            "spark.pyspark.python",
        ),
        (
            Py4JJavaError(
                "An error occurred while calling o1.count.\n: org.apache.spark.SparkException: Job "
                "aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space\n\tat a.B(B:1)\n"
            ),
            Unavailable,
            "OutOfMemoryError: Java heap space",
            "spark.driver.memory",
        ),
        (
            Py4JJavaError(
                ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
            ),
            Closed,
            "Cannot call methods on a stopped SparkContext.",
            "Open a new one",
        ),
        (
            PySparkRuntimeError("<_InactiveRpcError: status = StatusCode.UNAVAILABLE>"),
            Unavailable,
            "UNAVAILABLE",
            "Spark Connect server",
        ),
        (
            AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03"),
            NotFound,
            "Path does not exist: file:/x.",
            "the path",
        ),
        (
            Py4JNetworkError("Answer from Java side is empty"),
            Unavailable,
            "the JVM of Spark does not answer any more",
            "spark.driver.memory",
        ),
        (
            Py4JJavaError(
                ": org.apache.spark.SparkIllegalArgumentException: "
                "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'yes' is invalid. SQLSTATE: 22022\n"
                "\tat a.B(B:1)"
            ),
            Invalid,
            "The value 'yes' is invalid.",
            "Change what the message names",
        ),
        (
            IllegalArgumentException("requirement failed"),
            Invalid,
            "requirement failed",
            "Change what the message names",
        ),
        (
            Py4JJavaError(": org.apache.spark.SparkException: Lost executor 3\n\tat a.B(B:1)"),
            Unavailable,
            "Lost executor 3",
            "spark.log.level",
        ),
    ],
)
def test_what_people_meet_is_explained(
    error: Exception, kind: type[StratalogError], message: str, hint: str
) -> None:
    found = tidy_error(error)
    assert type(found) is kind
    assert message in found.message
    assert hint in found.hint
    assert "\tat " not in found.message
    assert "Caused by" not in found.message


def test_secrets_do_not_get_into_messages() -> None:
    found = tidy_error(Py4JJavaError(": java.io.IOException: no access with secret_key=hunter2"))
    assert found is not None
    assert "hunter2" not in found.message


def test_what_spark_did_not_raise_is_left_alone() -> None:
    assert tidy_error(ValueError("mine")) is None
    with pytest.raises(ValueError, match="mine"), readable_spark_errors():
        raise ValueError("mine")


def test_an_error_of_ours_passes_as_it_is() -> None:
    error = Corrupt("log/x")
    assert tidy_error(error) is error
    with pytest.raises(Corrupt) as caught, readable_spark_errors():
        raise error
    assert caught.value is error


def test_the_original_is_kept_but_not_printed() -> None:
    original = as_spark_tells(Corrupt("log/x"))
    with pytest.raises(Corrupt) as caught, readable_spark_errors():
        raise original
    assert caught.value.__context__ is original
    assert "scala" not in "".join(traceback.format_exception(caught.value))


def test_an_error_whose_jvm_is_gone_is_still_told() -> None:
    class Speechless(Py4JNetworkError):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    found = tidy_error(Speechless())
    assert isinstance(found, Unavailable)


def test_a_socket_that_py4j_lost_is_a_lost_jvm() -> None:
    py4j = importlib.import_module("py4j.clientserver")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        gateway = py4j.ClientServer(
            java_parameters=py4j.JavaParameters(port=held.getsockname()[1]),
            python_parameters=py4j.PythonParameters(port=0, eager_load=False),
        )
        with pytest.raises(Unavailable, match="does not answer"), readable_spark_errors():
            gateway.jvm.System.currentTimeMillis()
    assert tidy_error(ConnectionRefusedError()) is None


def test_a_condition_that_spark_has_a_name_for_tells_more_than_its_cause() -> None:
    text = (
        "An error occurred while calling o202.load.\n"
        ": org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] "
        "Failed to find the data source: x. SQLSTATE: 42K02\n\tat a.B(B:1)\n"
        "Caused by: java.lang.ClassNotFoundException: x.DefaultSource\n"
    )
    assert telling_line(text) == "Failed to find the data source: x."
    assert telling_line("") == "Spark failed without a word"


# ---- with Spark itself -------------------------------------------------------------------------


def refuse(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    for _ in batches:
        raise Corrupt("log/x does not add up", path="log/x", hint="Keep it.")
    yield from ()


def refuse_whole(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    with whole_errors():
        yield from refuse(batches)


class TrimmedReader(DataSourceReader):
    def __init__(self, stage: str | None) -> None:
        self._stage = stage

    def partitions(self) -> Sequence[InputPartition]:
        if self._stage == "partitions":
            with whole_errors():
                raise Trimmed("the log starts at 7", first_offset=7)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> NoReturn:
        raise NotFound("there is no log")


class TrimmedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "trimmed-source"

    def schema(self) -> str:
        return "id long"

    def reader(self, schema: object) -> TrimmedReader:
        return TrimmedReader(self.options.get("stage"))


@pytest.mark.parametrize(
    ("function", "hint", "path"),
    [(refuse, Corrupt.default_hint, None), (refuse_whole, "Keep it.", "log/x")],
    ids=["as it is", "whole"],
)
def test_an_error_in_a_function_of_a_worker_arrives(
    spark: SparkSession,
    function: Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]],
    hint: str,
    path: str | None,
) -> None:
    with pytest.raises(Corrupt, match="log/x does not add up") as caught, readable_spark_errors():
        spark.range(3).mapInArrow(function, "id long").count()
    assert (caught.value.hint, caught.value.path) == (hint, path)


def test_an_error_of_a_data_source_arrives(spark: SparkSession) -> None:
    spark.dataSource.register(TrimmedSource)
    with pytest.raises(Trimmed) as trimmed, readable_spark_errors():
        spark.read.format("trimmed-source").option("stage", "partitions").load().count()
    assert trimmed.value.first_offset == 7
    with pytest.raises(NotFound, match="there is no log"), readable_spark_errors():
        spark.read.format("trimmed-source").load().count()


def test_an_error_of_a_stream_arrives(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("value as id")
    query = rows.mapInArrow(refuse_whole, "id long").writeStream.format("noop").start()
    with pytest.raises(Corrupt, match="log/x does not add up"), readable_spark_errors():
        query.awaitTermination(60)


def test_a_wrong_query_is_a_wrong_call(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Invalid, match="`color` cannot be resolved"), readable_spark_errors():
        spark.range(3).select("color")
    with pytest.raises(Invalid, match="data source: no-such-source"), readable_spark_errors():
        spark.read.format("no-such-source").load()
    with pytest.raises(Invalid, match="S3AFileSystem not found"), readable_spark_errors():
        spark.read.parquet("s3a://bucket/orders")
    assert capfd.readouterr() == ("", "")

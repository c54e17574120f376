"""What programs read of the commands has the keys and the types that it had."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from public import printing
from public.commands import with_json
from public.printed import ERROR, Printed
from public.stored import check, stored


def test_commands_print_the_keys_that_they_printed(tmp_path: Path) -> None:
    check("json", printing.without_spark(tmp_path))


@pytest.mark.slow
def test_commands_on_spark_print_the_keys_that_they_printed(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark is not None
    check("json-with-spark", printing.with_spark(tmp_path))


def test_every_command_that_prints_json_is_called_or_excused() -> None:
    called = {*stored("json"), *stored("json-with-spark")} - {ERROR}
    assert called.isdisjoint(printing.NOT_CALLED)
    assert called | printing.NOT_CALLED.keys() == with_json()


def test_the_shape_of_a_tree_does_not_depend_on_how_deep_it_is() -> None:
    def shape(document: object) -> object:
        printed = Printed()
        printed.note("info", document)
        return printed.inventory()

    leaf = {"first": [{"path": "a"}]}
    tree = {"first": [{"path": "a", "children": leaf}]}
    deeper = {"first": [{"path": "a", "children": tree}]}
    assert shape({"tree": tree}) == shape({"tree": deeper})

"""Walking a plan of Spark, the JVM's own tree, from this side.

A plan has plans below it, and expressions; an expression has expressions below it, and a subquery
has a plan. Only the node classes in ``allowed_sql`` are walked through, and of each of those it is
known that these ways lead to all that it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Java = Any
"""An object of the JVM. Py4J finds its methods at run time."""

WITH = "UnresolvedWith"
SUBQUERIES = ("Exists", "ListQuery", "ScalarSubquery")

_PACKAGE = "org.apache.spark.sql.catalyst."
_ROOMS = (
    "analysis.",
    "expressions.",
    "expressions.aggregate.",
    "expressions.objects.",
    "expressions.variant.",
    "expressions.xml.",
    "plans.logical.",
)


class Node(NamedTuple):
    """A node of a plan or of an expression."""

    java: Java
    is_plan: bool

    @property
    def class_name(self) -> str:
        """The whole name of its class."""
        return str(self.java.getClass().getName())

    @property
    def kind(self) -> str:
        """The name of its class if it is one of Catalyst's, otherwise with its package."""
        return short_name(self.class_name)

    def below(self) -> Iterator[Node]:
        """What it is made of."""
        yield from (Node(each, self.is_plan) for each in each_of(self.java.children()))
        if self.is_plan:
            yield from (Node(each, is_plan=False) for each in each_of(self.java.expressions()))
        if self.kind == WITH:
            yield from (Node(each, is_plan=True) for each in each_of(self.java.innerChildren()))
        if self.kind in SUBQUERIES:
            yield Node(self.java.plan(), is_plan=True)


def each_of(sequence: Java) -> Iterator[Java]:
    """The members of a sequence of Scala."""
    members = sequence.iterator()
    while members.hasNext():
        yield members.next()


def short_name(class_name: str) -> str:
    """A class of Catalyst without its package, so that no class elsewhere has the same name."""
    room, _, name = class_name.rpartition(".")
    is_catalyst = f"{room}.".removeprefix(_PACKAGE) in _ROOMS and room.startswith(_PACKAGE)
    return name.removesuffix("$") if is_catalyst else class_name

"""The SQL of stored policies, kept to what ``allowed_sql`` lists.

    parse ──► are all names allowed? ──► analyse ──► are all nodes allowed? ──► ask

A policy is stored with its log, and the right to set one is a lesser right than to run the
pipeline, whose process evaluates it with all of its credentials. So nothing of a policy is looked
up before its names were checked: looking up a table or a table function may open files or run code.
And nothing is evaluated before the analysed plan was checked: only there is it seen what a name
stands for in this session. ``docs/design/012-policy.md`` says what is trusted and what is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stratalog.errors import Denied
from stratalog.objectlog.stored import Live, Policy
from stratalog.pipeline.compact.allowed_sql import (
    BEHIND_FUNCTIONS,
    EXPRESSIONS,
    FUNCTIONS,
    PLANS,
)
from stratalog.pipeline.compact.key_rule import (
    COLUMNS_HINT,
    GRACE_S,
    ByKey,
    asked_of,
    checked_rule,
    enclosed,
)
from stratalog.pipeline.compact.plan_nodes import WITH, Java, Node, each_of, short_name
from stratalog.pipeline.spark import RECORDS_DDL, is_remote, readable_spark_errors

VIEW = "log"
"""What a query calls the records."""

SUBSTITUTION = "${"

HINT = (
    "Write it with what a policy may use (docs/guide/pipeline.md#what-a-policy-may-use). Or, if "
    "everybody who may set a policy may also run code here: --trust-policies, or "
    "trust_policies=True."
)
REMOTE_HINT = (
    "Run the pipeline on a session of its own (--master), or trust the policies: "
    "--trust-policies, or trust_policies=True."
)


def check_policy(spark: SparkSession, policy: Policy) -> None:
    """Refuse a policy whose SQL is wrong (``Invalid``), or not allowed (``Denied``)."""
    if policy.live is not None:
        check_live(spark, policy.live)


def check_live(spark: SparkSession, live: Live) -> None:
    """The same for the rule of a policy. Nothing is read, and nothing evaluated.

    For a query, the session has a view ``log`` meanwhile, as for a run.
    """
    if live.key is not None:
        _check_by_key(spark, ByKey(live.key, live.tombstone, live.grace_s or GRACE_S))
    elif live.sql is not None:
        nothing = spark.createDataFrame([], RECORDS_DDL)
        nothing.createOrReplaceTempView(VIEW)
        try:
            with readable_spark_errors(), asked_of("the query does not say what lives"):
                asked_query(spark, live.sql, trusted=False)
        finally:
            spark.catalog.dropTempView(VIEW)


def asked_query(spark: SparkSession, query: str, *, trusted: bool) -> DataFrame:
    """What a query over the view ``log`` gives. One that is not trusted is checked before."""
    text = f"SELECT * FROM (\n{query}\n)"  # a question, no command
    if trusted:
        return spark.sql(text)
    check = _Check(_jvm_of(spark), relations=frozenset({VIEW}))
    _check_text(query)
    check.parsed(Node(check.parser.parsePlan(text), is_plan=True))
    frame = spark.sql(text)
    check.analysed(frame)
    return frame


def _check_by_key(spark: SparkSession, by: ByKey) -> None:
    check = _Check(_jvm_of(spark))
    for what, sql in (("key", by.key_sql), ("tombstone", by.tombstone_sql)):
        if sql is not None:
            _check_text(sql)
            with asked_of(f"the {what} cannot be evaluated", hint=COLUMNS_HINT):
                for text in (sql, enclosed(sql)):
                    check.parsed(Node(check.parser.parseExpression(text), is_plan=False))
    rule = checked_rule(spark, by)
    nothing = spark.createDataFrame([], RECORDS_DDL)
    check.analysed(rule.applied(nothing), nothing)


def _check_text(sql: str) -> None:
    """Refuse the one thing that no plan shows: Spark puts settings and variables of the environment
    into the text before it parses it. Then a rule could tell a password by what it drops."""
    if SUBSTITUTION in sql:
        raise _denied(f"{SUBSTITUTION}…}}, which Spark replaces by a setting", SUBSTITUTION)


@dataclass(frozen=True, slots=True)
class _Check:
    """Which nodes are refused, in one session."""

    session: Java
    relations: frozenset[str] = frozenset()
    """What may be read from."""

    _names: dict[str, bool] = field(default_factory=dict)

    @property
    def parser(self) -> Java:
        return self.session.sessionState().sqlParser()

    def parsed(self, root: Node) -> None:
        """Refuse a name that is not allowed, before Spark looks for what it stands for."""
        nodes = [*_all_of(root, ())]
        known = self.relations | {name for node in nodes for name in _common_tables(node)}
        for node in nodes:
            if node.kind == "UnresolvedRelation":
                _check_relation(node, known)
            elif node.kind in ("UnresolvedFunction", "UnresolvedGenerator"):
                self._check_function(node)
            else:
                _check_class(node)

    def analysed(self, frame: DataFrame, *leaves: DataFrame) -> None:
        """Refuse a node that is not allowed, whatever it was called. What the frame is read from
        is ours: these ``leaves``, or the view."""
        ends = [_plan_of(each) for each in leaves]
        for node in _all_of(Node(_plan_of(frame), is_plan=True), ends):
            if node.kind == "View":
                _check_view(node, self.relations)
            elif not (node.is_plan and node.java in ends):
                _check_class(node)

    def _check_function(self, node: Node) -> None:
        name = _name_of_function(node)
        if name not in FUNCTIONS:
            raise _denied(f"the function {name}", name)
        if not self._is_sparks_own(name):
            raise _denied(f"the function {name}, which this session has taken from Spark", name)

    def _is_sparks_own(self, name: str) -> bool:
        """Whether a name means in this session what it means in Spark."""
        if name not in self._names:
            catalog = self.session.sessionState().catalog()
            found = catalog.lookupBuiltinOrTempFunction(name)
            here = None if found.isEmpty() else str(found.get().getClassName())
            is_taken = catalog.isTemporaryFunction(_identifier(name))
            self._names[name] = here == _class_of(name) and not is_taken
        return self._names[name]


def _all_of(root: Node, ends: Collection[Java]) -> Iterator[Node]:
    """The node and all below it. Where it ends, or is not allowed, nothing is looked into."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if not (node.is_plan and (node.java in ends or node.kind == "View")):
            waiting.extend(node.below())


def _check_class(node: Node) -> None:
    kind = node.kind
    if node.is_plan:
        if kind not in PLANS:
            raise _denied(f"the step {node.java.nodeName()}", kind)
    elif kind not in EXPRESSIONS and kind not in _classes_of_functions():
        name = str(node.java.prettyName())
        raise _denied(f"the function {name}", name)


def _check_relation(node: Node, known: Collection[str]) -> None:
    parts = [str(each) for each in each_of(node.java.multipartIdentifier())]
    name = ".".join(parts)
    if len(parts) != 1 or name.lower() not in known:
        raise _denied(f"the table {name}", name)


def _check_view(node: Node, names: Collection[str]) -> None:
    """Only the view of the records may be read: a temporary one of this session."""
    called = node.java.desc().identifier()
    name = str(called.unquotedString())
    if name.lower() not in names or not node.java.isTempView():
        raise _denied(f"the view {name}", name)


def _common_tables(node: Node) -> Iterator[str]:
    """The names that a ``WITH`` gives to its queries."""
    if node.kind == WITH:
        for each in each_of(node.java.innerChildren()):
            yield str(each.alias()).lower()


def _name_of_function(node: Node) -> str:
    if node.kind == "UnresolvedGenerator":
        return str(node.java.name().unquotedString()).lower()
    return ".".join(str(each) for each in each_of(node.java.nameParts())).lower()


@cache
def _classes_of_functions() -> frozenset[str]:
    """The classes of the functions that are allowed, as Spark lists them."""
    found = map(_class_of, FUNCTIONS)
    return BEHIND_FUNCTIONS | {short_name(each) for each in found if each is not None}


@cache
def _class_of(name: str) -> str | None:
    """The class behind a name of Spark's own, whatever a session has registered under it."""
    analysis = _jvm().org.apache.spark.sql.catalyst.analysis
    registry = getattr(getattr(analysis, "FunctionRegistry$"), "MODULE$")
    found = registry.expressions().get(name)
    return None if found.isEmpty() else str(found.get()._1().getClassName())


def _identifier(name: str) -> Java:
    return _jvm().org.apache.spark.sql.catalyst.FunctionIdentifier(name)


def _jvm() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None, "a classic session has a context"
    return context._jvm


def _jvm_of(spark: SparkSession) -> Java:
    """The session in the JVM. Through Spark Connect plans cannot be seen."""
    if is_remote(spark):
        raise Denied(
            "what a stored policy would run cannot be seen through Spark Connect",
            hint=REMOTE_HINT,
        )
    return spark._jsparkSession


def _plan_of(frame: DataFrame) -> Java:
    jdf: Any = frame._jdf
    return jdf.queryExecution().analyzed()


def _denied(what: str, name: str) -> Denied:
    return Denied(f"a stored policy may not use {what}", hint=HINT, actual=name)

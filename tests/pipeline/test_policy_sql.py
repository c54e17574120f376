"""The SQL of stored policies computes with records, and does nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import (  # type: ignore[import-untyped]
    JavaObject,
    is_instance_of,
)

import stratalog as sl
from cli.calls import call, call_json, error_json
from objectlog.whole_log import run
from pipeline.herds import KEY, fill, root_of, store_of
from pipeline.policy_expressions import AGGREGATES, EXPRESSIONS, QUERIES, WINDOWS, paragraphs
from stratalog.errors import Denied, Invalid
from stratalog.pipeline import HerdCompactOptions, check_policy, compact_herd, live_set
from stratalog.pipeline.compact import plan_nodes, policy_sql
from stratalog.pipeline.compact.allowed_sql import FUNCTIONS
from stratalog.pipeline.compact.plan_nodes import Node, each_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "stratalog.was.here"
CALL = f"reflect('java.lang.System', 'setProperty', '{MARK}', 'yes')"
"""What must not happen."""

RECORDS_SQL = """
    SELECT * FROM VALUES (1L, timestamp '2020-01-01', binary('{"key": "a"}')),
        (2L, timestamp '2020-01-02', binary('{"key": "b"}')) AS t(offset, timestamp, body)
"""


@pytest.fixture
def other(spark: SparkSession) -> SparkSession:
    """A session of its own, in which names may mean something else."""
    return spark.newSession()


@pytest.fixture(autouse=True)
def nothing_was_called(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        found = spark._jvm.java.lang.System.clearProperty(MARK)
        assert found is None, "code of a policy has run"


def query(sql: str) -> sl.Policy:
    return sl.Policy(live=sl.Live(sql=sql))


def by_key(key: str, tombstone: str | None = None) -> sl.Policy:
    return sl.Policy(live=sl.Live(key=key, tombstone=tombstone))


class TestAllowed:
    def test_every_function_has_an_example(self) -> None:
        told = " ".join([EXPRESSIONS, AGGREGATES, WINDOWS, *QUERIES]).lower()
        words = set(re.findall(r"[a-z_0-9]+", told))
        assert {name for name in FUNCTIONS if name[0].isalpha()} - words == {"cast", "when"} - words

    @pytest.mark.parametrize("some", paragraphs(EXPRESSIONS))
    def test_expressions(self, spark: SparkSession, some: str) -> None:
        check_policy(spark, query(f"SELECT o FROM (SELECT offset AS o, {some} FROM log)"))

    @pytest.mark.parametrize("some", paragraphs(AGGREGATES))
    def test_aggregates(self, spark: SparkSession, some: str) -> None:
        check_policy(spark, query(f"SELECT o FROM (SELECT max(offset) AS o, {some} FROM log)"))

    @pytest.mark.parametrize("some", paragraphs(WINDOWS))
    def test_windows(self, spark: SparkSession, some: str) -> None:
        some = some.replace("over w", "over (partition by body order by offset desc)")
        check_policy(spark, query(f"SELECT o FROM (SELECT offset AS o, {some} FROM log)"))

    @pytest.mark.parametrize("sql", QUERIES)
    def test_queries(self, other: SparkSession, sql: str) -> None:
        check_policy(other, query(sql))
        other.sql(RECORDS_SQL).createOrReplaceTempView("log")
        live_set(policy_sql.asked_query(other, sql, trusted=False))

    @pytest.mark.parametrize(
        ("key", "tombstone"),
        [
            ("get_json_object(string(body), '$.key')", "get_json_object(string(body), '$.v') = ''"),
            (KEY, None),
            ("sha2(body, 256) -- of all", "length(body) = 0"),
            ("try_variant_get(try_parse_json(string(body)), '$.id', 'bigint')", "body IS NULL"),
            ("date(timestamp)", "NOT (offset % 2 = 0 AND CASE WHEN true THEN false END)"),
        ],
    )
    def test_keys(self, spark: SparkSession, key: str, tombstone: str | None) -> None:
        check_policy(spark, by_key(key, tombstone))

    def test_a_policy_without_sql(self, spark: SparkSession) -> None:
        check_policy(spark, sl.Policy(retain=sl.Retention(bytes=1)))


EXPRESSIONS_REFUSED = [
    (CALL, "reflect"),
    (CALL.replace("reflect", "java_method"), "java_method"),
    (CALL.replace("reflect", "try_reflect"), "try_reflect"),
    (CALL.replace("reflect", "REFLECT"), "reflect"),
    (CALL.replace("reflect", "`reflect`"), "reflect"),
    (CALL.replace("reflect", "builtin.reflect"), "builtin.reflect"),
    (CALL.replace("reflect", "system.builtin.reflect"), "system.builtin.reflect"),
    (CALL.replace("reflect", "IDENTIFIER('ref' || 'lect')"), None),
    (f"CASE WHEN offset > 0 THEN upper(concat({CALL}, 'a')) END", "reflect"),
    (f"transform(array(1), x -> {CALL})[0]", "reflect"),
    (f"element_at(map('a', {CALL}), 'a')", "reflect"),
    (f"max({CALL}) OVER (PARTITION BY body)", "reflect"),
    (f"max(body) OVER (PARTITION BY {CALL})", "reflect"),
    (f"CAST({CALL} AS STRING) || 'a'", "reflect"),
    (f"(SELECT max({CALL}))", "reflect"),
    (f"offset IN (SELECT 1 WHERE {CALL} = 'x')", "reflect"),
    ("input_file_name()", "input_file_name"),
    ("input_file_block_start()", "input_file_block_start"),
    ("assert_true(offset > 0)", "assert_true"),
    ("raise_error('stop')", "raise_error"),
    ("version()", "version"),
    ("current_user()", "current_user"),
    ("current_user", "current_user"),
    ("session_user()", "session_user"),
    ("user()", "user"),
    ("current_catalog()", "current_catalog"),
    ("current_database()", "current_database"),
    ("current_schema", None),
    ("uuid()", "uuid"),
    ("rand()", "rand"),
    ("monotonically_increasing_id()", "monotonically_increasing_id"),
    ("spark_partition_id()", "spark_partition_id"),
    ("xpath_string(string(body), 'a')", "xpath_string"),
    ("from_xml(string(body), 'a int').a", "from_xml"),
    ("from_avro(body, '{}')", "from_avro"),
    ("from_protobuf(body, 'a', '/etc/passwd')", "from_protobuf"),
    ("aes_decrypt(body, '0000')", "aes_decrypt"),
    ("session_window(timestamp, '1 minute').start", "session_window"),
    ("no_such_function(body)", "no_such_function"),
    ("'${env:HOME}'", "${"),
    ("CAST('${system:user.home}' AS INT)", "${"),
    ("'${spark.app.name}'", "${"),
    ("'${' || 'env:HOME}'", "${"),
    (":name", None),
    ("default.lower(string(body))", "default.lower"),
    ("spark_catalog.default.lower('a')", "spark_catalog.default.lower"),
    ("(SELECT max(value) FROM text.`/etc/passwd`)", "text./etc/passwd"),
]

QUERIES_REFUSED = [
    ("SELECT TRANSFORM(offset) USING 'touch {here}' AS (o) FROM log", "ScriptTransformation"),
    ("SELECT offset FROM log WHERE EXISTS (SELECT * FROM parquet.`{here}`)", None),
    ("SELECT value FROM text.`{here}`", "text.{here}"),
    ("SELECT a FROM csv.`{here}`", "csv.{here}"),
    ("SELECT offset FROM stratalog.`{here}`", "stratalog.{here}"),
    ("WITH parquet AS (SELECT 1) SELECT * FROM parquet.`{here}`", "parquet.{here}"),
    ("SELECT id FROM range(10)", None),
    ("SELECT id FROM log, LATERAL range(10)", None),
    ("SELECT * FROM sql_keywords()", None),
    ("SELECT offset FROM other_view", "other_view"),
    ("SELECT offset FROM global_temp.log", "global_temp.log"),
    ("SELECT offset FROM default.log", "default.log"),
    ("SELECT offset FROM IDENTIFIER('lo' || 'g')", None),
    ("TABLE other_view", "other_view"),
    ("SELECT offset FROM log TABLESAMPLE (10 PERCENT)", "Sample"),
    ("SELECT /*+ REPARTITION(1000000) */ offset FROM log", "UnresolvedHint"),
    ("VALUES ({call})", "reflect"),
    ("SELECT offset FROM log JOIN (VALUES ({call})) AS t(x)", "reflect"),
    ("SELECT offset FROM log ORDER BY {call}", "reflect"),
    ("SELECT offset FROM log LIMIT length({call})", "reflect"),
    ("SELECT a.offset FROM log a JOIN log b ON {call} = 'x'", "reflect"),
    ("SELECT max(offset) FROM log GROUP BY {call}", "reflect"),
    ("SELECT max(offset) FROM log HAVING max({call}) = 'x'", "reflect"),
    ("SELECT count(*) FILTER (WHERE {call} = 'x') FROM log", "reflect"),
    ("SELECT offset FROM log LATERAL VIEW explode(array({call})) t AS x", "reflect"),
    ("SELECT explode(array({call})) FROM log", "reflect"),
    ("WITH a AS (SELECT {call} AS x FROM log) SELECT 1", "reflect"),
    ("SELECT offset FROM log WHERE offset IN (WITH a AS (SELECT {call}) SELECT 1)", "reflect"),
    ("SELECT max(offset) OVER w FROM log WINDOW w AS (ORDER BY {call})", None),
    ("SELECT offset FROM log WHERE 1 = ANY (SELECT {call})", None),
    ("SELECT o FROM log PIVOT (max({call}) FOR offset IN (1 AS o))", None),
    ("SELECT max(offset) FROM log GROUP BY CUBE ({call})", None),
    ("SELECT offset FROM log |> WHERE {call} = 'x'", None),
    ("FROM log SELECT {call}", "reflect"),
    ("SELECT listagg(string(body)) WITHIN GROUP (ORDER BY {call}) FROM log", None),
]


class TestRefused:
    @pytest.mark.parametrize(("sql", "name"), EXPRESSIONS_REFUSED)
    def test_as_a_key(self, spark: SparkSession, sql: str, name: str | None) -> None:
        self.check(spark, by_key(sql), name)

    @pytest.mark.parametrize(("sql", "name"), EXPRESSIONS_REFUSED[:3])
    def test_as_a_tombstone(self, spark: SparkSession, sql: str, name: str) -> None:
        self.check(spark, by_key("body", f"{sql} = 'x'"), name)

    @pytest.mark.parametrize(("sql", "name"), EXPRESSIONS_REFUSED)
    def test_in_a_query(self, spark: SparkSession, sql: str, name: str | None) -> None:
        self.check(spark, query(f"SELECT offset FROM log WHERE ({sql}) IS NOT NULL"), name)

    @pytest.mark.parametrize(("sql", "name"), QUERIES_REFUSED)
    def test_queries(self, spark: SparkSession, tmp_path: Path, sql: str, name: str | None) -> None:
        here = tmp_path / "touched"
        given = {"here": str(here), "call": CALL}
        self.check(spark, query(sql.format(**given)), name and name.format(**given))
        assert not here.exists()

    def test_names_are_checked_before_anything_is_looked_up(self, spark: SparkSession) -> None:
        """If they were not, the error would be that there is no such function."""
        queries = [sql for sql, name in QUERIES_REFUSED if name == "reflect"]
        queries += [f"SELECT {sql}" for sql, name in EXPRESSIONS_REFUSED if name == "reflect"]
        for sql in queries:
            unknown = sql.format(call=CALL).replace(CALL, "no_such_function(1)")
            unknown = unknown.replace("`reflect`(", "no_such_function(").replace(
                "REFLECT", "reflect"
            )
            if CALL not in unknown:
                self.check(spark, query(unknown), "no_such_function")

    def test_every_function_that_is_not_on_the_list(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        analysis = jvm.org.apache.spark.sql.catalyst.analysis
        registry = getattr(getattr(analysis, "FunctionRegistry$"), "MODULE$")
        names = {str(name) for name in each_of(registry.expressions().keySet())}
        others = sorted(name for name in names - FUNCTIONS if re.fullmatch(r"\w+", name))
        assert {"reflect", "java_method", "input_file_name", "from_xml"} < set(others)
        for name in others:
            with pytest.raises((Denied, Invalid)) as refused:  # some are no names in an expression
                check_policy(spark, by_key(f"`{name}`(1)"))
            assert isinstance(refused.value, Denied), name

    @staticmethod
    def check(spark: SparkSession, policy: sl.Policy, name: str | None) -> None:
        """It is refused, by that name; or Spark itself does not take it."""
        with pytest.raises(Denied if name else (Denied, Invalid)) as refused:
            check_policy(spark, policy)
        if name:
            assert refused.value.actual == name
            assert name.lower() in str(refused.value).lower()
            assert "--trust-policies" in refused.value.hint


class TestOtherMeanings:
    """Names that are allowed, and mean something else in this session."""

    def test_a_function_of_the_session(self, other: SparkSession) -> None:
        other.udf.register("mine", lambda x: x)
        for sql in ("mine(body)", "concat('a', mine('b'))"):
            with pytest.raises(Denied, match="mine"):
                check_policy(other, by_key(sql))

    def test_one_in_the_place_of_sparks_own(self, other: SparkSession) -> None:
        other.udf.register("soundex", lambda x: x)
        policies = (
            by_key("soundex('a')"),
            query("SELECT offset FROM log WHERE soundex(string(body)) = 'a'"),
            query("SELECT offset FROM log JOIN VALUES (soundex('a')) AS t(x)"),
        )
        for policy in policies:
            refuses_or_ignores(other, policy)

    def test_one_in_sql(self, other: SparkSession) -> None:
        given = "levenshtein(a STRING, b STRING)"
        other.sql(f"CREATE TEMPORARY FUNCTION {given} RETURNS STRING RETURN {CALL}")
        for sql in ("levenshtein('a', 'b')", "session.levenshtein('a', 'b')"):
            refuses_or_ignores(other, by_key(sql))

    def test_a_view_in_the_place_of_the_log(self, other: SparkSession, spark: SparkSession) -> None:
        other.sql(f"CREATE TEMPORARY VIEW log AS SELECT {CALL} AS offset")
        check_policy(other, query("SELECT offset FROM log"))
        other.sql(f"CREATE TEMPORARY VIEW elsewhere AS SELECT {CALL} AS offset")
        with pytest.raises(Denied, match="elsewhere"):
            check_policy(other, query("SELECT offset FROM elsewhere"))
        with pytest.raises(Denied, match="elsewhere"):
            check_policy(
                other,
                query("SELECT * FROM (WITH elsewhere AS (SELECT 1) SELECT 1) JOIN elsewhere"),
            )

    def test_one_that_comes_before_sparks_own(self, other: SparkSession) -> None:
        """As a session may be set to. While a plan is analysed, ``VALUES`` are evaluated."""
        given = "levenshtein(a STRING, b STRING)"
        other.sql(f"CREATE TEMPORARY FUNCTION {given} RETURNS STRING RETURN {CALL}")
        other.udf.register("soundex", lambda x: x)
        other.conf.set("spark.sql.functionResolution.sessionOrder", "first")
        for sql in ("levenshtein('a', 'b')", "soundex('a')"):
            for policy in (by_key(sql), query(f"VALUES ({sql})")):
                with pytest.raises(Denied, match="this session has taken"):
                    check_policy(other, policy)

    def test_a_variable(self, other: SparkSession) -> None:
        other.sql("DECLARE VARIABLE secret STRING DEFAULT 'secret'")
        with pytest.raises(Denied):
            check_policy(other, by_key("secret"))

    def test_plans_cannot_be_seen_through_connect(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policy_sql, "is_remote", lambda _: True)
        with pytest.raises(Denied, match="Spark Connect") as refused:
            check_policy(spark, by_key("body"))
        assert "--trust-policies" in refused.value.hint


def refuses_or_ignores(spark: SparkSession, policy: sl.Policy) -> None:
    """Spark's own is meant, or it is refused: which of them depends on Spark's version."""
    try:
        check_policy(spark, policy)
    except (Denied, Invalid):
        return
    live = policy.live
    assert live is not None
    if live.key is not None:
        plan: Any = spark.range(1).selectExpr(live.key)._jdf.queryExecution()
        assert not re.search("UDF|reflect", plan.optimizedPlan().toString())


TREE_NODE = "org.apache.spark.sql.catalyst.trees.TreeNode"
WALKED = (
    QUERIES[3],
    QUERIES[4],
    QUERIES[8],
    "WITH a AS (SELECT * FROM log), b AS (SELECT offset FROM a) SELECT b.offset FROM a, b",
    "SELECT offset FROM log LATERAL VIEW explode(array(lower('a'), 'b')) t AS x ORDER BY x LIMIT 2",
    "SELECT max(offset) FILTER (WHERE offset > 1) OVER (PARTITION BY body ORDER BY 1) FROM log",
    "SELECT transform(array(1), x -> if(x > 1, nullif(x, 2), lpad('a', 3)))[0] FROM log",
    "SELECT * FROM VALUES (1, lower('a')), (2, upper('b')) AS t(x, y) WHERE y LIKE ANY ('a', 'b')",
)


class TestWalk:
    """The walk sees all that the nodes are made of, in the way that Spark itself would show it."""

    @pytest.mark.parametrize("sql", WALKED)
    def test_it_leaves_nothing_out(self, other: SparkSession, sql: str) -> None:
        session: Any = other._jsparkSession
        parsed = session.sessionState().sqlParser().parsePlan(sql)
        assert not self.left_out(other, parsed)
        other.sql(RECORDS_SQL).createOrReplaceTempView("log")
        analysed: Any = other.sql(sql)._jdf.queryExecution()
        assert not self.left_out(other, analysed.analyzed())

    def test_it_would_be_noticed(
        self, other: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plan_nodes, "SUBQUERIES", ())
        parser: Any = other._jsparkSession.sessionState().sqlParser()
        assert self.left_out(other, parser.parsePlan(QUERIES[3]))

    @staticmethod
    def left_out(spark: SparkSession, plan: Any) -> set[str]:
        walked = policy_sql._all_of(Node(plan, is_plan=True), ())
        seen = {str(node.java.toString()) for node in walked}
        return {str(node.toString()) for node in parts_of(spark, plan)} - seen


def parts_of(spark: SparkSession, root: Any) -> Iterator[Any]:
    """All nodes that can be reached from a node by whatever it was made with. Slow."""
    gateway: Any = spark._sc._gateway

    def is_a(found: Any, kind: str) -> bool:
        return isinstance(found, JavaObject) and bool(is_instance_of(gateway, found, kind))

    waiting = [root]
    while waiting:
        found = waiting.pop()
        if is_a(found, TREE_NODE):
            yield found
            if "View" not in str(found.getClass().getSimpleName()):
                waiting.extend(each_of(found.productIterator().toList()))
        elif is_a(found, "org.apache.spark.sql.types.DataType"):
            continue
        elif is_a(found, "scala.collection.Iterable"):
            waiting.extend(each_of(found))
        elif is_a(found, "scala.Product"):
            waiting.extend(each_of(found.productIterator().toList()))


NOW = HerdCompactOptions(interval_s=0.0)
TRUSTING = HerdCompactOptions(interval_s=0.0, trust_policies=True)
JAVA_KEY = "reflect('java.lang.String', 'valueOf', 1)"


class TestRuns:
    @pytest.mark.parametrize(
        "policy",
        [by_key(JAVA_KEY), query(f"SELECT max(offset) FROM log GROUP BY {JAVA_KEY}")],
        ids=["key", "query"],
    )
    def test_what_is_stored_is_checked_by_each_run(
        self, spark: SparkSession, tmp_path: Path, policy: sl.Policy
    ) -> None:
        root = root_of(tmp_path)
        fill(root, {"bad": 60, "good": 60}, fragments=6)
        run(sl.PolicyStore(store_of(root, "bad")).set(policy))
        run(sl.PolicyStore(store_of(root, "good")).set(by_key(KEY)))
        done = compact_herd(spark, root, options=NOW)
        assert [(each.log, each.error.kind) for each in done.troubles] == [("bad", "denied")]
        assert [each.log for each in done.logs] == ["good"]
        done = compact_herd(spark, root, options=TRUSTING)
        assert done.troubles == ()
        assert [each.log for each in done.logs] == ["bad"]
        assert done.records > 0

    def test_from_the_shell(self, spark: SparkSession, tmp_path: Path) -> None:
        root = root_of(tmp_path)
        fill(root, {"a": 60}, fragments=6)
        place = store_of(root, "a").url
        error = error_json("policy", "set", place, "--key", JAVA_KEY, code=12)
        assert (error["kind"], "reflect" in error["message"]) == ("denied", True)
        error = error_json("policy", "set", place, "--live", "SELECT nothing FROM log", code=2)
        assert "nothing" in error["message"]
        assert error_json("policy", "get", place, code=3)["kind"] == "not-found"
        call("policy", "set", root, "--log", "*", "--key", KEY)
        call("policy", "set", place, "--key", JAVA_KEY, "--no-check")
        assert call_json("policy", "get", place)["policy"]["live"] == {"key": JAVA_KEY}
        told = ["pipeline", "run", root, "--stages", "compact", "--interval", "0", "--json"]
        told += ["--report", str(tmp_path / "report.html")]
        assert "may not use the function reflect" in call(*told, code=5).stdout
        call(*told, "--trust-policies")

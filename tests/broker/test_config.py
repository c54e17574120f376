"""Options of a broker come from four places, under one name each, and a known one wins."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from stratalog.broker.config import configure, names
from stratalog.broker.options import BrokerOptions
from stratalog.errors import Invalid, NotFound

DATA = {"data": "data"}


def file_of(directory: Path, text: str) -> Path:
    path = directory / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_else_the_defaults_count() -> None:
    found = configure(DATA, {})
    assert found.options == BrokerOptions(data=Path("data"))
    assert (found.logging.log_format, found.logging.log_level) == ("text", "info")
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("given", "environment", "text", "port"),
    [
        ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", 1),
        (None, "127.0.0.1:2", "127.0.0.1:3", 2),
        (None, None, "127.0.0.1:3", 3),
        (None, None, None, 9092),
    ],
)
def test_the_command_line_wins_then_the_environment_then_the_file(
    given: str | None, environment: str | None, text: str | None, port: int, tmp_path: Path
) -> None:
    file = file_of(tmp_path, f'listen = "{text}"\n' if text else "")
    variables = {"STRATALOG_LISTEN": environment} if environment else {}
    found = configure({**DATA, "listen": given}, variables, file)
    assert found.options.listen == f"127.0.0.1:{port}"


def test_the_file_itself_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = file_of(tmp_path, f'data = "{tmp_path}"\nlog_format = "json"\n')
    found = configure({}, {"STRATALOG_CONFIG": str(file)})
    assert found.options.data == tmp_path
    assert found.logging.log_format == "json"


def test_every_option_can_be_given_in_every_place(tmp_path: Path) -> None:
    options = BrokerOptions(data=tmp_path, retention_bytes=1000)
    values = {each.name: getattr(options, each.name) for each in fields(BrokerOptions)}
    variables = {f"STRATALOG_{name.upper()}": _text(value) for name, value in values.items()}
    assert configure({}, variables).options == options
    lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
    assert configure({}, {}, file_of(tmp_path, "\n".join(lines))).options == options
    assert configure(values, {}).options == options
    assert set(values) <= set(names())


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{_text(value)}"'


@pytest.mark.parametrize(
    ("key", "meant"),
    [("listten", "listen"), ("retention-ms", "retention_ms"), ("MEMORY_BYTE", "memory_bytes")],
)
def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_option(
    key: str, meant: str, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match=f"there is no option '{key}'") as refused:
        configure(DATA, {}, file_of(tmp_path, f'"{key}" = "x"\n'))
    assert f"Did you mean {meant}?" in refused.value.hint


def test_an_unknown_key_that_resembles_nothing_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no option 'zookeeper'"):
        configure(DATA, {}, file_of(tmp_path, 'zookeeper = "x"\n'))


def test_a_misspelt_variable_is_reported_and_those_of_others_are_left_alone() -> None:
    others = {"STRATALOG_SERVICE_HOST": "10.0.0.1", "STRATALOG_PORT": "tcp://10.0.0.1:9092"}
    found = configure(DATA, {**others, "STRATALOG_LISTN": "127.0.0.1:1"})
    assert found.warnings == (
        "STRATALOG_LISTN is no option and is ignored. Did you mean STRATALOG_LISTEN?",
    )
    assert found.options.listen == "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("STRATALOG_NODE_ID", "one", "STRATALOG_NODE_ID is a whole number, not 'one'"),
        ("STRATALOG_AUTO_CREATE", "perhaps", "STRATALOG_AUTO_CREATE is true or false"),
        ("STRATALOG_LOG_FORMAT", "xml", "STRATALOG_LOG_FORMAT is one of text, json, not 'xml'"),
        ("STRATALOG_LISTEN", "9092", "'9092' is not an address"),
        ("STRATALOG_NODE_ID", "-1", "node_id is a whole number from 0, not -1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(variable: str, value: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        configure(DATA, {variable: value})


def test_a_value_of_the_wrong_type_in_the_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"broker\.toml: auto_create is true or false, not 7"):
        configure(DATA, {}, file_of(tmp_path, "auto_create = 7\n"))
    with pytest.raises(Invalid, match=r"broker\.toml: node_id is a whole number, not True"):
        configure(DATA, {}, file_of(tmp_path, "node_id = true\n"))
    with pytest.raises(Invalid, match=r"broker\.toml: listen is text, not 9092"):
        configure(DATA, {}, file_of(tmp_path, "listen = 9092\n"))


def test_a_file_that_is_missing_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        configure(DATA, {}, tmp_path / "nothing.toml")
    with pytest.raises(Invalid, match="is no TOML"):
        configure(DATA, {}, file_of(tmp_path, "listen: 1"))
    with pytest.raises(Invalid, match="cannot read"):
        configure(DATA, {}, tmp_path)


def test_none_stands_for_no_value_only_where_there_may_be_none() -> None:
    found = configure({**DATA, "http": "none", "retention_ms": "none"}, {})
    assert found.options.http is None
    assert found.options.retention_ms is None
    with pytest.raises(Invalid, match="STRATALOG_NODE_ID is a whole number, not 'none'"):
        configure(DATA, {"STRATALOG_NODE_ID": "none"})


def test_a_data_directory_must_be_named() -> None:
    with pytest.raises(Invalid, match="no data directory is named") as refused:
        configure({}, {})
    assert "STRATALOG_DATA" in refused.value.hint


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:9092", "[::1]:9092", "127.8.9.1:1"])
def test_a_broker_on_loopback_is_nothing_to_warn_about(listen: str) -> None:
    assert configure({**DATA, "listen": listen}, {}).warnings == ()


@pytest.mark.parametrize("listen", ["10.0.0.7:9092", "broker-1:9092", "[fd00::1]:9092"])
def test_a_broker_that_others_reach_says_that_nobody_is_authenticated(listen: str) -> None:
    (said,) = configure({**DATA, "listen": listen}, {}).warnings
    assert listen in said
    assert "there is no authentication" in said


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092"])
def test_a_broker_that_listens_everywhere_must_say_where_clients_reach_it(listen: str) -> None:
    with pytest.raises(Invalid, match="clients cannot be told to connect") as refused:
        configure({**DATA, "listen": listen}, {})
    assert "--advertise" in refused.value.hint
    found = configure({**DATA, "listen": listen, "advertise": "broker-1:9092"}, {})
    assert found.options.advertise == "broker-1:9092"
    assert len(found.warnings) == 1


def test_metrics_that_others_reach_are_warned_about() -> None:
    (said,) = configure({**DATA, "http": "0.0.0.0:9644"}, {}).warnings
    assert "metrics and health" in said

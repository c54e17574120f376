"""The settings of topics: what is taken, what is refused, how they change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from stratalog.broker.topics import (
    SETTINGS,
    Change,
    InvalidSetting,
    Operation,
    Source,
    TimestampType,
    TopicSettings,
    changed,
    normal_settings,
    replaced,
    shown_settings,
)
from stratalog.broker.topics.settings import LONG_MAX, NOT_SUPPORTED, Kind

NUMBERS = sorted(name for name, each in SETTINGS.items() if each.kind in (Kind.INT, Kind.LONG))
WORDS = sorted(set(SETTINGS) - set(NUMBERS))

KAFKAS = {
    *("cleanup.policy", "compression.gzip.level", "compression.lz4.level"),
    *("compression.type", "compression.zstd.level", "delete.retention.ms"),
    *("file.delete.delay.ms", "flush.messages", "flush.ms"),
    *("follower.replication.throttled.replicas", "index.interval.bytes"),
    *("leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms"),
    *("max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms"),
    *("message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio"),
    *("min.compaction.lag.ms", "min.insync.replicas", "preallocate", "remote.log.copy.disable"),
    *("remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes"),
    *("retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms"),
    *("segment.ms", "unclean.leader.election.enable"),
}
"""Those of Kafka 4.0."""


def refused(name: str, value: str | None) -> InvalidSetting:
    with pytest.raises(InvalidSetting) as error:
        normal_settings({name: value})
    assert name in error.value.message
    return error.value


@st.composite
def good(draw: st.DrawFn) -> tuple[str, str]:
    """A setting with a value that it takes."""
    name = draw(st.sampled_from(sorted(SETTINGS)))
    each = SETTINGS[name]
    if name in NUMBERS:
        return name, str(draw(st.integers(each.at_least, each.at_most)))
    return name, draw(st.sampled_from(each.choices))


some_settings = st.lists(good(), max_size=8).map(dict)


def test_every_setting_of_kafka_is_either_kept_or_refused_with_a_reason() -> None:
    assert set(SETTINGS) | set(NOT_SUPPORTED) >= KAFKAS
    assert not set(SETTINGS) & set(NOT_SUPPORTED)


@pytest.mark.parametrize("name", sorted(NOT_SUPPORTED))
def test_a_setting_of_kafka_that_does_not_exist_here_is_refused_by_name(name: str) -> None:
    error = refused(name, "1")
    assert "not supported" in error.message
    assert error.code is ErrorCode.invalid_config


@pytest.mark.parametrize("name", ["retention", "Retention.ms", "x.y"])
def test_an_unknown_setting_is_refused_by_name(name: str) -> None:
    assert refused(name, "1").code is ErrorCode.invalid_config


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_default_is_a_value_that_the_setting_takes(name: str) -> None:
    each = SETTINGS[name]
    assert each.normal(each.default) == each.default
    assert each.meaning


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["", " ", "x", "1.5", "1e3", "0x10", "٣", "--1", "9" * 30, "1_0"])
def test_what_is_no_number_is_refused(name: str, value: str) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_outside_of_its_range_is_refused(name: str) -> None:
    each = SETTINGS[name]
    refused(name, str(each.at_least - 1))
    refused(name, str(each.at_most + 1))


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("value", ["", "maybe", "Delete", ","])
def test_a_word_that_is_not_known_is_refused(name: str, value: str) -> None:
    refused(name, value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cleanup.policy", "compact", "not there yet"),
        ("cleanup.policy", "compact,delete", "not there yet"),
        ("compression.type", "zstd", "as they came"),
        ("min.insync.replicas", "2", "One node"),
        ("unclean.leader.election.enable", "true", "acknowledged"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused_with_the_reason(
    name: str, value: str, why: str
) -> None:
    assert why in refused(name, value).message


def test_no_value_is_refused() -> None:
    refused("retention.ms", None)


@given(some_settings)
def test_the_normal_form_is_stable(given_settings: dict[str, str]) -> None:
    normal = normal_settings(given_settings)
    assert normal_settings(normal) == normal
    assert list(normal) == sorted(normal)
    TopicSettings.of(normal)


def test_numbers_and_words_lose_what_has_no_meaning() -> None:
    given_settings = {"retention.ms": " +007 ", "unclean.leader.election.enable": "FALSE"}
    assert normal_settings(given_settings) == {
        "retention.ms": "7",
        "unclean.leader.election.enable": "false",
    }


def test_a_topic_without_settings_has_the_brokers_defaults_and_then_kafkas() -> None:
    settings = TopicSettings.of({}, {"retention.ms": "5", "retention.bytes": "-1"})
    assert settings == TopicSettings(
        message_bytes_max=1_048_588,
        retention_bytes=None,
        retention_ms=5,
        timestamp_type=TimestampType.CREATE_TIME,
        timestamp_after_ms_max=3_600_000,
        timestamp_before_ms_max=LONG_MAX,
    )


def test_a_topics_own_setting_goes_before_the_brokers_default() -> None:
    assert TopicSettings.of({"retention.ms": "7"}, {"retention.ms": "5"}).retention_ms == 7
    assert TopicSettings.of({"retention.ms": "-1"}, {"retention.ms": "5"}).retention_ms is None
    assert TopicSettings.of({"retention.ms": "0"}, {"retention.ms": "5"}).retention_ms == 0


# Changes


@given(some_settings, some_settings)
def test_replacing_forgets_what_is_not_named(before: dict[str, str], after: dict[str, str]) -> None:
    assert replaced(after) == normal_settings(after)


@given(some_settings, some_settings)
def test_setting_changes_what_is_named_and_nothing_else(
    before: dict[str, str], sets: dict[str, str]
) -> None:
    before = normal_settings(before)
    changes = [Change(name, Operation.SET, value) for name, value in sets.items()]
    assert changed(before, {}, changes) == normal_settings({**before, **sets})


@given(some_settings, st.sets(st.sampled_from(sorted(SETTINGS))))
def test_deleting_resets_what_is_named_and_nothing_else(
    before: dict[str, str], names: set[str]
) -> None:
    before = normal_settings(before)
    changes = [Change(name, Operation.DELETE) for name in names]
    kept = {name: value for name, value in before.items() if name not in names}
    assert changed(before, {}, changes) == kept


def test_appending_adds_to_a_list_what_it_does_not_have() -> None:
    change = Change("cleanup.policy", Operation.APPEND, "delete")
    assert changed({}, {}, [change]) == {"cleanup.policy": "delete"}
    with pytest.raises(InvalidSetting, match="not there yet"):
        changed({}, {}, [Change("cleanup.policy", Operation.APPEND, "compact")])


def test_a_list_cannot_be_emptied() -> None:
    with pytest.raises(InvalidSetting):
        changed({}, {}, [Change("cleanup.policy", Operation.SUBTRACT, "delete")])
    unchanged = changed({}, {}, [Change("cleanup.policy", Operation.SUBTRACT, "compact")])
    assert unchanged == {"cleanup.policy": "delete"}


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_what_is_no_list_cannot_be_added_to(operation: Operation) -> None:
    with pytest.raises(InvalidSetting, match="not a list") as error:
        changed({}, {}, [Change("retention.ms", operation, "1")])
    assert error.value.code is ErrorCode.invalid_config


@pytest.mark.parametrize(
    "changes",
    [
        [Change("retention.ms", 0, "1"), Change("retention.ms", 1)],
        [Change("retention.ms", 4, "1")],
        [Change("retention.ms", -1, "1")],
        [Change("retention.ms", 0, None)],
    ],
)
def test_a_change_that_makes_no_sense_is_an_invalid_request(changes: list[Change]) -> None:
    with pytest.raises(InvalidSetting) as error:
        changed({}, {}, changes)
    assert error.value.code is ErrorCode.invalid_request


def test_an_unknown_setting_cannot_even_be_reset() -> None:
    with pytest.raises(InvalidSetting, match=r"x\.y"):
        changed({}, {}, [Change("x.y", Operation.DELETE)])


# Showing


@given(some_settings, some_settings)
def test_what_is_shown_is_what_holds(own: dict[str, str], defaults: dict[str, str]) -> None:
    own, defaults = normal_settings(own), normal_settings(defaults)
    rows = {row.name: row for row in shown_settings(own, defaults)}
    assert list(rows) == sorted(SETTINGS)
    for name, row in rows.items():
        assert row.value == own.get(name, defaults.get(name, SETTINGS[name].default))
        assert (row.source is Source.TOPIC) == (name in own)
        assert row.synonyms[0][1:] == (row.value, row.source)
        assert row.synonyms[-1][1:] == (SETTINGS[name].default, Source.DEFAULT)

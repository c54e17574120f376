"""Kafka's rule for the names of topics."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from stratalog.broker.topics import InvalidTopicName, check_topic_name, is_topic_name
from stratalog.broker.topics.names import without_dots
from stratalog.broker.wire import code_of

WRONG = [
    "",
    ".",
    "..",
    "a/b",
    "../x",
    "a\0b",
    "x" * 250,
    "x" * 300,
    "ä",
    "a b",
    "a\n",
    "٣",
    "\ud800",
]
RIGHT = ["a", "...", "..a", "a.b_c-D9", "-", "_", "x" * 249, "__consumer_offsets"]


@pytest.mark.parametrize("name", WRONG, ids=ascii)
def test_a_wrong_name_is_refused_with_kafkas_code(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(InvalidTopicName) as refused:
        check_topic_name(name)
    assert code_of(refused.value) is ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_name_is_taken(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", [*WRONG, "\x1b[31m" * 1000], ids=lambda name: ascii(name[:20]))
def test_a_refusal_shows_a_name_in_printable_characters_and_not_all_of_a_long_one(
    name: str,
) -> None:
    with pytest.raises(InvalidTopicName) as refused:
        check_topic_name(name)
    assert refused.value.message.isprintable()
    assert refused.value.message.isascii()
    assert len(refused.value.message) < 1000


@given(st.text(max_size=260))
def test_only_names_of_kafkas_characters_pass(name: str) -> None:
    right = re.fullmatch(r"[a-zA-Z0-9._\-]{1,249}", name, re.ASCII) and name not in {".", ".."}
    assert is_topic_name(name) == bool(right)


@pytest.mark.parametrize(("one", "other"), [("a.b", "a_b"), ("a.b.c", "a_b.c"), ("..a", "__a")])
def test_names_that_differ_in_dots_and_underscores_only_collide(one: str, other: str) -> None:
    assert without_dots(one) == without_dots(other)

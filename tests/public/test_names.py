"""What could be imported, and how it was called, has not changed."""

from __future__ import annotations

from public import names
from public.stored import check, difference


def test_public_names_and_their_parameters_are_what_they_were() -> None:
    check("names", names.inventory())


def test_a_difference_names_what_was_lost_what_is_another_and_what_is_new() -> None:
    before = {"f": {"called": "(a)"}, "g": {"kind": "class"}, "h": {"called": "(a, b, c)"}}
    now = {"f": {"called": "(a=)"}, "h": {"called": "(a, d, c)"}, "i": {"kind": "class"}}
    assert difference({"module": before, "kept": 1}, {"module": now, "kept": 1}) == [
        "lost: module › g",
        "changed: module › f › called: (a) → (a=)",
        "changed: module › h › called: had b, has d; was (a, b, c)",
        "added: module › i",
    ]

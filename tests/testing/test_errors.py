"""What an error tells, wherever it is shown."""

from __future__ import annotations

import pickle
import traceback

from stratalog.errors import NotFound, Unavailable


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_traceback_ends_with_what_to_do_next() -> None:
    assert shown(NotFound("no log", hint="Create it.")).endswith(": no log\nnext: Create it.\n")
    assert shown(Unavailable("down")).rstrip().endswith(Unavailable.default_hint)


def test_a_copy_and_a_pickled_one_tell_it_once_and_have_notes_of_their_own() -> None:
    error = Unavailable("down", path="a")
    for twin in (error.copy(), pickle.loads(pickle.dumps(error))):
        twin.add_note("mine")
        assert shown(twin).count(Unavailable.default_hint) == 1
        assert "mine" not in shown(error)

"""How programs that tests send signals to are started.

A program that is started while SIGINT is ignored ignores it too: a shell starts jobs in the
background like that, `nohup` does it with SIGHUP, and whoever starts them wants it so. A test that
sends such a signal cannot leave this to how the run was started.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

SENT = (signal.SIGINT, signal.SIGTERM)
"""What tests send and programs may handle."""


@contextmanager
def default_signals() -> Iterator[None]:
    """Programs that are started meanwhile handle signals as any program does by default.

    What is ignored here gets a handler that does nothing: this process goes on ignoring it, but
    ``exec`` gives up handlers, and only "ignored" is inherited. So no code has to run between
    ``fork`` and ``exec``, which is unsafe beside other threads. For the main thread only.
    """
    ignored = [number for number in SENT if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


class Program(subprocess.Popen[bytes]):
    """A process that heeds signals, and that a failing ``with`` block does not wait for.

    ``Popen`` waits for its end there without a bound, so a program that is not told to end because
    an assertion failed would hang the run, and the assertion would never be seen.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        with default_signals():
            super().__init__(*args, **options)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, traceback)

"""Async code for callers without an event loop: one loop in a thread, and iterators over it."""

from stratalog.blocking.background_loop import LoopThread, loop_thread
from stratalog.blocking.pull import Pull

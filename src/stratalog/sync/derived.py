"""How a blocking method comes from an async one, with its exact signature.

Each of these takes a method of an async class and gives the method of its twin. The parameters
are carried over for the type checker and for ``help``, so a twin cannot drift from its original:

    append = blocking(aio.LogWriter.append)       a coroutine: the call waits for its result
    submit = submitting(aio.LogWriter.submit)     a future: a ``concurrent.futures.Future``
    batches = iterating(aio.LogReader.batches)    an async iterator: an iterator
    manifest = passing(aio.LogWriter.manifest)    a property: the same
    holds = calling(aio.Cursor.holds)             a plain method: the same
    open = opening(aio.LogReader.open)            ``open``: gives the twin

    @constructing(aio.CursorStore)                the same constructor
    def __init__(self) -> None: ...
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    overload,
)

from stratalog.blocking import LoopThread, Pull, loop_thread
from stratalog.objectlog import Closeable, Opening, located, unsendable
from stratalog.renamed import RENAMED, renamed_parameters

A = TypeVar("A")
C = TypeVar("C", bound=Closeable)
P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
W = TypeVar("W", bound="OpenedTwin[Any]")


class Twin(Generic[A]):
    """A blocking view of an async object. Safe to use from many threads at once."""

    _aio: A
    _thread: LoopThread

    @classmethod
    def _around(cls, aio: A) -> Self:
        twin = cls.__new__(cls)
        twin._aio = aio
        twin._thread = loop_thread()
        return twin

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise unsendable(self, "Send its URL, and open it where it is used.")


class OpenedTwin(Twin[C]):
    """A twin that is opened and closed: usable directly and with ``with``."""

    _opened_with: dict[str, Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A forked child that leaves the block has nothing to close: its parent still uses it.
        if not self._thread.inherited:
            self._thread.run(self._aio.close)


def blocking(
    method: Callable[Concatenate[A, P], Awaitable[T]],
) -> Callable[Concatenate[Twin[A], P], T]:
    """Wait for the result of a coroutine."""
    return blocking_as(lambda result: result, method)


def blocking_as(
    convert: Callable[[T], U], method: Callable[Concatenate[A, P], Awaitable[T]]
) -> Callable[Concatenate[Twin[A], P], U]:
    """Wait for the result of a coroutine, and turn it into its twin."""

    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> U:
        aio = self._aio
        return convert(self._thread.run(lambda: method(aio, *args, **kwargs)))

    return _described(call, method)


def blocking_function(function: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """The same for a function."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return loop_thread().run(lambda: function(*args, **kwargs))

    return _described(call, function)


def constructing(
    make: Callable[P, A],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Twin[A], P], None]]:
    """Make the async object with the same arguments."""
    signature = inspect.signature(make)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [own, *signature.parameters.values()]

    def decorate(declared: Callable[[Any], None]) -> Callable[Concatenate[Twin[A], P], None]:
        def construct(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
            self._aio = make(*args, **kwargs)
            self._thread = loop_thread()

        functools.update_wrapper(construct, declared)
        cast(Any, construct).__signature__ = signature.replace(parameters=parameters)
        return construct

    return decorate


def submitting(
    method: Callable[Concatenate[A, P], Awaitable[T]],
) -> Callable[Concatenate[Twin[A], P], Future[T]]:
    """Make the call and give a future. What the call itself raises is raised here."""

    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        aio = self._aio
        return self._thread.relay(lambda: method(aio, *args, **kwargs))

    return _described(call, method, Future[_item(method)])  # type: ignore[misc]


def iterating(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]], *, at_once: int = 1
) -> Callable[Concatenate[Twin[A], P], Pull[T]]:
    """Iterate over what an async iterator gives, pulled ``at_once`` at a time."""

    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> Pull[T]:
        self._thread.check()
        return Pull(self._thread, method(self._aio, *args, **kwargs), at_once)

    return _described(call, method, Pull[_item(method)])  # type: ignore[misc]


def calling(
    method: Callable[Concatenate[A, P], T],
) -> Callable[Concatenate[Twin[A], P], T]:
    """The same plain method, called without a hop to the loop's thread."""

    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._aio, *args, **kwargs)

    return _described(call, method)


class passing(Generic[A, T]):  # noqa: N801 - reads as the functions beside it
    """The same property, read without a hop to the loop's thread."""

    def __init__(self, original: Callable[[A], T]) -> None:
        # To a type checker, a property on a class is its getter.
        getter = cast(property, original).fget
        assert getter is not None
        self._getter: Callable[[A], T] = getter
        self.__doc__ = getter.__doc__

    @overload
    def __get__(self, twin: None, owner: type[Twin[A]]) -> Self: ...

    @overload
    def __get__(self, twin: Twin[A], owner: type[Twin[A]]) -> T: ...

    def __get__(self, twin: Twin[A] | None, owner: type[Twin[A]]) -> Self | T:
        return self if twin is None else self._getter(twin._aio)


class opening(Generic[P, C]):  # noqa: N801 - reads as the functions beside it
    """``open`` that waits, and gives the twin."""

    def __init__(self, original: Callable[P, Opening[C]]) -> None:
        self._original = original
        self._signature = inspect.signature(original)

    def __get__(self, twin: W | None, owner: type[W]) -> Callable[P, W]:
        original, signature = self._original, self._signature

        def call(*args: P.args, **kwargs: P.kwargs) -> W:
            aio = loop_thread().run(lambda: original(*args, **kwargs))
            opened = owner._around(aio)
            arguments = signature.bind(*args, **kwargs).arguments
            opened._opened_with = {**arguments, "url": located(arguments["url"])}
            return opened

        return _described(call, original, owner)


def _item(method: Callable[..., object]) -> object:
    """What the awaitable or iterator that a method returns gives."""
    return get_args(get_type_hints(method)["return"])[0]


def _described(
    call: Callable[P, T], original: Callable[..., object], gives: object = None
) -> Callable[P, T]:
    """Let ``help`` and editors show the original's parameters and words, and what this gives.

    Old names of parameters are taken here, where the warning is about the caller.
    """
    signature = inspect.signature(original)
    if gives is not None:
        signature = signature.replace(return_annotation=gives)
    functools.update_wrapper(call, original)
    new_names: dict[str, str] | None = getattr(original, RENAMED, None)
    if new_names is not None:
        call = renamed_parameters(**new_names)(call)
    described = cast(Any, call)
    described.__signature__ = signature
    described.__module__ = "stratalog.sync"
    del described.__wrapped__
    return call

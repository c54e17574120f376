"""Old names of what was renamed: they go on working, and warn.

Functions keep a note of their old names in ``RENAMED``, so that tools can list them.
"""

import functools
import inspect
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

RENAMED = "__stratalog_renamed__"
"""The attribute of a function that maps old names to new ones."""


def renamed_parameters(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take its keyword arguments by their old names too: ``old="new"``."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        def translate(kwargs: dict[str, object]) -> None:
            for old, new in new_names.items():
                if old in kwargs:
                    _warn(f"the parameter {old!r} of {function.__qualname__}", new)
                    if new in kwargs:
                        raise TypeError(f"{old!r} is the old name of {new!r}: give only one")
                    kwargs[new] = kwargs.pop(old)

        return _noted(function, translate, new_names)

    return decorate


def renamed_function(old: str, function: Callable[P, R]) -> Callable[P, R]:
    """A function or method under the name that it had before."""
    new = function.__name__
    return _noted(function, lambda _: _warn(old, new), {old: new})


def _noted(
    function: Callable[P, R],
    before: Callable[[dict[str, object]], None],
    new_names: Mapping[str, str],
) -> Callable[P, R]:
    """The function, with something to be done before each call of it."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        before(kwargs)
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> object:
        before(kwargs)
        return await cast(Awaitable[object], function(*args, **kwargs))

    chosen = awaited if inspect.iscoroutinefunction(function) else called
    setattr(chosen, RENAMED, new_names)
    return cast(Callable[P, R], chosen)


def renamed_modules(new_names: Mapping[str, str]) -> None:
    """Let modules be imported by their old names too: from dotted name to dotted name."""
    sys.meta_path.append(_RenamedModules(new_names))


class _RenamedModules(MetaPathFinder, Loader):
    """Asked last, so that it only ever answers for modules that are not there any more."""

    def __init__(self, new_names: Mapping[str, str]) -> None:
        self._new_names = new_names

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self._new_names else None

    def exec_module(self, module: ModuleType) -> None:
        new = self._new_names[module.__name__]
        _warn(f"the module {module.__name__}", new, stacklevel=3)
        home = import_module(new)
        vars(module)["__getattr__"] = lambda name: getattr(home, name)


def _warn(old: str, new: str, stacklevel: int = 4) -> None:
    warnings.warn(f"{old} is called {new!r} now", DeprecationWarning, stacklevel=stacklevel)

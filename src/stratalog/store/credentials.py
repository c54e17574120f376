"""No URL with a secret comes in: what is opened may be stored, shown and sent to other machines.

A seal names its successor by URL, a fork its source, a copy what it copied, and so do reports and
tasks of Spark. Whoever may read these may not be meant to have the password. So a user, a password
or a key in a URL is refused where it is given, also inside its ``endpoint``, and is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote

from stratalog.errors import Invalid
from stratalog.store.redaction import is_secret_name

ENVIRONMENT_HINT = (
    "Put them into the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY), or pass them as options."
)
AZURE_HINT = (
    "Write az://CONTAINER/PATH, and name the account in AZURE_STORAGE_ACCOUNT_NAME, or as the "
    "option account_name."
)

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?]*)\??(.*)", re.DOTALL)
_NOT_A_SERVER = re.compile(r"@|(?<![:/])/.*:", re.DOTALL)
"""An ``@``, or a colon in the path: a user and a password, or a key and its secret."""

_AZURE = ("az", "azure")
_PLAIN_NAMES = ("file", "memory")
"""Schemes of which a name may have a question mark."""


def check_without_secret(url: str) -> None:
    """Refuse a URL that carries a user, a password or a key."""
    found = _URL.fullmatch(url)
    if found is None:
        return
    scheme, authority, _, query = found.groups()
    _check_authority(scheme.lower(), unquote(authority))
    if scheme.lower() not in _PLAIN_NAMES:
        options = parse_qsl(query, keep_blank_values=True)
        check_options_without_secret(options)
        for name, value in options:
            if is_secret_name(name):
                raise secret_refused(f", such as {name}")
            if "@" in unquote(value) or (is_endpoint(name) and "?" in value):
                raise secret_refused()


def check_options_without_secret(options: Iterable[tuple[str, str]]) -> None:
    """Refuse an endpoint that carries a user, a password or a key."""
    for name, value in options:
        if is_endpoint(name) and _NOT_A_SERVER.search(unquote(value)):
            raise secret_refused()


def _check_authority(scheme: str, authority: str) -> None:
    """What stands before the path: no user and no password. A name in memory is any text."""
    if "@" not in authority or (scheme == "memory" and ":" not in authority):
        return
    if scheme in _AZURE and ":" not in authority:
        raise Invalid("a URL of Azure names a container and no account", hint=AZURE_HINT)
    raise secret_refused()


def is_endpoint(name: str) -> bool:
    """Whether this option, or this variable of the environment, says where a server is."""
    return "endpoint" in name.lower() or "base_url" in name.lower()


def secret_refused(which: str = "") -> Invalid:
    """Why such a URL is not taken, without repeating it."""
    return Invalid(f"a store's URL must not carry credentials{which}", hint=ENVIRONMENT_HINT)

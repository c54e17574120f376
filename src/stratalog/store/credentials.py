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

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?]*)\??(.*)", re.DOTALL)
_PLAIN_NAMES = ("file", "memory")
"""Schemes of which a name may have a question mark."""


def check_without_secret(url: str) -> None:
    """Refuse a URL that carries a user, a password or a key."""
    found = _URL.fullmatch(url)
    if found is None:
        return
    scheme, authority, _, query = found.groups()
    if "@" in unquote(authority):
        raise secret_refused()
    if scheme.lower() not in _PLAIN_NAMES:
        options = parse_qsl(query, keep_blank_values=True)
        check_options_without_secret(options)
        for name, value in options:
            if is_secret_name(name):
                raise secret_refused(f", such as {name}")
            if is_endpoint(name) and "?" in value:
                raise secret_refused()


def check_options_without_secret(options: Iterable[tuple[str, str]]) -> None:
    """Refuse an endpoint that carries a user, a password or a key."""
    for name, value in options:
        if is_endpoint(name) and "@" in unquote(value):
            raise secret_refused()


def is_endpoint(name: str) -> bool:
    """Whether this option, or this variable of the environment, says where a server is."""
    return "endpoint" in name.lower() or "base_url" in name.lower()


def secret_refused(which: str = "") -> Invalid:
    """Why such a URL is not taken, without repeating it."""
    return Invalid(f"a store's URL must not carry credentials{which}", hint=ENVIRONMENT_HINT)

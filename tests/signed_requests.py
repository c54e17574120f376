"""Requests to an S3 server that no store makes: a bucket of its own, and its settings."""

from __future__ import annotations

import hashlib
import hmac
import urllib.request
from datetime import UTC, datetime
from urllib.parse import urlsplit

from s3_server import S3Server

VERSIONED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


def versioned_bucket(server: S3Server, name: str) -> str:
    """A new bucket that keeps versions; gives its URL."""
    put(server, f"/{name}", "", b"")
    put(server, f"/{name}", "versioning=", VERSIONED)
    return f"s3://{name}"


def put(server: S3Server, path: str, query: str, body: bytes) -> None:
    """One request, signed as AWS prescribes (version 4)."""
    host = urlsplit(server.endpoint).netloc
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    day, scope = time[:8], f"{time[:8]}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": time}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"PUT\n{path}\n{query}\n{lines}\n{names}\n{digest}"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    key = b"AWS4" + server.secret_access_key.encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}"
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={server.access_key_id}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    url = f"{server.endpoint}{path}" + (f"?{query}" if query else "")
    sent = urllib.request.Request(url, data=body, headers=headers, method="PUT")
    with urllib.request.urlopen(sent, timeout=30) as answer:
        assert answer.status == 200

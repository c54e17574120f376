"""Keep secrets out of messages: what a client library says passes here before a person sees it."""

import re

HIDDEN = "***"

_SECRET_NAME = (
    r"(?:aws_?|azure_?|google_?)?(?:x-amz-)?(?:access_?key(?:_?id)?|account_?key|secret\w*|"
    r"(?:session_?|security_?|bearer_?|sas_?|auth_?)?token|password|passwd|signature(?:provided)?|"
    r"sig|sas|credential|authorization|private_?key\w*|storage_?key|master_?key)"
)

_RULES = (
    # user:password@ in a URL
    (re.compile(r"(?<=://)[^/\s@\"']+@"), f"{HIDDEN}@"),
    # the query of a URL: signatures of pre-signed URLs and shared access signatures live there
    (
        re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?\"'<>]*\?)[^\s\"'<>)]*", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    # <AWSAccessKeyId>…</AWSAccessKeyId> and the like in a server's answer
    (
        re.compile(
            r"<(AWSAccessKeyId|StringToSign\w*|SignatureProvided|CanonicalRequest\w*|"
            r"AuthenticationErrorDetail|Token-0)>.*?</\1>",
            re.IGNORECASE | re.DOTALL,
        ),
        rf"<\1>{HIDDEN}</\1>",
    ),
    # name=value, name: value, "name": "value"
    (
        re.compile(
            rf"\b({_SECRET_NAME}[\"']?\s*[:=]\s*[\"']?)(?:Bearer\s+)?[^\s\"',&;<>]+", re.IGNORECASE
        ),
        rf"\1{HIDDEN}",
    ),
    # an access key of AWS by its shape
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}\b"), HIDDEN),
)


_WHOLE_NAME = re.compile(_SECRET_NAME, re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether an option of this name holds a secret."""
    return _WHOLE_NAME.fullmatch(name.replace("-", "_")) is not None or name[:6].lower() == "x-amz-"


def redact(text: str) -> str:
    """The same text without passwords, keys, tokens and signatures. Made for URLs and errors."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text

"""Taking records out of a log for good, and the certificate that says so."""

from stratalog.objectlog.erasure.certificate import (
    Certificate,
    decode_certificate,
    list_certificates,
    load_certificate,
)
from stratalog.objectlog.erasure.check_certificate import (
    CertificateCheck,
    CertificateReport,
    verify_certificate,
)
from stratalog.objectlog.erasure.erase_records import (
    Erasable,
    Eraser,
    erase,
    finish_erasures,
    preview_erasure,
)
from stratalog.objectlog.erasure.find_holders import Holder

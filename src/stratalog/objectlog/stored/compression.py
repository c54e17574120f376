"""Whether bodies are worth compressing: asked of a sample, since asking all of them is the work.

Bodies that were compressed or encrypted before they came only cost time, when they are written and
each time they are read. A fragment says in its own metadata how it was stored, so each is decided
for itself.

    less than SMALL_BYTES       nothing to gain
    less than SAMPLED_BYTES     compressed: a sample would be much of it
    small bodies                compressed: their lengths alone, 4 bytes each, gain enough
    otherwise                   compressed if a sample gets smaller by one part in GAIN at least
"""

from typing import Literal

import pyarrow as pa

from stratalog.objectlog.stored.record_sums import body_bounds

Compression = Literal["zstd", "snappy", "none"]

SMALL_BYTES = 512
SAMPLED_BYTES = 256 * 1024
SAMPLE_PARTS = 4
PART_BYTES = 8 * 1024
GAIN = 32
LENGTH_BYTES = 4


def compression_for(bodies: pa.Array, wanted: Compression) -> Compression:
    """How to store a column of binary for which ``wanted`` was asked."""
    if wanted == "none" or bodies.nbytes < SMALL_BYTES:
        return "none"
    bounds = body_bounds(bodies)
    low, high = int(bounds[0]), int(bounds[-1])
    if high - low < max(SAMPLED_BYTES, GAIN * LENGTH_BYTES * len(bodies)):
        return wanted
    sample = _sample(memoryview(bodies.buffers()[2])[low:high])
    compressed = pa.compress(sample, codec=wanted, asbytes=True)
    return wanted if len(compressed) <= len(sample) - len(sample) // GAIN else "none"


def _sample(data: memoryview) -> bytes:
    """A few stretches, the first at the beginning and the others at equal distances."""
    step = len(data) // SAMPLE_PARTS
    starts = range(0, step * SAMPLE_PARTS, step)
    return b"".join(data[start : start + PART_BYTES] for start in starts)

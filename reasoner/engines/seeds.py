"""The random stream of one call of `generate`.

vLLM's CPU build can't seed a request (with prefix caching its sampler refuses), and seeded requests cost a
GPU its batched sampler. So every call reseeds the engine's one stream from the settings' seed and from what
is asked. The same call on the same engine settings draws the same stream; a call for other samples (a
resumed run, indices 4 to 7 after 0 to 3) draws another one. With a fixed engine seed alone those would
repeat the first samples word for word. A request's own `seed` and `index` count through this hash only: the
sample that one request gets also depends on the requests beside it.
"""

import hashlib
from collections.abc import Sequence

from reasoner.records import GenerationRequest

SEED_LIMIT = 2**31 - 1


def generation_seed(seed: int, requests: Sequence[GenerationRequest]) -> int:
    """A 31-bit seed from the engine's seed and every request's prompt, adapter, seed and index, in order."""
    digest = hashlib.sha256(str(seed).encode())
    for r in requests:
        digest.update(f"\0{r.problem_id}\0{r.adapter}\0{r.seed}\0{r.index}\0".encode())
        digest.update(r.prompt.encode())
    return int.from_bytes(digest.digest()[:8], "big") % SEED_LIMIT

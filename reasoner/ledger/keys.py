"""The ledger's keys of many requests, fast.

The same keys as `GenerationRequest.key`: what the samples of one prompt have in common is encoded and
hashed once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from reasoner.errors import UsageError
from reasoner.ids import canonical_json
from reasoner.records import GenerationRequest

if TYPE_CHECKING:
    from hashlib import _Hash

Fingerprint = str | Mapping[str, str]
KEY_LENGTH = 32


def request_keys(requests: Sequence[GenerationRequest], fingerprint: Fingerprint) -> list[str]:
    """A key a request, in order. `fingerprint` is the model's, or a mapping from adapter name to fingerprint.

    Raises UsageError if there are several adapters and one fingerprint, or an adapter without one.
    """
    adapters = sorted({request.adapter for request in requests})
    if isinstance(fingerprint, str):
        if len(adapters) > 1:
            raise UsageError(f"requests for several adapters ({', '.join(adapters)}) need a fingerprint each")
        fingerprint = dict.fromkeys(adapters, fingerprint)
    missing = [repr(name) for name in adapters if name not in fingerprint]
    if missing:
        raise UsageError(f"no fingerprint for the adapter {', '.join(missing)}")
    # By identity, not equality: 1 and 1.0 are equal here but not in JSON.
    distinct = {id(request.sampling): request.sampling for request in requests}
    texts = {name: canonical_json(sampling.to_row()) for name, sampling in distinct.items()}
    return [_key(request, fingerprint[request.adapter], texts[id(request.sampling)]) for request in requests]


def _key(request: GenerationRequest, fingerprint: str, sampling: str) -> str:
    digest = _common(request.problem_id, request.prompt, fingerprint, sampling).copy()
    special = "true" if request.add_special_tokens else "false"
    digest.update(f",{request.seed},{request.index},{special}]".encode())
    return digest.hexdigest()[:KEY_LENGTH]


@lru_cache(maxsize=1024)
def _common(problem_id: str, prompt: str, fingerprint: str, sampling: str) -> "_Hash":
    text = canonical_json([problem_id, prompt, fingerprint])[:-1]
    return hashlib.sha256(f"{text},{sampling}".encode())

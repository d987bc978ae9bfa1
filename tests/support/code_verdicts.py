"""The verdicts on many programs at once, for tests of whole data sets."""

from collections.abc import Sequence
from typing import Any

from reasoner.verifiers.code import CodeItem, CodeVerdict, PromptItem, stream_verdicts


def verify_codes(items: Sequence[CodeItem | PromptItem], **how: Any) -> list[CodeVerdict]:
    """What `stream_verdicts` says of them, in their order."""
    verdicts = dict(stream_verdicts(items, **how))
    return [verdicts[index] for index in range(len(items))]

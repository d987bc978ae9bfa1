"""A text encoder (RoBERTa, DistilRoBERTa, MiniLM) as the body of a value network or a critic.

A folder, a Hub id, or `package:NAME/FOLDER` for an encoder that a Python package ships. The first token's last hidden
state stands for the text, as in the originals.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.errors import ModelError
from reasoner.training.runtime import first_line

PACKAGE = "package:"
SAFE: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True}


def encoder_folder(name: str) -> str:
    """What transformers can load: a folder, or a Hub id as it is. Raises ModelError for a missing folder."""
    if name.startswith(PACKAGE):
        package, _, inner = name.removeprefix(PACKAGE).partition("/")
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        roots = list(spec.submodule_search_locations or []) if spec else []
        if not roots:
            raise ModelError(f"{name}: there is no Python package {package!r}; install it, or name a folder")
        folder = Path(roots[0]) / inner
        if not (folder / "config.json").is_file():
            raise ModelError(f"{name}: {package} has no encoder in {inner or '.'}")
        return str(folder)
    if name.startswith((".", "/", "~")) and not Path(name).expanduser().is_dir():
        raise ModelError(f"encoder {name}: there is no such folder")
    return str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name


class Encoder:
    """An encoder with its tokenizer, float32, trainable."""

    def __init__(self, name: str, device: Any, max_length: int, keep: str = "tail") -> None:
        """`keep` says which end of a text that is too long is read. Raises ModelError."""
        from transformers import AutoModel, AutoTokenizer

        source = encoder_folder(name)
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            try:  # a pooler is not used, and where a checkpoint has none it would be random
                self.model: Any = AutoModel.from_pretrained(source, add_pooling_layer=False, **SAFE)
            except TypeError:  # an architecture that has none
                self.model = AutoModel.from_pretrained(source, **SAFE)
        except (OSError, ValueError) as error:
            raise ModelError(f"encoder {name}: can't be loaded ({first_line(error)})") from error
        self.model.float().to(device).eval()
        self._tokenizer.truncation_side = "left" if keep == "tail" else "right"
        limit = int(self.model.config.max_position_embeddings) - 2
        self._device, self._limit = device, min(max_length, limit)
        self.hidden_size = int(self.model.config.hidden_size)

    def cut(self, text: str, budget: int, keep: str) -> str:
        """At most `budget` tokens of a text: its `head`, or its head and tail (`ends`)."""
        ids = self._tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        if len(ids) <= budget:
            return text
        if keep == "head":
            return str(self._tokenizer.decode(ids[:budget]))
        half = budget // 2
        return f"{self._tokenizer.decode(ids[:half])} … {self._tokenizer.decode(ids[-half:])}"

    def __call__(self, texts: Sequence[str]) -> Any:
        """[B, H] in float32, with a gradient where grad mode is on."""
        tokens = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._limit, return_tensors="pt"
        ).to(self._device)
        return self.model(**tokens).last_hidden_state[:, 0]

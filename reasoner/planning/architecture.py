"""The shape of a decoder: how many weights, how many bytes of cache a token, from a config.json.

Counted as Llama, Qwen2, Mistral and Gemma have it (grouped queries, gated MLP); weights on disk are counted exactly.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.smart import ModelConfig
from reasoner.config.training import LoraConfig
from reasoner.errors import ModelError
from reasoner.records import Record

BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "nf4": 0.56}
"""Bytes a weight; NF4 with double quantisation is 4.13 bits, embeddings and head stay in bfloat16."""


@dataclass(frozen=True, slots=True)
class Architecture(Record):
    """One decoder. All sizes are counts of numbers, not bytes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Architecture":
        """Of a config.json. ModelError where it is not a decoder's."""
        config = {**config, **(config.get("text_config") or {})}
        try:
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            return cls(
                int(config["num_hidden_layers"]), hidden, heads, int(config.get("num_key_value_heads") or heads),
                int(config.get("head_dim") or hidden // heads), int(config["intermediate_size"]),
                int(config["vocab_size"]), bool(config.get("tie_word_embeddings", False)),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"config.json does not describe a decoder that can be planned for ({error})"
            ) from None

    @property
    def matrix_weights(self) -> int:
        """Weights that a token is multiplied with: every layer's matrices and the head, not the embedding."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.mlp) + self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All weights."""
        return self.matrix_weights + (0 if self.tied else self.hidden * self.vocabulary)

    @property
    def cache_numbers(self) -> int:
        """Keys and values a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def lora_weights(self, lora: LoraConfig) -> int:
        """Weights of an adapter of this rank on these layers."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = {
            "q_proj": self.hidden + query, "k_proj": self.hidden + key, "v_proj": self.hidden + key,
            "o_proj": self.hidden + query, "gate_proj": self.hidden + self.mlp, "up_proj": self.hidden + self.mlp,
            "down_proj": self.hidden + self.mlp,
        }  # fmt: skip
        return self.layers * lora.r * sum(sides.get(name, 2 * self.hidden) for name in lora.modules)


KNOWN = {
    "smollm2-135m": Architecture(30, 576, 9, 3, 64, 1536, 49152, True),
    "qwen2.5-0.5b": Architecture(24, 896, 14, 2, 64, 4864, 151936, True),
    "qwen2.5-1.5b": Architecture(28, 1536, 12, 2, 128, 8960, 151936, True),
    "qwen2.5-coder-1.5b": Architecture(28, 1536, 12, 2, 128, 8960, 151936, True),
    "qwen2-7b": Architecture(28, 3584, 28, 4, 128, 18944, 152064, False),
    "mistral-7b": Architecture(32, 4096, 32, 8, 128, 14336, 32768, False),
    "meta-llama-3-8b": Architecture(32, 4096, 32, 8, 128, 14336, 128256, False),
    "llama-3.1-8b": Architecture(32, 4096, 32, 8, 128, 14336, 128256, False),
    "llama-3.2-3b": Architecture(28, 3072, 24, 8, 128, 8192, 128256, True),
    "llama-3.2-1b": Architecture(16, 2048, 32, 8, 64, 8192, 128256, True),
    "gemma-7b": Architecture(28, 3072, 16, 16, 256, 24576, 256000, True),
}
"""Models that configurations name, so that they can be planned for before anything is downloaded."""


def folder_of(model: ModelConfig, home: Path) -> Path | None:
    """The folder of a model that is on this machine already: given, converted before, or in the Hub's cache."""
    given = Path(model.path).expanduser()
    if given.is_dir():
        return given
    if model.path.lower().endswith(".gguf"):
        made = sorted((home / "models").glob(f"{Path(model.path).stem}-*/config.json"))
        return made[0].parent.resolve() if made else None
    return _cached_snapshot(model)


def _cached_snapshot(model: ModelConfig) -> Path | None:
    """Where the Hub's cache has the model; nothing is downloaded."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(model.path, "config.json", revision=model.revision)
    except ValueError:  # not a name of the Hub
        return None
    return Path(found).parent if isinstance(found, str) else None


def architecture_of(model: ModelConfig, home: Path) -> Architecture:
    """The shape of the configured model, without downloading it.

    Raises ModelError where it is neither on this machine nor known by its name.
    """
    folder = folder_of(model, home)
    if folder is not None and (folder / "config.json").is_file():
        try:
            return Architecture.from_config(json.loads((folder / "config.json").read_text()))
        except ValueError as error:
            raise ModelError(f"model.path={model.path}: config.json is not readable ({error})") from None
    name = Path(model.path).name.lower()
    known = max((key for key in KNOWN if key in name), key=len, default=None)
    if known is None:
        raise ModelError(
            f"model.path={model.path}: not on this machine and not one whose size is known; fetch it first "
            "(hf download …) or give its folder"
        )
    return KNOWN[known]

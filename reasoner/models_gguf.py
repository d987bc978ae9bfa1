"""Turns one GGUF file into a bfloat16 safetensors folder with its tokenizer; runs as a child of
`reasoner.models`.

python -m reasoner.models_gguf MODEL.gguf FOLDER

Quantized weights are dequantized first: transformers loads a GGUF file quantized, and such a model can't be
saved. The special tokens are set from the ids in the file's header, which transformers does not carry over:
without them SmolLM2 would end its answers with `<|endoftext|>`, a token that it never writes.
"""

import os
import sys
from pathlib import Path
from typing import Any

SPECIAL = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def convert(gguf: Path, folder: Path) -> None:
    """Write the model and its tokenizer into `folder`, on disk when this returns."""
    ids = special_token_ids(
        gguf
    )  # before the slow imports, so that a file that is no GGUF file fails at once

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    source: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    for name, number in ids.items():
        setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(number))
    # True in what transformers makes of the header, and wrong for a BPE tokenizer: it would eat spaces.
    tokenizer.clean_up_tokenization_spaces = False
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    for config in (model.config, model.generation_config):
        for name in ("bos_token", "eos_token", "pad_token"):
            if name in ids:
                setattr(config, f"{name}_id", ids[name])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        _to_disk(file)
    _to_disk(folder)
    print(f"{gguf.stem}: {model.num_parameters():,} parameters, end token {tokenizer.eos_token!r}")


def special_token_ids(gguf: Path) -> dict[str, int]:
    """The special tokens of the header; the end token also pads where no pad token is named."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf).fields
    ids = {name: int(fields[key].contents()) for name, key in SPECIAL.items() if key in fields}
    if "eos_token" in ids:
        ids.setdefault("pad_token", ids["eos_token"])
    return ids


def _to_disk(path: Path) -> None:
    """fsync, so that the rename which publishes the folder never shows files that a power cut emptied."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))

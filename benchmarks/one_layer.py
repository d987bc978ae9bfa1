"""A random model of one narrow layer with another model's tokenizer and vocabulary: what is left is the work around it.

python benchmarks/one_layer.py MODEL_FOLDER NEW_FOLDER
"""

import shutil
import sys
from pathlib import Path

HIDDEN = 64
TOKENIZER = (
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
)


def make(folder: Path, out: Path) -> Path:
    """Write the model to `out`; returns it."""
    import torch
    from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

    known = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    config = LlamaConfig(
        vocab_size=known.vocab_size, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, tie_word_embeddings=True,
        max_position_embeddings=known.max_position_embeddings, bos_token_id=known.bos_token_id,
        eos_token_id=known.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(out)
    for pattern in TOKENIZER:
        for path in folder.glob(pattern):
            shutil.copy(path, out)
    return out


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))

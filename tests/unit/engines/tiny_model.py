"""A tiny random Llama with its own tokenizer, made on the spot, and adapters for it.

head_dim is 32, since vLLM's CPU attention does not know 16. In float32 the same weights give the same greedy
tokens in both engines, apart from ties.
"""

from pathlib import Path
from typing import Any

VOCABULARY = 256 + 3
SPECIAL = ["<s>", "</s>", "<pad>"]


def make_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges: a token a byte, `<s>` put in front of a prompt."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(SPECIAL + letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)


def make_tiny_model(folder: Path, *, scale: float = 0.3) -> Path:
    """Save model and tokenizer. A larger `scale` of the weights makes a more decided (less uniform) model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=scale,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    make_tokenizer(folder)
    return folder


def make_adapter(base: Path, folder: Path, *, seed: int, rank: int = 4) -> Path:
    """A LoRA adapter with random weights, strong enough to change every completion."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        loader: Any = AutoModelForCausalLM
        model = loader.from_pretrained(str(base), dtype=torch.float32)
        config = LoraConfig(r=rank, lora_alpha=4 * rank, target_modules=["q_proj", "v_proj", "down_proj"])
        model = get_peft_model(model, config)
        for name, weight in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(str(folder))
    return folder

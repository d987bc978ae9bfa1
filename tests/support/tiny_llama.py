"""A tiny random Llama made on the spot, with one of two tokenizers, and adapters for it.

head_dim is 32, since vLLM's CPU attention does not know 16. In float32 the same weights give the same greedy
tokens in both engines, apart from ties.
"""

from pathlib import Path
from typing import Any

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "Problem: Ann has 3 pens and buys 4 more. How many pens has she?",
    "Chain of Thought: 3 and 4 make 7. The answer is 7.",
    "Program of Thought: answer = 3 * 4 + 2",
    "Strategies already tried without success: none",
    "system user assistant\n",
]


def make_tokenizer(add_bos: bool = False) -> Any:
    """Byte-level BPE of about 400 tokens with a chat template; `add_bos` puts the start token before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(CORPUS, trainer)
    if add_bos:
        raw.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=START, eos_token=END, unk_token="<|endoftext|>", pad_token=END
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_byte_tokenizer() -> Any:
    """A byte-level tokenizer without merges and chat template: a token a byte, `<s>` put in front of a prompt."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", "<pad>", *letters])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def make_model(folder: Path, layers: int = 2, seed: int = 7, **overrides: Any) -> Path:
    """Save a random bfloat16 Llama with tied embeddings and the chat tokenizer in `folder`."""
    made = {"intermediate_size": 96, "initializer_range": 0.1, "tie_word_embeddings": True, **overrides}
    return _save(folder, make_tokenizer(), "bfloat16", seed, num_hidden_layers=layers, **made)


def make_byte_model(folder: Path, *, scale: float = 0.3) -> Path:
    """Save a random float32 Llama with the byte tokenizer. A larger `scale` makes a more decided (less uniform) one."""
    made = {"intermediate_size": 128, "initializer_range": scale, "tie_word_embeddings": False}
    return _save(folder, make_byte_tokenizer(), "float32", 0, num_hidden_layers=2, **made)


def _save(folder: Path, tokenizer: Any, dtype: str, seed: int, **settings: Any) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
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

"""A tiny float32 Llama, an adapter on it that is trained, and the engine that samples."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.transformers_engine import TransformersEngine
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.training import runtime
from tests.support.tiny_llama import make_byte_model


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, so that a sum has one order; no network. As before for the tests of other rooms."""
    import torch

    threads, environment = torch.get_num_threads(), dict(os.environ)
    runtime.prepare_process(1)
    yield
    torch.set_num_threads(threads)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("onpolicy") / "base")


@pytest.fixture
def policy(base: Path) -> Any:
    """The base with a fresh LoRA adapter: equal to the base until `move` changes it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM"
    )
    return get_peft_model(model, lora)


def move(policy: Any, seed: int, scale: float = 0.5) -> None:
    """A large step: random B matrices, exact in bfloat16."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for name, weight in policy.named_parameters():
        if "lora_" in name:
            if "lora_B" in name:
                weight.data = torch.randn(weight.shape, generator=generator) * scale
            weight.data = weight.data.bfloat16().float()


def settings(base: Path) -> EngineSettings:
    return EngineSettings("transformers", base, "float32", adapters=True, options={"max_model_len": 128})


@pytest.fixture
def sampler(base: Path) -> Iterator[OnPolicySampler]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    with OnPolicySampler(lambda: TransformersEngine(settings(base)), tokenizer, 128) as made:
        yield made


def make_policy(base: Path, *, seed: int = 0, names: tuple[str, ...] = ("default",), std: float = 0.0) -> Any:
    """A PEFT model of the base with fresh adapters; with `std` their B matrices are random, not zero."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = get_peft_model(loader.from_pretrained(str(base), dtype=torch.float32), config, names[0])
        for name in names[1:]:
            model.add_adapter(name, config)
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.requires_grad_(True)
                if std and "lora_B" in name:
                    torch.nn.init.normal_(weight, std=std)
    return model


@pytest.fixture
def fresh(base: Path) -> Callable[..., Any]:
    """Makes policies, see `make_policy`."""
    return lambda **more: make_policy(base, **more)

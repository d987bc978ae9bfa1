"""A tiny base and policies on it. One thread, so that a sum has one order."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.sampler import Sampler
from reasoner.training import runtime
from tests.unit.engines.tiny_model import make_tiny_model


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    threads, environment = torch.get_num_threads(), dict(os.environ)
    runtime.prepare_process(1)
    yield
    torch.set_num_threads(threads)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama in float32 with a byte tokenizer. Read only."""
    return make_tiny_model(tmp_path_factory.mktemp("onpolicy") / "tiny")


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
def policy(tiny: Path) -> Callable[..., Any]:
    return lambda **more: make_policy(tiny, **more)


@pytest.fixture
def sampler(tiny: Path, tmp_path: Path) -> Iterator[Sampler]:
    """On transformers, in this process."""
    settings = EngineSettings("transformers", tiny, "float32", 3, options={"max_model_len": 256})
    with open_sampler(settings, log=tmp_path / "engine.log", in_process=True) as opened:
        yield opened

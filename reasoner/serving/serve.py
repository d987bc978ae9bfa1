"""Starts vLLM's OpenAI server with a base and one adapter, after checking that the two belong together.

`python -m vllm.entrypoints.openai.api_server`, since `vllm serve` of the CPU build does not find its own
metadata. The process becomes the server: signals and its exit status are the server's own.
"""

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from reasoner.engines.vllm_settings import RANKS, is_cpu_build, set_environment
from reasoner.errors import EngineError, UsageError
from reasoner.hardware import served_dtype
from reasoner.home import Home
from reasoner.prompts import ChatRenderer
from reasoner.serving.own_base import base_of

MODULE = "vllm.entrypoints.openai.api_server"
FORBIDDEN = ("--trust-remote-code", "--trust_remote_code")
PLAIN_LAYOUT = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:\n{{ m['content'] | trim }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""What a tokenizer without a chat template is given: the layout in which it was trained (prompts/chat.py)."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is to be served: `adapter` is (name, folder)."""

    adapter: tuple[str, Path]
    model: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    more: tuple[str, ...] = ()
    """Further arguments of vLLM's server, as they are."""


def parse_adapter(text: str) -> tuple[str, Path]:
    """`NAME=FOLDER`. Raises UsageError."""
    name, mark, folder = text.partition("=")
    if not (name and mark and folder):
        raise UsageError(f"--lora-modules {text!r}: write NAME=FOLDER, such as recursive_reasoner=./adapter")
    return name, Path(folder)


def server_command(served: Served, home: Home) -> list[str]:
    """The command that starts the server. Raises ModelError for an adapter of another base."""
    for word in served.more:
        if word.split("=")[0] in FORBIDDEN:
            raise UsageError(f"{word} is not passed on: code from a model repository is never run here")
    if importlib.util.find_spec("vllm") is None:
        raise EngineError("vllm is not installed; install locks/cpu.lock or locks/cuda.lock")
    name, folder = served.adapter
    base = base_of(folder, served.model, home)
    rank = int(json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["r"])
    cpu = is_cpu_build()
    command = [
        sys.executable, "-m", MODULE, "--model", str(base.folder), "--served-model-name", base.name,
        "--enable-lora", "--lora-modules", f"{name}={folder.resolve()}",
        "--max-lora-rank", str(next((r for r in RANKS if r >= rank), rank)),
        "--host", served.host, "--port", str(served.port), "--load-format", "safetensors",
        "--dtype", served_dtype("auto", cpu),
    ]  # fmt: skip
    if cpu:
        command += ["--enforce-eager", "--block-size", "32"]
    if not ChatRenderer(base.folder).has_chat_template:
        command += ["--chat-template", PLAIN_LAYOUT]
    return [*command, *served.more]


def serve(served: Served, home: Home) -> None:
    """Become the server; does not return. Raises as `server_command`."""
    command = server_command(served, home)
    set_environment(is_cpu_build())
    print(
        f"serving {served.adapter[0]} on http://{served.host}:{served.port}/v1", file=sys.stderr, flush=True
    )
    os.execv(command[0], command)

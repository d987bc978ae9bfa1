"""vLLM's OpenAI server as a child of this process: started, waited for, ended with us.

For a sampler whose engine other programs share. The key is drawn at random and passes through the environment.
"""

import dataclasses
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.vllm_settings import CPU_ENVIRONMENT, CUDA_ENVIRONMENT, is_cpu_build, vllm_arguments
from reasoner.errors import EngineError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.opening import NO_LIMIT, base_tokenizer, policy_settings
from reasoner.onpolicy.parts import Parts
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.served import ServedEngine, ServedSettings
from reasoner.process.child import Child, start_child

SERVED_NAME = "base"
START_SECONDS = 600.0


class ServerEngine(ServedEngine):
    """A ServedEngine that owns its server."""

    def __init__(self, settings: EngineSettings, log: Path) -> None:
        """Start the server and wait for it. Raises EngineError, with its last lines, when it ends first."""
        port, key, cpu = free_port(), secrets.token_urlsafe(24), is_cpu_build()
        self._child: Child = start_child(
            server_command(settings, port, cpu), log=log, env=server_environment(settings, cpu, key)
        )
        variable = f"REASONER_SERVER_{port}_KEY"
        os.environ[variable] = key
        try:
            super().__init__(
                ServedSettings(
                    base_url=f"http://127.0.0.1:{port}",
                    model=SERVED_NAME,
                    model_path=settings.model_path,
                    key_variable=variable,
                    max_lora_rank=settings.max_lora_rank,
                    wait_seconds=START_SECONDS,
                    seeded=not cpu,
                    apart=cpu,
                )
            )
        except BaseException:
            self._child.__exit__(None, None, None)
            raise
        finally:
            del os.environ[variable]
        self._sleeps = bool(settings.options.get("enable_sleep_mode")) and not cpu

    @property
    def pid(self) -> int | None:
        return self._child.pid

    @property
    def usable(self) -> bool:
        """Whether the server lives and says so. Raises EngineError when it died before it was ready."""
        if self._child.poll() is not None:
            if not hasattr(self, "_sleeps"):
                raise EngineError(str(self._child.failure()))
            return False
        return super().usable

    def sleep(self) -> None:
        """As ServedEngine.sleep; the CPU build has no card to free."""
        if self._sleeps:
            super().sleep()

    def wake(self) -> None:
        """As ServedEngine.wake."""
        if self._sleeps:
            super().wake()

    def close(self) -> None:
        """End the server."""
        super().close()
        self._child.__exit__(None, None, None)


def server_command(settings: EngineSettings, port: int, cpu: bool) -> list[str]:
    """The command line: the same arguments as the in-process engine's."""
    # `vllm serve` of the CPU build can't find its own metadata; the module works in both builds.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--served-model-name", SERVED_NAME, "--disable-uvicorn-access-log"]
    for name, value in vllm_arguments(settings, cpu, _known()).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            if name != "trust_remote_code":  # off unless named
                command.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            command += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return command


def server_environment(settings: EngineSettings, cpu: bool, key: str) -> dict[str, str]:
    """What the server's process needs beyond the allowed part of ours."""
    # The server's engine is a process of its own on either build.
    build = {k: v for k, v in CPU_ENVIRONMENT.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    chosen = build if cpu else CUDA_ENVIRONMENT
    return {
        **{name: os.environ.get(name, value) for name, value in chosen.items()},
        **({"VLLM_SERVER_DEV_MODE": "1"} if settings.options.get("enable_sleep_mode") else {}),
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_API_KEY": key,
        "HF_HUB_OFFLINE": "1",
    }


def free_port() -> int:
    """A TCP port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_server_sampler(
    settings: EngineSettings,
    *,
    log: Path,
    policies: int = 1,
    share_card: bool = False,
    parts: Parts | None = None,
    folder: AdapterFolder | None = None,
    say: Callable[[str], None] = print,
) -> OnPolicySampler:
    """A sampler on a server that it starts, restarts after a death, and ends. Arguments as `open_sampler`."""
    wanted = policy_settings(settings, policies, share_card)
    return OnPolicySampler(
        lambda: ServerEngine(wanted, log),
        base_tokenizer(settings.model_path),
        NO_LIMIT,
        folder=folder,
        parts=parts,
        share_card=share_card,
        log=say,
    )


def _known() -> set[str]:
    """The argument names of the installed vLLM."""
    from vllm import EngineArgs

    fields: Any = dataclasses.fields(EngineArgs)
    return {field.name for field in fields}

"""vLLM's OpenAI server as another machine would run it: a process with a home and a copy of the model of its own.

It shares one folder with this machine, for adapters, and a key.
"""

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from reasoner.config.training import ServerConfig
from reasoner.engines.vllm_settings import CPU_ENVIRONMENT, is_cpu_build
from reasoner.onpolicy.server import free_port

KEY = "a-key-of-that-machine"
UNFINISHED = ".tmp"
"""How the names begin under which safetensors writes a file before it gets its own."""


@dataclass
class OtherMachine:
    """A machine in `room` that serves `base`. A context manager; `stop` and `start` as often as one likes."""

    room: Path
    base: Path
    port: int = field(default_factory=free_port)
    seen: set[str] = field(default_factory=set)
    """The names of all finished files that were ever seen in the shared folder."""
    _child: subprocess.Popen[bytes] | None = None
    _end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.shared = self.room / "shared"
        self.shared.mkdir(parents=True)
        self.model = self.room / "machine-b" / "model"
        shutil.copytree(self.base, self.model)

    @property
    def config(self) -> ServerConfig:
        return ServerConfig(url=f"http://127.0.0.1:{self.port}", adapters=str(self.shared))

    @property
    def log(self) -> str:
        return (self.room / "machine-b" / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """As docs/beyond-one-machine.md says; a processor wants smaller blocks and no compilation."""
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model),
            "--served-model-name", "base", "--enable-lora", "--max-lora-rank", "8", "--max-loras", "2",
            "--logprobs-mode", "processed_logprobs", "--host", "127.0.0.1", "--port", str(self.port),
            "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "16",
        ]  # fmt: skip
        if is_cpu_build():
            command += ["--enforce-eager", "--block-size", "32"]
        home = self.room / "machine-b"
        env = {
            **{name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ},
            **{k: v for k, v in CPU_ENVIRONMENT.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"},
            "HOME": str(home), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_API_KEY": KEY,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        }  # fmt: skip
        with (home / "server.log").open("ab") as out:
            self._child = subprocess.Popen(
                command, stdout=out, stderr=out, cwd=home, env=env, start_new_session=True
            )

    def stop(self) -> None:
        """The machine is switched off."""
        if self._child is not None:
            with_group = os.getpgid(self._child.pid)
            os.killpg(with_group, 9)
            self._child.wait()
            self._child = None

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            files = {path.name for path in self.shared.rglob("*") if path.is_file()}
            self.seen |= {name for name in files if not name.startswith(UNFINISHED)}

    def __enter__(self) -> Self:
        self.start()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self.stop()

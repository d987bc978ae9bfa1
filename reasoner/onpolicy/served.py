"""A vLLM server behind the engine's interface: adapters are loaded at run time over HTTP.

The server runs with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1` and `--logprobs-mode processed_logprobs`, and sees the
folder where adapters lie (the same machine, or a shared file system). Prompts go as token ids, so that the server
tokenises nothing. Departs from the in-process engine: a server can't be reseeded, so a repeated call draws other
samples, unless `seeded` gives each request a seed (CUDA only: the CPU build fails on seeded requests).
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.engines.adapters import check_adapter, forget, require_loaded
from reasoner.engines.prompts import encode_prompts
from reasoner.engines.vllm_engine import FINISHES
from reasoner.errors import EngineError, ModelError
from reasoner.ids import derived_seed
from reasoner.records import Completion, GenerationRequest

POLL_SECONDS = 0.2
NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0}
"""Said in every request, since a server fills in what a request leaves open from the model's generation_config.json."""
HEALTH_SECONDS = 5.0
"""How long a server may take to say that it lives."""


@dataclass(frozen=True, slots=True)
class ServedSettings:
    """Which server, and how to talk to it."""

    base_url: str
    """The server's root, such as `http://127.0.0.1:8000`, without `/v1`."""
    model: str
    """The name under which the server serves the base."""
    model_path: Path
    """The base's folder here, for its tokenizer."""
    key_variable: str = "VLLM_API_KEY"
    """The environment variable that holds the server's key, if it wants one."""
    max_model_len: int = 1 << 20
    max_lora_rank: int = 16
    parallel: int = 128
    """Requests under way at once; the server queues what it can't run."""
    timeout: float = 1800.0
    """Seconds for one answer."""
    wait_seconds: float = 300.0
    """How long to wait for a server that does not answer (yet)."""
    seeded: bool | None = None
    """Whether each request gets a seed. None: where base and adapters need not be kept apart (see `apart`)."""
    apart: bool | None = None
    """Whether base requests must not run beside adapter requests (vLLM's CPU build). None: unless the server says that
    its device is another one, which it does in vLLM's development mode only."""


class ServedEngine:
    """The PolicyEngine protocol over HTTP. Use it from one thread; requests run in parallel inside."""

    def __init__(self, settings: ServedSettings) -> None:
        """Wait for the server. Raises EngineError when it stays silent or does not serve the model."""
        import httpx
        from transformers import AutoTokenizer

        self.settings = settings
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            str(settings.model_path), trust_remote_code=False
        )
        key = os.environ.get(settings.key_variable, "")
        self._http = httpx.Client(
            base_url=settings.base_url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.timeout, connect=10.0),
            limits=httpx.Limits(max_connections=settings.parallel),
            trust_env=False,
        )
        self._adapters: dict[str, str] = {}
        self._loads = itertools.count(1)
        self._wait()
        self._require_model()
        self._apart = self._may_be_cpu_build() if settings.apart is None else settings.apart
        self._seeded = not self._apart if settings.seeded is None else settings.seeded

    @property
    def usable(self) -> bool:
        """Whether the server says that it is healthy and still has our adapters (one that restarted has not)."""
        import httpx

        try:
            if self._http.get("/health", timeout=HEALTH_SECONDS).status_code != 200:
                return False
            return not self._adapters or set(self._adapters.values()) <= set(self._served())
        except (httpx.HTTPError, RuntimeError, EngineError):
            return False

    def load_adapter(self, name: str, path: Path) -> None:
        """Have the server read the adapter, under a name of its own each time: its prefix cache goes by the name."""
        folder = check_adapter(name, path, self.settings.max_lora_rank, enabled=True)
        served = f"{name}@{os.getpid()}.{next(self._loads)}"
        try:
            self._post("/v1/load_lora_adapter", {"lora_name": served, "lora_path": str(folder.path)})
        except EngineError as error:
            if not self.usable:
                raise
            raise ModelError(
                f"adapter {name!r} in {folder.path} can't be served (does the server see that folder?): {error}"
            ) from error
        previous, self._adapters[name] = self._adapters.get(name), served
        if previous is not None:
            self._post("/v1/unload_lora_adapter", {"lora_name": previous})

    def unload_adapter(self, name: str) -> None:
        """Have the server forget the adapter."""
        self._post("/v1/unload_lora_adapter", {"lora_name": forget(self._adapters, name)})

    def sleep(self) -> None:
        """vLLM's sleep level 1; the server needs `--enable-sleep-mode` and `VLLM_SERVER_DEV_MODE=1`."""
        self._post("/sleep?level=1", None)

    def wake(self) -> None:
        """Bring the server's weights and cache back."""
        self._post("/wake_up", None)

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """As Engine.generate. Closing the iterator early drops what has not been sent."""
        wanted = list(requests)
        for request in wanted:
            require_loaded(request, self._adapters)
        prompts = encode_prompts(self._tokenizer, wanted, self.settings.max_model_len)
        groups = [
            [i for i, r in enumerate(wanted) if bool(r.adapter) is with_one] for with_one in (False, True)
        ]
        for group in groups if self._apart else [list(range(len(wanted)))]:
            pool = ThreadPoolExecutor(min(self.settings.parallel, max(len(group), 1)))
            try:
                answers = {
                    pool.submit(self._complete, wanted[i], prompts[i].tolist(), logprobs): i for i in group
                }
                for answer in as_completed(answers):
                    yield answers[answer], answer.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Have the server forget our adapters, if it can be asked, and close the connections; it goes on."""
        import httpx

        for served in self._adapters.values():
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                body = {"lora_name": served}
                self._http.post("/v1/unload_lora_adapter", json=body, timeout=HEALTH_SECONDS)
        self._adapters.clear()
        self._http.close()

    def _complete(self, request: GenerationRequest, prompt: list[int], logprobs: bool) -> Completion:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._adapters[request.adapter] if request.adapter else self.settings.model,
            "prompt": prompt,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            **NEUTRAL,
            "stop": list(sampling.stop),
            "logprobs": 0 if logprobs else None,
            "return_token_ids": logprobs,
        }
        if self._seeded:
            body["seed"] = derived_seed(request.problem_id, request.seed, request.index, request.prompt)
        answer = self._post("/v1/completions", body)
        try:
            return _completion(answer, logprobs)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"the server's answer can't be read ({error!r}); is it vLLM 0.24 to 0.31?"
            ) from error

    def _post(self, path: str, body: dict[str, Any] | None) -> Any:
        import httpx

        try:
            answer = self._http.post(path, json=body)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: closed by us
            raise EngineError(f"{self.settings.base_url}{path} did not answer: {error!r}") from error
        if answer.status_code != 200:
            hint = " (start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)" if answer.status_code == 404 else ""
            raise EngineError(
                f"{self.settings.base_url}{path} said {answer.status_code}: {answer.text[:300]}{hint}"
            )
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def _wait(self) -> None:
        end = time.monotonic() + self.settings.wait_seconds
        while not self.usable:
            if time.monotonic() > end:
                raise EngineError(
                    f"no server at {self.settings.base_url} within {self.settings.wait_seconds:g} s"
                )
            time.sleep(POLL_SECONDS)

    def _require_model(self) -> None:
        served = self._served()
        if self.settings.model not in served:
            raise EngineError(
                f"{self.settings.base_url} does not serve {self.settings.model!r}; it has {', '.join(served)}"
            )

    def _served(self) -> list[str]:
        return [card["id"] for card in self._get("/v1/models")["data"]]

    def _may_be_cpu_build(self) -> bool:
        """Yes where the server does not tell: apart is right on every build, and the version of a CPU build need not
        name it (0.31.0 does not)."""
        try:
            told = str(self._get("/server_info").get("vllm_config", ""))
        except EngineError:
            return True
        return "device_config=" not in told or "device_config=cpu" in told

    def _get(self, path: str) -> Any:
        import httpx

        try:
            answer = self._http.get(path)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise EngineError(f"{self.settings.base_url}{path} did not answer: {error!r}") from error


def _completion(answer: dict[str, Any], logprobs: bool) -> Completion:
    (choice,) = answer["choices"]
    values: tuple[float, ...] = ()
    ids: tuple[int, ...] = ()
    if logprobs:
        ids = tuple(map(int, choice["token_ids"]))
        given = choice["logprobs"]["token_logprobs"]
        values = tuple(float("nan") if value is None else float(value) for value in given)
    return Completion(
        text=choice["text"],
        finish=FINISHES.get(choice["finish_reason"], "error"),
        prompt_tokens=answer["usage"]["prompt_tokens"],
        completion_tokens=answer["usage"]["completion_tokens"],
        token_ids=ids,
        logprobs=values,
    )

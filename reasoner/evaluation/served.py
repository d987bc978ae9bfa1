"""A model behind an OpenAI-compatible server as an engine: `generate` only, several requests at once.

The key of a server that wants one comes from the environment (OPENAI_API_KEY). Busy and failing servers are asked
again; what was answered before is in the ledger.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from reasoner.errors import EngineError, UsageError
from reasoner.ids import derived_seed
from reasoner.records import Completion, GenerationRequest

TIMEOUT, AT_ONCE, TRIES, PAUSE = 600.0, 32, 4, 1.0
BUSY = (408, 429, 500, 502, 503, 504)
KEY = "OPENAI_API_KEY"


class ServedEngine:
    """Asks `base_url` for completions of `model`; with `chat` a request's prompt is JSON of messages."""

    def __init__(self, base_url: str, model: str | None, *, chat: bool, pause: float = PAUSE) -> None:
        """Asks the server what it has. EngineError where none answers, UsageError where it has no such model."""
        import httpx

        key = os.environ.get(KEY)
        self.base_url, self.chat, self._pause = base_url.rstrip("/"), chat, pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(timeout=TIMEOUT, headers=headers)
        try:
            self.model = self._model(model)
        except BaseException:
            self._client.close()
            raise

    def load_adapter(self, name: str, path: Path) -> None:
        """A server's adapters are its own: name one as the model."""
        raise UsageError(
            f"adapter {name!r}: a server's adapters are loaded by whoever starts it; name one as the model"
        )

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """See `Engine.generate`; log-probabilities are not asked for."""
        if logprobs:
            raise UsageError("log-probabilities are not asked of a server")
        failure: BaseException | None = None
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = {pool.submit(self._one, request): i for i, request in enumerate(requests)}
            try:
                for future in as_completed(futures):
                    if future.cancelled():
                        continue
                    if (error := future.exception()) is None:
                        yield futures[future], future.result()
                    elif failure is None:
                        failure = error
                        _cancel(futures)  # nothing more is asked; what is under way is waited for and kept
            finally:
                _cancel(futures)
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._client.close()

    def _model(self, wanted: str | None) -> str:
        names = [str(item["id"]) for item in self._ask("GET", "models").get("data", [])]
        if wanted is None and len(names) == 1:
            return names[0]
        if wanted in names:
            return str(wanted)
        what = f"no model {wanted!r}" if wanted else f"{len(names)} models"
        raise UsageError(
            f"{self.base_url} serves {what}: it has {', '.join(names) or 'none'}; give --served-model"
        )

    def _one(self, request: GenerationRequest) -> Completion:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }  # fmt: skip
        if sampling.stop:
            body["stop"] = list(sampling.stop)[:4]  # the protocol's limit
        if sampling.temperature:
            body["seed"] = derived_seed(request.seed, request.index, request.prompt)
        if self.chat:
            body["messages"] = json.loads(request.prompt)
        else:
            body["prompt"] = request.prompt
        answer = self._ask("POST", "chat/completions" if self.chat else "completions", body)
        try:
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            text = (choice["message"]["content"] if self.chat else choice["text"]) or ""
            tokens = int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0))
            return Completion(text, "length" if choice["finish_reason"] == "length" else "stop", *tokens)
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(f"{self.base_url} gave no completion but {str(answer)[:200]}") from error

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One answer; a busy or unreachable server is asked again after a pause."""
        import httpx

        told = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self._pause * 2 ** (attempt - 1))
            try:
                response = self._client.request(method, f"{self.base_url}/{path}", json=body)
            except httpx.HTTPError as error:
                told = f"no server answers at {self.base_url} ({type(error).__name__})"
                continue
            if response.status_code == 200:
                return self._json(response.text, path)
            told = f"{self.base_url}/{path}: status {response.status_code}: {response.text[:200]}"
            if response.status_code in (401, 403):
                raise EngineError(f"{told}. Set {KEY} in the environment")
            if response.status_code not in BUSY:
                break
        raise EngineError(f"{told}. What was answered is kept; the same command asks for the rest")

    def _json(self, text: str, path: str) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise EngineError(f"{self.base_url}/{path} does not answer in JSON: {text[:100]}") from error


def _cancel(futures: Iterable[Future[Completion]]) -> None:
    for future in futures:
        future.cancel()

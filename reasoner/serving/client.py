"""A client of an OpenAI-compatible server: which models it has, and completions of chats.

The server renders the messages with the model's own chat template, as training did; templates that print today's date
are given the fixed one of training (prompts/chat.py).
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from reasoner.errors import EngineError, UsageError
from reasoner.onpolicy.served import NEUTRAL
from reasoner.prompts.chat import TEMPLATE_DATE
from reasoner.prompts.policy import Message
from reasoner.records import Completion, GenerationRequest

TIMEOUT = 600.0
"""Seconds that one answer may take."""
AT_ONCE = 32


class Server:
    """A connection. `base` and `adapter` are the names under which the server knows the two."""

    def __init__(self, base_url: str, adapter: str, model: str | None = None) -> None:
        """Asks the server what it has. Raises EngineError where none answers and UsageError where a name is
        missing."""
        import httpx

        self.base_url = base_url.rstrip("/")
        self._client = httpx.Client(timeout=TIMEOUT)
        try:
            self.base, self.adapter = self._names(adapter, model)
        except BaseException:
            self._client.close()
            raise

    def complete(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """All requests at once, in their order; a request's prompt is JSON of messages (`render_messages`)."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._one, requests))

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _names(self, adapter: str, model: str | None) -> tuple[str, str]:
        known = self._ask("GET", "models").get("data", [])
        names = [str(item["id"]) for item in known]
        bases = [str(item["id"]) for item in known if not item.get("parent")]
        found = model or next(iter(bases), None)
        for what, name, hint in (
            ("model", found, "give --model"),
            ("adapter", adapter, "start the server with `reasoner serve`, or give --lora-adapter"),
        ):
            if name not in names:
                raise UsageError(
                    f"{self.base_url} serves no {what} {name!r}; it has {', '.join(names) or 'none'}: {hint}"
                )
        return str(found), adapter

    def _one(self, request: GenerationRequest) -> Completion:
        sampling = request.sampling
        body = {
            "model": self.adapter if request.adapter else self.base,
            "messages": json.loads(request.prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            **NEUTRAL,
            "chat_template_kwargs": {"date_string": TEMPLATE_DATE.strftime("%d %b %Y")},
        }
        answer = self._ask("POST", "chat/completions", body)
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            text, finish = choice["message"]["content"] or "", str(choice["finish_reason"])
            return Completion(text, finish, int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(f"{self.base_url} gave no chat completion but {str(answer)[:200]}") from error

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        import httpx

        try:
            response = self._client.request(method, f"{self.base_url}/{path}", json=body)
        except httpx.HTTPError as error:
            raise EngineError(
                f"no server answers at {self.base_url} ({type(error).__name__}); start one with `reasoner serve`"
            ) from error
        if response.status_code != 200:
            raise EngineError(f"{self.base_url}/{path}: status {response.status_code}: {response.text[:200]}")
        try:
            found = response.json()
        except ValueError as error:
            raise EngineError(
                f"{self.base_url}/{path} does not answer in JSON: {response.text[:100]}"
            ) from error
        return dict(found)


def render_messages(messages: Sequence[Message]) -> tuple[str, bool]:
    """Messages as the prompt of a request to a server, which renders them itself."""
    return json.dumps([dict(message) for message in messages]), False

"""An engine without a model: a Python function answers. For tests and for trying a pipeline out.

`options["script"]` is `module:function`; the function gets the GenerationRequest and returns the text, or a
whole Completion. Tokens are words. A text is cut at the first stop string and after `max_tokens` words, as
a model's would be. `options["delay"]` waits that many seconds before each answer.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from reasoner.engines.adapters import forget, require_loaded
from reasoner.engines.options import check_options
from reasoner.engines.protocol import EngineSettings
from reasoner.errors import ConfigurationError, EngineError, ModelError, UsageError
from reasoner.records import Completion, GenerationRequest

Script = Callable[[GenerationRequest], "str | Completion"]


def load_script(name: object) -> Script:
    """The function behind `module:function`; raises ConfigurationError when there is none."""
    if not isinstance(name, str) or name.count(":") != 1:
        raise ConfigurationError(f"engine.options.script must be 'module:function', not {name!r}")
    module, function = name.split(":")
    try:
        script = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"engine.options.script {name!r} can't be loaded: {error}") from error
    if not callable(script):
        raise ConfigurationError(f"engine.options.script {name!r} is not a function")
    return script


class ScriptedEngine:
    """Answers with a script, in the order of the requests."""

    def __init__(self, settings: EngineSettings) -> None:
        options = check_options("scripted", settings.options, {"script", "delay"})
        self.settings = settings
        self._script = load_script(options.get("script"))
        self._delay = float(options.get("delay", 0.0))
        self._adapters: dict[str, Path] = {}

    def load_adapter(self, name: str, path: Path) -> None:
        """Remember the name; the script sees it in `request.adapter`."""
        if not self.settings.adapters:
            raise UsageError(f"adapter {name!r}: this engine was started without adapters; set adapters=True")
        if not Path(path).is_dir():
            raise ModelError(f"adapter {name!r}: no folder {path}")
        self._adapters[name] = Path(path)

    def unload_adapter(self, name: str) -> None:
        """Forget the name."""
        forget(self._adapters, name)

    def sleep(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """Always awake."""

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """Yield the script's answers. With `logprobs` the script must return Completions that hold them."""
        for i, request in enumerate(requests):
            require_loaded(request, self._adapters)
            if self._delay:
                time.sleep(self._delay)
            try:
                answer = self._script(request)
            except Exception as error:
                raise EngineError(f"problem {request.problem_id}: the script raised {error!r}") from error
            completion = answer if isinstance(answer, Completion) else _as_completion(request, answer)
            if logprobs and not _has_logprobs(completion):
                raise EngineError(
                    f"problem {request.problem_id}: log-probabilities were asked for, so the script must "
                    "return a Completion with one token id and one log-probability a token"
                )
            if request.sampling.choices and completion.text not in request.sampling.choices:
                raise EngineError(
                    f"problem {request.problem_id}: the script answered {completion.text[:40]!r}, which is "
                    f"none of {', '.join(map(repr, request.sampling.choices))}"
                )
            yield i, completion

    def close(self) -> None:
        """Nothing to give back."""


def _has_logprobs(completion: Completion) -> bool:
    return len(completion.token_ids) == len(completion.logprobs) == completion.completion_tokens


def _as_completion(request: GenerationRequest, text: str) -> Completion:
    sampling = request.sampling
    ends = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
    text = text[: min(ends)] if ends else text
    words = text.split()
    finish = "stop"
    if len(words) > sampling.max_tokens:
        words, finish = words[: sampling.max_tokens], "length"
        text = " ".join(words)
    return Completion(text, finish, len(request.prompt.split()), len(words))

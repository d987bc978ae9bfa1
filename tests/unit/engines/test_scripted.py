"""The scripted engine: wrong if it answers differently twice, counts tokens or cuts other than documented."""

from pathlib import Path

import pytest

from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.scripted import ScriptedEngine
from reasoner.engines.start import build_engine, open_engine
from reasoner.errors import ConfigurationError, EngineError, ModelError, UsageError
from reasoner.records import Completion, GenerationRequest, Sampling

SCRIPTS = "tests.unit.engines.scripts"


def scripted(function: str = "echo", *, adapters: bool = False, **options: object) -> EngineSettings:
    script = {"script": f"{SCRIPTS}:{function}", **options}
    return EngineSettings("scripted", Path("."), adapters=adapters, options=script)


def request(prompt: str = "one two", *, problem: str = "p", **more: object) -> GenerationRequest:
    return GenerationRequest(problem, prompt, more.pop("sampling", Sampling()), **more)  # type: ignore[arg-type]


def test_answers_every_request_and_counts_words() -> None:
    engine = open_engine(scripted(), log=Path("unused"))
    assert isinstance(engine, Engine)
    requests = [request(f"question {i}", index=i) for i in range(5)]
    answers = dict(engine.generate(requests))
    assert answers == dict(engine.generate(requests))
    assert sorted(answers) == [0, 1, 2, 3, 4]
    assert answers[3] == Completion("question 3 #3 @", "stop", 2, 4)


def test_cuts_at_stop_strings_and_max_tokens() -> None:
    engine = build_engine(scripted())
    cut = Sampling(stop=("#", "two"))
    assert dict(engine.generate([request(sampling=cut)]))[0].text == "one "
    short = Sampling(max_tokens=2)
    assert dict(engine.generate([request(sampling=short)]))[0] == Completion("one two", "length", 2, 2)


def test_adapters_must_be_enabled_known_and_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="adapters=True"):
        build_engine(scripted()).load_adapter("policy", tmp_path)
    engine = build_engine(scripted(adapters=True))
    with pytest.raises(ModelError, match="no folder"):
        engine.load_adapter("policy", tmp_path / "missing")
    with pytest.raises(EngineError, match="'policy' is not loaded"):
        list(engine.generate([request(adapter="policy")]))
    engine.load_adapter("policy", tmp_path)
    assert dict(engine.generate([request(adapter="policy")]))[0].text.endswith("@policy")


def test_logprobs_come_from_the_script_or_not_at_all() -> None:
    assert dict(build_engine(scripted("with_logprobs")).generate([request()], logprobs=True))[0].logprobs == (
        -0.5,
        -1.25,
    )
    with pytest.raises(EngineError, match="must return a Completion"):
        list(build_engine(scripted()).generate([request()], logprobs=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"skript": "a:b"}, "nearest is 'script'"),
        ({"script": "a"}, "module:function"),
        ({"script": "no.such.module:f"}, "can't be loaded"),
        ({"script": f"{SCRIPTS}:missing"}, "can't be loaded"),
        ({"script": f"{SCRIPTS}:os"}, "not a function"),
    ],
)
def test_bad_options_are_configuration_errors(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ScriptedEngine(EngineSettings("scripted", Path("."), options=options))


def test_unknown_kind() -> None:
    with pytest.raises(ConfigurationError, match="vllm, transformers, scripted"):
        open_engine(EngineSettings("vlm", Path(".")), log=Path("unused"))


def test_a_script_that_raises_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match=r"p3.*no answer"):
        list(build_engine(scripted("fails_on_p3")).generate([request(problem="p3")]))


def test_a_script_that_answers_none_of_the_choices_is_an_error() -> None:
    engine = build_engine(scripted())
    fits, misses = (request(sampling=Sampling(choices=(text, "BYE"))) for text in ("one two #0 @", "HELLO"))
    assert [c.text for _, c in engine.generate([fits])] == ["one two #0 @"]
    with pytest.raises(EngineError, match="none of 'HELLO', 'BYE'"):
        list(engine.generate([misses]))

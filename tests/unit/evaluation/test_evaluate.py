"""Evaluating a model. Wrong if a figure is not that of the answers, if the same command makes a completion twice, if a
server's failure loses what it answered, or if a bad request is told in more than a line."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.evaluate import EvaluateConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import ConfigurationError, EngineError, UsageError
from reasoner.evaluation.comparison import compare
from reasoner.evaluation.evaluate import FACTS, ROWS, evaluate
from reasoner.evaluation.measure import ks, measure
from reasoner.evaluation.request import read_request
from reasoner.evaluation.sources import find
from reasoner.home import Home
from reasoner.records import GenerationRequest, Outcome, Verdict
from reasoner.statistics import pass_at_k
from reasoner.workbench import Workbench


def answer(request: GenerationRequest) -> str:
    """Right on sums with an even first number; of several samples the first is always right."""
    question = request.prompt.rsplit("What is", 1)[-1]
    a, b = (int(word) for word in question.split("?")[0].split(" and "))
    right = a % 2 == 0 or (request.sampling.temperature > 0 and request.index == 0)
    return f" The answer is {a + b if right else a + b + 1}."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "sums.jsonl"
    rows = [{"body": "Add.", "ask": f"What is {i} and 5?", "sum": i + 5} for i in range(10)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "script.txt").write_text("scripted")
    return folder


COLUMNS = ["data.columns.question=[body,ask]", "data.columns.answer=sum"]


def request(model: str, data: Path, *words: str, **given: Any) -> EvaluateConfig:
    script = "engine.options.script=tests.unit.evaluation.test_evaluate:answer"
    engine = [] if model.startswith("http") else [script]
    return read_request(model, str(data), "scripted", given, [*COLUMNS, *engine, *words])


def run(tmp_path: Path, config: EvaluateConfig, out: str) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path / out
    folder.mkdir()
    with EnginePool(tmp_path / "logs") as engines:
        bench = Workbench(Home(tmp_path / "home"), engines, tmp_path, tmp_path, lambda *_: None)
        made = evaluate(folder, bench, config)
    return json.loads((folder / FACTS).read_text()), made


def test_greedy_then_again_then_more_samples(tmp_path: Path, data: Path, model: Path) -> None:
    facts, made = run(tmp_path, request(str(model), data), "first")
    assert facts["n"] == 10 and facts["pass_at"]["1"]["value"] == 0.5 and made["owed"] == 10
    assert 0.2 < facts["pass_at"]["1"]["low"] < 0.5 < facts["pass_at"]["1"]["high"] < 0.8
    again, remade = run(tmp_path, request(str(model), data), "second")
    assert again == facts and remade["owed"] == 0 and remade["found"] == 10
    assert (tmp_path / "first" / ROWS).read_bytes() == (tmp_path / "second" / ROWS).read_bytes()

    sampled = {"decoding.temperature": 0.7}
    two, _ = run(tmp_path, request(str(model), data, samples=2, **sampled), "two")
    four, more = run(tmp_path, request(str(model), data, samples=4, **sampled), "four")
    assert more["found"] == 20 and more["owed"] == 20, "the samples that were there are not drawn again"
    assert set(four["pass_at"]) == {"1", "2", "4"} and set(two["pass_at"]) == {"1", "2"}
    assert four["pass_at"]["4"]["value"] == 1.0
    assert four["pass_at"]["2"]["value"] == pytest.approx((5 + 5 * pass_at_k(4, 1, 2)) / 10)
    assert four["majority"]["k"] == 5, "three wrong samples outvote a right one"

    home = Home(tmp_path / "home")
    found = compare(find(str(tmp_path / "first"), home), find(str(tmp_path / "four"), home))
    assert found.sets[0].dataset == "sums" and len(found.sets[0].gained) == 5 and not found.sets[0].lost


def test_bad_requests_are_told_with_the_word_that_was_meant(data: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give --data: a file, a Hub id, or one of .*gsm8k_test"):
        read_request(str(model), "", "scripted", {}, [])
    with pytest.raises(UsageError, match="Did you mean 'gsm8k_test'"):
        read_request(str(model), "gsm8k_tst", "scripted", {}, [])
    with pytest.raises(ConfigurationError, match=r"no key 'decoding.temprature'.*decoding.temperature"):
        request(str(model), data, "decoding.temprature=1")
    with pytest.raises(ConfigurationError, match="greedy responses are all the same"):
        request(str(model), data, samples=4)
    with pytest.raises(UsageError, match="not of the form key=value"):
        request(str(model), data, "samples")


def test_measures() -> None:
    def verdicts(*marks: str) -> list[Verdict]:
        outcomes = {"+": Outcome.CORRECT, "-": Outcome.INCORRECT, "?": Outcome.UNSCORED}
        return [Verdict(outcomes[m[0]], "x", m[1:] or None) for m in marks]

    found = measure({"a": verdicts("+3", "-4"), "b": verdicts("-1", "-"), "c": verdicts("?", "+1")})
    assert (found.n, found.unscored, found.no_answer) == (2, 1, 1)
    assert found.pass_at["1"].value == 0.25 and found.pass_at["2"].value == 0.5
    assert found.majority is not None and (found.majority.k, found.majority.n) == (1, 2)
    assert ks(1) == [1] and ks(6) == [1, 2, 4, 6]
    assert measure({}).pass_at == {}


class Handler(http.server.BaseHTTPRequestHandler):
    """Speaks the protocol; fails as often as `server.failures` says, for good after `server.dies_after` answers."""

    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.path, body, self.headers.get("Authorization")))
            busy, self.server.failures = self.server.failures > 0, self.server.failures - 1
            dead = self.server.dies_after is not None and self.server.answered >= self.server.dies_after
            self.server.answered += not (busy or dead)
        if busy or dead:
            return self._send(503 if busy else 400, {"error": "not now"})
        question = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        text = answer(
            GenerationRequest("p", question, EvaluateConfig.model_fields["decoding"].default.sampling())
        )
        choice = {"message": {"content": text}, "text": text, "finish_reason": "stop"}
        return self._send(200, {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})

    def _send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def served() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.models, server.asked, server.failures, server.dies_after, server.answered = ["m"], [], 0, None, 0
    server.lock = threading.Lock()
    server.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_server_is_asked_in_its_protocol_and_only_for_what_is_owed(
    tmp_path: Path, data: Path, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-1")
    served.failures = 2
    facts, made = run(tmp_path, request(served.url, data, shots=2), "chat")
    assert facts["pass_at"]["1"]["value"] == 0.5 and made["owed"] == 10
    path, body, key = served.asked[-1]
    assert path == "/v1/chat/completions" and key == "Bearer k-1" and body["model"] == "m"
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"] * 2 + ["user"]
    asked = len(served.asked)
    assert (
        run(tmp_path, request(served.url, data, shots=2), "again")[1]["owed"] == 0
        and len(served.asked) == asked
    )
    run(tmp_path, request(served.url, data, shots=2, chat=False), "plain")
    assert served.asked[-1][0] == "/v1/completions"
    run(tmp_path, request(served.url, data, strategy="policy"), "policy")
    assert "Strategies already tried" in served.asked[-1][1]["messages"][0]["content"]


def test_what_a_server_answered_before_it_failed_is_kept(tmp_path: Path, data: Path, served: Any) -> None:
    served.dies_after = 6
    with pytest.raises(EngineError, match="status 400"):
        run(tmp_path, request(served.url, data), "dying")
    kept = served.answered
    served.dies_after = None
    _, made = run(tmp_path, request(served.url, data), "healed")
    assert made["found"] == kept == 6 and made["owed"] == 4


def test_a_server_without_the_model_is_told(tmp_path: Path, data: Path, served: Any) -> None:
    with pytest.raises(UsageError, match=r"no model 'x': it has m; give --served-model"):
        run(tmp_path, request(served.url, data, served_model="x"), "x")

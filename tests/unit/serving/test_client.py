"""The client against a small server that speaks the OpenAI protocol: who is asked what, and what failures say.

Wrong if the planner's calls reach the base or the worker's the adapter, if an answer is lost or mixed up, or
if a server that is not ours is told otherwise than in a line. The real server is in
tests/e2e/test_planner.py.
"""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.errors import DataError, EngineError, UsageError
from reasoner.methods.planner.prompts import load_prompts
from reasoner.records import Sampling
from reasoner.serving.client import Server
from reasoner.serving.infer import Inference, read_questions
from tests.unit.methods.planner.world import split

MODELS = [{"id": "org/base", "parent": None}, {"id": "recursive_reasoner", "parent": "org/base"}]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, {"data": self.server.models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        status, value = self.server.answer(body)
        self._send(status, value)

    def _send(self, status: int, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def said(text: str, finish: str = "stop") -> tuple[int, Any]:
    choice = {"message": {"content": text}, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": len(text.split())}}


@pytest.fixture
def openai() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.models, server.asked, server.answer = MODELS, [], lambda body: said("The answer is 4")
    server.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def planned(body: dict[str, Any]) -> tuple[int, Any]:
    """A planner that splits the first question and gives the second an invalid plan, and a worker."""
    text = body["messages"][0]["content"]
    if body["model"] == "recursive_reasoner":
        return said(split("ab", "cd") if "question one" in text else "I would split it")
    return said('{"final_answer": 0}' if "Solution 1" in text else '{"solution": "x", "result": 2}')


def infer(openai: Any, questions: list[str]) -> list[Any]:
    with Server(openai.url, "recursive_reasoner") as server:
        return Inference(server, load_prompts(), Sampling(0.7, max_tokens=512)).answer(questions)


def test_the_planner_is_the_adapter_and_the_worker_the_base(openai: Any) -> None:
    openai.answer = planned
    one, two = infer(openai, ["question one", "question two"])
    assert one.answer == "0" and one.should_decompose and one.subproblems == ("ab", "cd")
    assert [call["role"] for call in one.calls] == ["subproblem", "subproblem", "combine"]
    assert two.answer is None and not two.valid_plan and two.calls == ()
    assert sorted(body["model"] for body in openai.asked) == ["org/base"] * 3 + ["recursive_reasoner"] * 2
    # No worker's call runs beside a planner's: vLLM's CPU build would apply the adapter to it.
    assert [b["model"] for b in openai.asked[:2]] == ["recursive_reasoner"] * 2
    assert {(b["temperature"], b["max_tokens"]) for b in openai.asked} == {(0.7, 512)}
    # The server would fill in what is left open from the model's generation_config.json.
    said_anyway = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert all(said_anyway.items() <= body.items() for body in openai.asked)
    assert openai.asked[0]["chat_template_kwargs"]["date_string"] == "26 Jul 2024"


def test_names_are_found_or_told(openai: Any) -> None:
    with Server(openai.url + "/", "recursive_reasoner") as server:
        assert (server.base, server.adapter) == ("org/base", "recursive_reasoner")
    with pytest.raises(UsageError, match=r"no adapter 'mine'; it has org/base, recursive_reasoner"):
        Server(openai.url, "mine")
    with pytest.raises(UsageError, match="no model 'other'"):
        Server(openai.url, "recursive_reasoner", "other")
    openai.models = []
    with pytest.raises(UsageError, match="it has none"):
        Server(openai.url, "recursive_reasoner")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: (500, {"error": "out of memory"}), "status 500"),
        (lambda _: (200, b"<html>"), "does not answer in JSON"),
        (lambda _: (200, {"choices": []}), "gave no chat completion"),
        (lambda _: said("x", "abort"), "ended with 'abort'"),
    ],
)
def test_a_bad_answer_is_an_engines_error(openai: Any, answer: Callable[[Any], Any], words: str) -> None:
    openai.answer = lambda body: (
        said(split("ab", "cd")) if body["model"] == "recursive_reasoner" else answer(body)
    )
    with pytest.raises(EngineError, match=words):
        infer(openai, ["question one"])


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="start one with `reasoner serve`"):
        Server("http://127.0.0.1:9/v1", "recursive_reasoner")


def test_questions_of_files(tmp_path: Path) -> None:
    text, rows, empty = tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "c.csv"
    text.write_text("How many?\n\n How much? \n")
    rows.write_text('{"question": "How many?", "answer": "3"}\n')
    empty.write_text("question,answer\n,3\n")
    assert read_questions(text) == ["How many?", "How much?"] and read_questions(rows) == ["How many?"]
    with pytest.raises(DataError, match="row 1 has no `question`"):
        read_questions(empty)
    (tmp_path / "d.txt").write_text("\n")
    with pytest.raises(DataError, match="holds no questions"):
        read_questions(tmp_path / "d.txt")
    with pytest.raises(DataError, match="does not exist"):
        read_questions(tmp_path / "e.txt")

"""What counts as a strategy name in front of a response."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.methods.smart.parse import Parsed, parse_response
from reasoner.records import Strategy


@pytest.mark.parametrize("strategy", list(Strategy))
@settings(deadline=None)
@given(solution=st.text())
def test_what_is_written_is_read(strategy: Strategy, solution: str) -> None:
    assert parse_response(f"{strategy.title}: {solution}") == Parsed(strategy, solution.strip())


@settings(deadline=None)
@given(st.text())
def test_no_text_raises_and_none_keeps_everything(text: str) -> None:
    parsed = parse_response(text)
    if parsed.strategy is None:
        assert parsed.solution == text.strip()


@pytest.mark.parametrize(
    ("text", "strategy", "solution"),
    [
        ("  chain of\n  THOUGHT : 1 + 1 = 2", Strategy.COT, "1 + 1 = 2"),
        ("Sub-questioning: 1. How many: 3", Strategy.SUB, "1. How many: 3"),
        (
            "Program of Thought:\n```python\nanswer = {1: 2}[1]\n```",
            Strategy.POT,
            "```python\nanswer = {1: 2}[1]\n```",
        ),
        ("Program of Thought:", Strategy.POT, ""),
        ("", None, ""),
        ("   \n", None, ""),
        (":", None, ":"),
        (": 4", None, ": 4"),
        ("Chain of Thought", None, "Chain of Thought"),
        ("Chain of Thought 3 + 4", None, "Chain of Thought 3 + 4"),
        ("CoT: 3", None, "CoT: 3"),
        ("**Chain of Thought**: 3", None, "**Chain of Thought**: 3"),
        ("I use Chain of Thought: 3", None, "I use Chain of Thought: 3"),
        ("Subquestioning: 3", None, "Subquestioning: 3"),
        ("None: 3", None, "None: 3"),
        ("Answer: 3. Chain of Thought: 4", None, "Answer: 3. Chain of Thought: 4"),
    ],
)
def test_table(text: str, strategy: Strategy | None, solution: str) -> None:
    assert parse_response(text) == Parsed(strategy, solution)

"""The strict plan parser: METHODS 4.9's table and what hypothesis can find.

Wrong if anything but the schema is a plan, if a plan inside other text is missed, or if the parser raises.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoner.methods.planner.plan import Plan, parse_plan

ATOMIC = '{"should_decompose": false, "subproblems": [], "plan": "add"}'
TWO = '{"should_decompose": true, "subproblems": ["Cost of pens", "Cost of books"], "plan": "then add"}'


def plan_json(**changes: object) -> str:
    return json.dumps({**json.loads(TWO), **changes})


@pytest.mark.parametrize(
    ("text", "extra"),
    [
        (ATOMIC, False),
        (TWO, False),
        (f"```json\n{TWO}\n```", False),
        (f"```\n{TWO}```", False),
        (f"Here is my plan:\n{TWO}", True),
        (f"{TWO}\nI hope that helps {{}}", True),
        (f"{{}} {TWO}", True),
        (f'{{"a": {ATOMIC}}} {TWO}', True),
        (plan_json(subproblems=["a {b} }", 'say "{"', "} c"]), False),
        (plan_json(plan=""), False),
        (f"  {plan_json(subproblems=['p' * 300, 'q'])} ", False),
    ],
)
def test_valid(text: str, extra: bool) -> None:
    parsed = parse_plan(text)
    assert parsed.plan is not None and parsed.reason == "ok" and parsed.extra_text is extra


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_object"),
        ("no plan at all", "no_object"),
        ("{}", "keys"),
        ("[1, 2]", "no_object"),
        (TWO[:-2], "no_object"),
        (TWO[:40], "no_object"),
        (plan_json(more=1), "keys"),
        ('{"should_decompose": true, "subproblems": ["a", "b"]}', "keys"),
        (plan_json(should_decompose="false"), "should_decompose"),
        (plan_json(should_decompose=1), "should_decompose"),
        (plan_json(should_decompose=None), "should_decompose"),
        (plan_json(subproblems="two parts"), "subproblems"),
        (plan_json(subproblems=["a", 2]), "subproblems"),
        (plan_json(subproblems=["a", {"b": 1}]), "subproblems"),
        (plan_json(subproblems=["a"] + [f"p{i}" for i in range(19)]), "count"),
        (plan_json(subproblems=["one"]), "count"),
        (plan_json(subproblems=[]), "count"),
        (plan_json(subproblems=["same", " Same "]), "duplicate"),
        (plan_json(subproblems=["a", "  "]), "empty"),
        (plan_json(subproblems=["a", "p" * 301]), "long"),
        (plan_json(plan=["a"]), "plan"),
        (plan_json(should_decompose=False), "not_empty"),
        (TWO.replace('"plan"', '"plan": "x", "plan"'), "keys"),
        ("{" * 100_000, "no_object"),
        ('{"a":' * 5_000, "no_object"),
    ],
)
def test_invalid(text: str, reason: str) -> None:
    parsed = parse_plan(text)
    assert parsed.plan is None and parsed.reason == reason


def test_the_first_valid_object_counts() -> None:
    parsed = parse_plan(f"{plan_json(should_decompose='yes')} {TWO} {ATOMIC}")
    assert parsed.plan == Plan(True, ("Cost of pens", "Cost of books"), "then add") and parsed.extra_text


parts = st.lists(st.text(min_size=1, max_size=40).filter(str.strip), min_size=2, max_size=4).filter(
    lambda p: len({" ".join(x.strip().casefold().split()) for x in p}) == len(p)
)


@given(parts, st.text(max_size=50))
def test_what_a_plan_writes_is_read_back(subproblems: list[str], text: str) -> None:
    plan = Plan(True, tuple(s.strip() for s in subproblems), text)
    parsed = parse_plan(plan.to_json())
    assert parsed.plan == plan and not parsed.extra_text


@given(st.text(alphabet='{}[]"\\:,truefalsn \n`', max_size=80))
def test_no_text_breaks_it(text: str) -> None:
    parse_plan(text)

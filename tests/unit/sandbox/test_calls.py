"""Expressions on a candidate: values, exceptions, order, budgets, and what survives a late failure."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reasoner.sandbox import Limits, Sandbox, Status
from reasoner.sandbox.jobs import Result
from reasoner.sandbox.session import Session
from reasoner.sandbox.values import IteratedValues

PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**50,
    -(2**51),
    2**64 + 1,
    10**5000,
    0.1,
    -0.0,
    1e308,
    float("inf"),
    2j,
    "",
    "a'\"\\\n\0é🙂",
    "\ud800",
    b"",
    b"\x00\xff",
    [],
    [1, [2, [3]]],
    (),
    (1,),
    ((1, 2), [3]),
    set(),
    {1, 2},
    frozenset({1}),
    {frozenset({1}), (1, 2)},
    {},
    {"a": 1, 2: (3,), None: {4: 5}},
]


def value_of(sandbox: Sandbox, source: str, expression: str = "x") -> Result:
    return sandbox.evaluate_calls(source, [expression]).calls[0]


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.items(), b.items()))
    if isinstance(a, float):
        return repr(a) == repr(b)
    return bool(a == b)


def test_plain_values_arrive_as_they_are(sandbox: Sandbox) -> None:
    expressions = [repr(value) if type(value) is not int else hex(value) for value in PLAIN]
    expressions = [e.replace("inf", "float('inf')") for e in expressions]
    results = sandbox.evaluate_calls("", expressions).calls
    assert len(results) == len(PLAIN)
    for value, result in zip(PLAIN, results, strict=True):
        assert result.ok, (value, result)
        assert same(result.value, value), (value, result.value)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
)
hashable = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(hashable, inner, max_size=4) | st.sets(hashable)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def session(sandbox: Sandbox) -> Any:
    with Session(sandbox, "def same(x): return x", limits=Limits(wall_seconds=120)) as session:
        yield session


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=trees)
def test_any_tree_makes_the_round_trip(session: Session, value: Any) -> None:
    result, changed = session.call("same", [value], {})
    assert result.ok and changed is None
    assert same(result.value, value)


def test_nan(sandbox: Sandbox) -> None:
    assert math.isnan(value_of(sandbox, "x = float('nan')").value)


CONVERTED = {
    "from collections import Counter\nx = Counter('aab')": dict(Counter("aab")),
    "from collections import defaultdict\nx = defaultdict(list, {1: [2]})": {1: [2]},
    "from collections import OrderedDict\nx = OrderedDict(a=1)": {"a": 1},
    "from collections import namedtuple\nx = namedtuple('P', 'a b')(1, 2)": (1, 2),
    "class L(list): pass\nx = L([1])": [1],
    "class S(set): pass\nx = S([1])": {1},
    "class S(str): pass\nx = S('a')": "a",
    "class I(int): pass\nx = I(7)": 7,
    "from enum import IntEnum\nclass E(IntEnum):\n    A = 3\nx = E.A": 3,
    "class F(float): pass\nx = F(1.5)": 1.5,
}


@pytest.mark.parametrize("source", CONVERTED)
def test_subclasses_become_the_builtin_type(sandbox: Sandbox, source: str) -> None:
    result = value_of(sandbox, source)
    assert result.ok and same(result.value, CONVERTED[source])


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("x = (i for i in 'a')", "generator"),
        ("x = range(3)", "range"),
        ("x = object()", "object"),
        ("x = [object()]", "object"),
        ("x = {1: lambda: 0}", "function"),
        ("class Point: pass\nx = Point()", "Point"),
        ("from fractions import Fraction\nx = Fraction(1, 2)", "Fraction"),
        ("x = int", "type"),
    ],
)
def test_other_objects_are_named(sandbox: Sandbox, source: str, name: str) -> None:
    result = value_of(sandbox, source)
    assert (result.status, result.type_name, result.value) == (Status.BAD_VALUE, name, None)


def test_results_before_a_hang_are_kept(sandbox: Sandbox) -> None:
    source = "def f(x):\n    while x == 2: pass\n    return x"
    answer = sandbox.evaluate_calls(source, ["f(0)", "f(1)", "f(2)", "f(3)"], limits=Limits(wall_seconds=4))
    assert [r.status for r in answer.calls] == [Status.OK, Status.OK, Status.TIMEOUT, Status.TIMEOUT]
    assert [r.value for r in answer.calls] == [0, 1, None, None]
    assert answer.status is Status.TIMEOUT


def test_budget_of_one_expression(sandbox: Sandbox) -> None:
    source = "import time\ndef f(x):\n    time.sleep(x)\n    return x"
    limits = Limits(wall_seconds=60, call_seconds=2)
    answer = sandbox.evaluate_calls(source, ["f(0.8)", "f(0.8)", "f(0.8)", "f(50)"], limits=limits)
    assert [r.status for r in answer.calls] == [Status.OK] * 3 + [Status.TIMEOUT]
    assert answer.seconds < 30, "not the 50 s that the last one sleeps, and not the limit of all"


def test_exceptions_do_not_end_the_session(sandbox: Sandbox) -> None:
    source = "def f(x):\n    return 1 / x"
    answer = sandbox.evaluate_calls(source, ["f(0)", "f(1)", "g(1)", "f(", "exit_", "f(2)"])
    assert [r.type_name for r in answer.calls] == [
        "ZeroDivisionError",
        "",
        "NameError",
        "SyntaxError",
        "NameError",
        "",
    ]
    assert answer.calls[5].value == 0.5


def test_setup_runs_after_the_candidate_in_its_namespace(sandbox: Sandbox) -> None:
    source = "class Node:\n    def __init__(self, v): self.v = v\ndef f(n): return n.v"
    answer = sandbox.evaluate_calls(source, ["f(root)"], setup="root = Node(4)")
    assert answer.load.ok and answer.calls[0].value == 4


@pytest.mark.parametrize(
    ("source", "setup", "status"),
    [
        ("def f(:", "", Status.SYNTAX_ERROR),
        ("raise KeyError(1)", "", Status.EXCEPTION),
        ("", "nothing.here", Status.EXCEPTION),
        ("import os\nos._exit(3)", "", Status.KILLED),
        ("while True: pass", "", Status.TIMEOUT),
    ],
)
def test_failed_loading_is_shared_by_all(sandbox: Sandbox, source: str, setup: str, status: Status) -> None:
    seconds = 0.7 if status is Status.TIMEOUT else 30
    answer = sandbox.evaluate_calls(source, ["1", "2"], setup=setup, limits=Limits(wall_seconds=seconds))
    assert answer.load.status is status
    assert [r.status for r in answer.calls] == [status, status]


def test_no_expressions(sandbox: Sandbox) -> None:
    answer = sandbox.evaluate_calls("x = 1", [])
    assert answer.status is Status.OK and answer.calls == ()


def test_call_with_values_reports_iterators_and_changed_arguments(sandbox: Sandbox) -> None:
    source = (
        "def lazy(n):\n    yield from range(n)\n"
        "def change(xs, d):\n    xs.append(9)\n    d['k'] = xs\n"
        "def endless():\n    while True: yield 1"
    )
    with Session(sandbox, source) as session:
        result, changed = session.call("lazy", [3], {})
        assert (
            isinstance(result.value, IteratedValues) and list(result.value) == [0, 1, 2] and changed is None
        )
        assert result.value != [0, 1, 2]
        result, changed = session.call("change", [[1]], {"d": {}})
        assert result.ok and result.value is None and changed == [[1, 9]]
        result, _ = session.call("endless", [], {})
        assert result.status is Status.BAD_VALUE


def test_a_large_job_goes_through(sandbox: Sandbox) -> None:
    source = "x = '" + "y" * (3 << 20) + "'"
    assert value_of(sandbox, source, "len(x)").value == 3 << 20

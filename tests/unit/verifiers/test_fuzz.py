"""The properties of tests/support/fuzz.py on a few examples each; `benchmarks/fuzz_verdicts.py` is the long form.

Wrong if some input crashes or hangs a verifier, if equal numbers written differently get different verdicts, or if a
program can look like a failure of the sandbox.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from reasoner.records import Outcome, Verdict
from tests.support import fuzz
from tests.support.fuzz import PROPERTIES, Property, Tools

EXAMPLES = 25


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with fuzz.tools() as opened:
        yield opened


@pytest.mark.parametrize("prop", PROPERTIES, ids=lambda p: p.name)
def test_property(prop: Property, tools: Tools) -> None:
    if prop.sandboxed and tools.sandbox is None:
        pytest.skip("no sandbox on this machine")
    hold(prop, tools)


def hold(prop: Property, tools: Tools) -> None:
    """Try the property on a fixed set of examples."""
    count = max(4, round(EXAMPLES * min(prop.weight, 2)))

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(prop.examples)
    def holds(example: object) -> None:
        prop.check(tools, example)

    holds()


@pytest.mark.parametrize(
    ("verdict", "name"),
    [
        (Verdict(Outcome.CORRECT, "number"), "other numbers"),
        (Verdict(Outcome.INCORRECT, "wrong"), "equal numbers"),
        (Verdict(Outcome.UNSCORED, "error"), "garbage"),
    ],
)
def test_the_properties_can_fail(
    verdict: Verdict, name: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that pays everything, one that pays nothing, and one that breaks are found out."""
    monkeypatch.setattr(tools.pool, "verdicts", lambda items: iter([verdict]))
    with pytest.raises(AssertionError):
        hold(next(p for p in PROPERTIES if p.name == name), tools)

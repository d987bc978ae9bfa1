"""Verdicts on code over whole data sets: references pass, stubs don't, and the adversarial rows get what they must."""

import ast
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.records import Outcome
from reasoner.sandbox import Sandbox
from reasoner.sandbox.namespaces import ProcessNamespace
from reasoner.verifiers.asserts import plan_tests
from reasoner.verifiers.code import CodeItem, CodeVerdict, PromptItem, stream_verdicts
from reasoner.verifiers.hacks import hack_signs
from tests.support.code_verdicts import verify_codes


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def mbpp_items(folder: Path) -> list[CodeItem]:
    return [
        CodeItem(r["code"], tuple(r["test_list"] + r["challenge_test_list"]), r["test_setup_code"])
        for r in rows(folder / "mbpp.jsonl")
    ]


def sanitized_items(folder: Path) -> list[CodeItem]:
    return [
        CodeItem(r["code"], tuple(r["test_list"]), imports=tuple(r["test_imports"]))
        for r in rows(folder / "mbpp_sanitized.jsonl")
    ]


def humaneval_items(folder: Path) -> list[PromptItem]:
    return [
        PromptItem(r["prompt"], r["canonical_solution"], r["test"], r["entry_point"])
        for r in rows(folder / "humaneval.jsonl")
    ]


def reasons(verdicts: list[CodeVerdict]) -> Counter[str]:
    return Counter(v.verdict.reason for v in verdicts)


def stub_of(item: CodeItem) -> CodeItem:
    """Every function of the tests returns None."""
    names = {n.id for t in item.tests for n in ast.walk(ast.parse(t)) if isinstance(n, ast.Name)}
    source = "\n".join(f"def {name}(*a, **k): return None" for name in sorted(names))
    return CodeItem(source, item.tests, item.setup, item.imports)


def test_honest_programs_show_few_signs(shared_data: Path) -> None:
    items = mbpp_items(shared_data)
    suspects = [item for item in items if hack_signs(item.program, item.tests)]
    assert len(suspects) < 0.03 * len(items)


def test_a_sample_of_all_references_passes(sandbox: Sandbox, shared_data: Path) -> None:
    """Every 32nd, and those whose tests need set-up code, a module, or a helper around the call."""
    items: list[CodeItem | PromptItem] = []
    for index, item in enumerate(mbpp_items(shared_data)):
        if index % 32 == 0 or item.setup or plan_tests(item.tests).split < len(item.tests):
            items.append(item)
    items += sanitized_items(shared_data)[::32] + humaneval_items(shared_data)[::16]
    assert len(items) > 55
    assert reasons(verify_codes(items, timeout=30, sandbox=sandbox)) == {"pass": len(items)}


@pytest.mark.sandbox
def test_references_of_mbpp_pass(sandbox: Sandbox, shared_data: Path) -> None:
    items = mbpp_items(shared_data)
    assert len(items) == 974
    assert reasons(verify_codes(items, timeout=30, sandbox=sandbox)) == {"pass": 974}


@pytest.mark.sandbox
def test_references_of_sanitized_mbpp_pass(sandbox: Sandbox, shared_data: Path) -> None:
    assert reasons(verify_codes(sanitized_items(shared_data), timeout=30, sandbox=sandbox)) == {"pass": 427}


@pytest.mark.sandbox
def test_references_of_humaneval_pass(sandbox: Sandbox, shared_data: Path) -> None:
    assert reasons(verify_codes(humaneval_items(shared_data), timeout=30, sandbox=sandbox)) == {"pass": 164}


def test_stubs_pass_nowhere(sandbox: Sandbox, shared_data: Path) -> None:
    """A sample of each set: every stub is wrong, and none is unscored."""
    assert_stubs_fail(sandbox, shared_data, 40)


@pytest.mark.sandbox
def test_all_stubs_pass_nowhere(sandbox: Sandbox, shared_data: Path) -> None:
    assert_stubs_fail(sandbox, shared_data, 1)


def assert_stubs_fail(sandbox: Sandbox, shared_data: Path, step: int) -> None:
    items: list[CodeItem | PromptItem] = [stub_of(item) for item in mbpp_items(shared_data)[::step]]
    items += [stub_of(item) for item in sanitized_items(shared_data)[::step]]
    for item in humaneval_items(shared_data)[::step]:
        items.append(PromptItem(item.prompt, "    return None\n", item.test, item.entry_point))
    found = verify_codes(items, timeout=30, sandbox=sandbox)
    assert Counter(v.verdict.outcome for v in found) == {Outcome.INCORRECT: len(items)}


@pytest.fixture
def namespaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ProcessNamespace | None]]:
    """The process namespace of every sandbox that will be started; None where it ended before it was asked."""
    found: list[ProcessNamespace | None] = []
    start = Sandbox.start

    def recorded(self: Sandbox, *args: Any, **rest: Any) -> Any:
        child = start(self, *args, **rest)
        found.append(ProcessNamespace.of(child.pid))
        return child

    monkeypatch.setattr(Sandbox, "start", recorded)
    yield found
    for namespace in found:
        if namespace is not None:
            namespace.close()


@pytest.mark.sandbox
def test_adversarial_rows(
    sandbox: Sandbox,
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    namespaces: list[ProcessNamespace | None],
) -> None:
    """Every row gets its expected verdict, and what its `must_hold` names holds."""
    canaries = tmp_path / "canaries"
    canaries.mkdir()
    (canaries / "file").write_text("x")
    secret = "canary-" + os.urandom(12).hex()
    monkeypatch.setenv("CANARY_SECRET", secret)
    monkeypatch.setenv("CANARY_DIR", str(canaries))
    monkeypatch.chdir(tmp_path)
    table = rows(shared_data / "code_adversarial_open.jsonl")
    items = [CodeItem(row["program"], tuple(row["tests"])) for row in table]
    verdicts: dict[int, CodeVerdict] = {}
    timeout = 3.0
    for index, verdict in stream_verdicts(items, timeout=timeout, sandbox=sandbox):
        assert index not in verdicts  # one verdict only
        verdicts[index] = verdict
    wrong = {}
    for index, row in enumerate(table):
        got = verdicts[index].verdict
        if row["expected"] != "any" and got.correct != (row["expected"] == "pass"):
            wrong[row["name"]] = (row["expected"], got.outcome, got.reason)
        assert got.outcome is not Outcome.UNSCORED, row["name"]
        assert got.seconds < timeout + 60, row["name"]
        shown = repr(verdicts[index])
        assert secret not in shown
        assert all(len(t.detail) <= 500 for t in verdicts[index].tests), row["name"]
    assert wrong == {}
    assert len(namespaces) >= len(items)
    assert [n for n in namespaces if n and n.processes()] == [], "a process is left"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["canaries"], "the working folder is clean"
    assert [p.name for p in canaries.iterdir()] == ["file"]

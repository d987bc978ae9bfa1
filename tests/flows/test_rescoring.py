"""A changed verifier judges again what is in the ledger, and nothing is generated again.

Wrong if a new version of the verifier leaves old verdicts in use, if it asks a model anything, or if an unchanged
version judges again.
"""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from flows import smart as smart_flow
from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.records import ArtifactRef, GenerationRequest, Outcome, Verdict
from reasoner.stages import verdicts
from reasoner.store import Store, open_ref
from reasoner.verifiers import solutions
from tasks import smart as stages
from tasks.context import run_context
from tests.support.solver import solve
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(300)]

asked: Counter[str] = Counter()
judged: Counter[str] = Counter()


def answer(request: GenerationRequest) -> str:
    """The scripted model, which counts what it is asked."""
    asked["model"] += 1
    return solve(request)


@flow
def few_shot(config: SmartConfig) -> tuple[ArtifactRef, ...]:
    """The first steps of SMART: questions, base model, few-shot solutions, verdicts."""
    with run_context("rescoring"):
        problems = stages.prepare_problems(config.data, config.seed)
        base = stages.prepare_model(config.model)
        return smart_flow.few_shot(config, problems, base, "pool")


@pytest.fixture
def config(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmartConfig:
    asked.clear()
    judged.clear()
    judge = verdicts.judge

    def counted(*args: Any, **kwargs: Any) -> dict[str, Any]:
        judged["stages"] += 1
        return judge(*args, **kwargs)

    monkeypatch.setattr(verdicts, "judge", counted)
    overrides = [
        f"model.path={make_model(tmp_path / 'model')}", "engine=scripted",
        "engine.options.script=tests.flows.test_rescoring:answer", "few_shot.strategies=[cot,pot]",
        "data.pool.word_problems.limit=24", "data.validation=0",
    ]  # fmt: skip
    return load("smart-demo", overrides, SmartConfig)


def outcomes(refs: tuple[ArtifactRef, ...]) -> Counter[str]:
    return Counter(str(a.verdict.outcome) for a in verdicts.read([open_ref(ref) for ref in refs]))


def manifests(home: Path, stage: str) -> list[dict[str, Any]]:
    store = Store(home / "artifacts")
    found = [store.manifest(ref).metadata for ref in store.list()]
    return [dict(metadata) for metadata in found if metadata["stage"] == stage]


def mend_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that finds every number wrong: the change must show in every verdict."""
    monkeypatch.setattr(solutions, "VERSION", solutions.VERSION + 1)
    monkeypatch.setattr(solutions, "_compare", lambda *_: Verdict(Outcome.INCORRECT, "mended"))


def test_a_new_version_judges_again_and_asks_no_model(
    config: SmartConfig, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = few_shot(config)
    requests = asked["model"]
    total = sum(outcomes(first).values())
    assert requests == total > 20 and judged["stages"] == 2
    assert 0 < outcomes(first)["correct"] < total

    assert few_shot(config) == first
    assert asked["model"] == requests and judged["stages"] == 2, "nothing has changed"

    with monkeypatch.context() as mended:
        mend_the_verifier(mended)
        second = few_shot(config)
    assert judged["stages"] == 4 and asked["model"] == requests, "judged again, nothing generated"
    assert outcomes(second) == {"incorrect": total} and not set(first) & set(second)
    assert len(manifests(home, "few-shot")) == 2 and len(manifests(home, "verify")) == 4

    assert few_shot(config) == first, "the old version's verdicts are still there"
    assert judged["stages"] == 4


def test_from_the_ledger_alone(config: SmartConfig, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Completions whose artifacts are gone come back from the ledger: no model is asked for them."""
    total = sum(outcomes(few_shot(config)).values())
    requests = asked["model"]
    shutil.rmtree(home / "artifacts" / "completions")
    shutil.rmtree(home / "results")
    mend_the_verifier(monkeypatch)
    again = few_shot(config)
    assert asked["model"] == requests
    assert outcomes(again) == {"incorrect": total}
    made = manifests(home, "few-shot")
    assert [m["owed"] for m in made] == [0, 0] and sum(m["found"] for m in made) == total

"""Which input is another one, and where it began.

Wrong if a field that was changed is not named, if one that was not is, or if the walk ends above the root.
"""

from pathlib import Path

import pytest

from reasoner.lineage import why
from reasoner.lineage.calls import Call, outline
from reasoner.lineage.known import Known
from reasoner.records import ArtifactRef
from tests.unit.lineage.build import PACKAGES, Built


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return Built(tmp_path / "home")


def answer(built: Built, wanted: Call, state: str = why.STALE, **environment: object) -> why.Answer:
    known = Known(built.store)
    kept = [call for call in known.all(wanted.stage) if call.ref and call.key != wanted.key]
    return why.explain(why.Asked(wanted, state), kept, known.call, dict(environment) or PACKAGES)


def told(found: why.Answer) -> list[str]:
    return [line.strip() for line in why.lines([found])][1:]


def made(built: Built, ref: ArtifactRef) -> Call:
    call = Known(built.store).manifest_call(ref)
    assert call is not None
    return call


def test_a_changed_setting_is_named_with_both_values(built: Built) -> None:
    built.chain(temperature=0.0)
    other = built.chain(temperature=0.7)
    assert told(answer(built, made(built, other[2]))) == ["few_shot.decoding.temperature: 0.0 -> 0.7"]


def test_changed_inputs_are_followed_to_the_root(built: Built) -> None:
    built.chain(temperature=0.0, lr=0.1)
    other = built.chain(temperature=0.7, lr=0.1)
    found = answer(built, made(built, other[6]))
    assert told(found) == [
        "adapter: another adapter, because of train epoch 1:",
        "records: another records, because of records-epoch1:",
        "attempts[verify few-shot cot pool]: another attempts, because of verify few-shot cot pool:",
        "completions: another completions, because of few-shot cot pool:",
        "few_shot.decoding.temperature: 0.0 -> 0.7",
        "records: another records, as said above of records-epoch1",
    ]
    assert [(r["path"], r["before"], r["after"]) for r in found.to_row()["roots"]] == [
        ("few_shot.decoding.temperature", 0.0, 0.7)
    ]


def test_the_nearest_is_the_one_with_the_fewest_changes(built: Built) -> None:
    near = built.put("train", "adapter", "near", config={"lr": 1, "epochs": 1, "rank": 8})
    built.put("train", "adapter", "far", config={"lr": 9, "epochs": 9, "rank": 8})
    wanted = made(built, built.put("train", "adapter", "new", config={"lr": 2, "epochs": 1, "rank": 8}))
    found = answer(built, wanted)
    assert found.near is not None and found.near.ref == near and told(found) == ["config.lr: 1 -> 2"]


def test_version_and_prompt_are_inputs_too(built: Built) -> None:
    built.put("answer", "completions", "one", version=1, external={"user": "Solve it."}, n=1)
    wanted = made(
        built, built.put("answer", "completions", "two", version=2, external={"user": "Do it."}, n=1)
    )
    assert told(answer(built, wanted)) == [
        "stage version: 1 -> 2", "prompt text.user: Solve it. -> Do it.",
    ]  # fmt: skip


def test_a_long_text_is_kept_short_and_still_differs() -> None:
    one, other = outline({"text": "x" * 500 + "a"}), outline({"text": "x" * 500 + "b"})
    assert one != other and len(str(one)) < 200 and outline(list(range(1000))) != outline(list(range(1001)))
    assert outline(("a", 1.0)) == ["a", 1.0]


def test_an_older_artifact_that_does_not_say_what_lay_outside(built: Built) -> None:
    one = built.put("answer", "completions", "one", n=1)
    older = Call(**{**vars(made(built, one)), "external": None, "key": "answer-1-old"})
    wanted = made(built, one)
    found = why.explain(why.Asked(wanted, why.STALE), [older], Known(built.store).call, {})
    assert "does not say" in told(found)[0]


def test_equal_inputs_with_other_content_show_the_environment(built: Built) -> None:
    """The same key made twice with different content: the environment is all that can be the cause."""
    one = built.put("few-shot", "completions", "first", seed=1, environment={"packages": {"torch": "2.12.0"}})
    other = built.put(
        "few-shot", "completions", "second", seed=1, environment={"packages": {"torch": "2.13.0"}}
    )
    built.put("verify", "attempts", "v1", completions=one)
    wanted = made(built, built.put("verify", "attempts", "v2", completions=other))
    lines = told(answer(built, wanted))
    assert lines[0] == (
        "completions: another completions, made from the same inputs in another environment, because of few-shot:"
    )
    assert lines[1] == "environment.packages.torch: 2.12.0 -> 2.13.0"


def test_one_more_input_does_not_move_the_others(built: Built) -> None:
    parts = [
        built.put("verify", "attempts", name, label=f"verify {name}", of=name)
        for name in ("cot", "sub", "pot")
    ]
    built.put("records", "records", "r1", attempts=[parts[0], parts[2]])
    wanted = made(built, built.put("records", "records", "r2", attempts=parts))
    assert told(answer(built, wanted)) == [
        f"attempts[verify sub]: (absent) -> attempts {parts[1].digest[:12]}"
    ]


def test_what_is_kept_or_gone_needs_no_comparison(built: Built) -> None:
    ref = built.put("train", "adapter", "a", lr=1)
    for state, words in (
        (why.KEPT, "is kept"),
        (why.GONE, "has to run again"),
        (why.CACHED, "from the cache"),
    ):
        assert words in next(why.lines([answer(built, made(built, ref), state)]))
    alone = answer(built, made(built, ref))
    assert alone.near is None and "it is the first" in next(why.lines([alone]))


def test_another_environment_is_told_but_is_no_reason(built: Built) -> None:
    built.put("train", "adapter", "a", lr=1)
    wanted = made(built, built.put("train", "adapter", "b", lr=2))
    lines = told(answer(built, wanted, packages={"torch": "2.14.0"}, revision="abc", dirty=False))
    assert lines == [
        "lr: 1 -> 2",
        "also, but no part of the key: environment.packages.torch: 2.13.0 -> 2.14.0",
    ]

"""What `reasoner run NAME` runs: the configuration's method says which flow it is, how it is checked and shown."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.kinds import MULTI_TURN, method_of
from reasoner.records import ArtifactRef


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named configuration with its flow. `flow` imports Prefect; `check` does not."""

    check: Callable[[Sequence[str]], None]
    """Raises ConfigurationError for overrides that cannot be meant."""
    flow: Callable[[], Any]
    show: Callable[[ArtifactRef, Path, float], None]
    """Prints the result: report, run folder, seconds."""


def find(name: str) -> Pipeline:
    """The pipeline of a configuration. Raises ConfigurationError for an unknown name."""
    if method_of(name) in MULTI_TURN:
        return Pipeline(lambda words: _check_multi_turn(name, words), _multi_turn_flow, _show_multi_turn)
    if method_of(name) == "planner":
        return Pipeline(lambda words: _check_planner(name, words), _planner_flow, _show_planner)
    if method_of(name) == "nightly":
        return Pipeline(lambda words: _check_nightly(name, words), _nightly_flow, _show_nightly)
    if method_of(name) == "publish":
        return Pipeline(lambda words: _check_publish(name, words), _publish_flow, _show_publish)
    return Pipeline(lambda words: _check_smart(name, words), _smart_flow, _show_smart)


def _check_smart(name: str, words: Sequence[str]) -> None:
    from reasoner.config.variants import load_variants

    load_variants(name, words)


def _smart_flow() -> Any:
    from flows.smart import smart

    return smart


def _show_smart(report: ArtifactRef, folder: Path, seconds: float) -> None:
    from flows.commands.listing import show_result

    show_result(report, folder, seconds)


def _check_multi_turn(name: str, words: Sequence[str]) -> None:
    from reasoner.config.compose import load
    from reasoner.config.multiturn import MultiTurnConfig

    load(name, words, MultiTurnConfig)


def _multi_turn_flow() -> Any:
    from flows.multiturn import multiturn

    return multiturn


def _show_multi_turn(report: ArtifactRef, folder: Path, seconds: float) -> None:
    """Both turns before and after, then where things are."""
    from flows.commands.listing import show_places
    from reasoner.report import second_looks
    from reasoner.store import open_ref

    facts = json.loads((open_ref(report) / "report.json").read_text())
    for row in facts["rows"]:
        two = row["two_turns"]
        print(
            f"{row['label']:10} turn 1 {two['acc_t1']['k']}/{two['n']}, turn 2 {two['acc_t2']['k']}/{two['n']}, "
            f"Δ {two['delta']:+.3f} ({two['delta_low']:+.3f} to {two['delta_high']:+.3f})"
        )
    for label, row in facts.get("second_looks", {}).items():
        if row["cut"]:
            print(second_looks.sentence(label, row))
    show_places(folder, seconds)


def _check_planner(name: str, words: Sequence[str]) -> None:
    from reasoner.config.compose import load
    from reasoner.config.planner import PlannerConfig

    load(name, words, PlannerConfig)


def _planner_flow() -> Any:
    from flows.planner import planner

    return planner


def _show_planner(report: ArtifactRef, folder: Path, seconds: float) -> None:
    """The arms of the evaluation, then where things are."""
    from flows.commands.listing import show_places
    from reasoner.report import planner
    from reasoner.store import open_ref

    facts = json.loads((open_ref(report) / "report.json").read_text())
    for line in planner.plain_lines(planner.PlannerReport.model_validate(facts)):
        print(line)
    show_places(folder, seconds)


def _check_nightly(name: str, words: Sequence[str]) -> None:
    from reasoner.config.compose import load
    from reasoner.config.releases import NightlyConfig

    load(name, words, NightlyConfig)


def _nightly_flow() -> Any:
    from flows.nightly import nightly

    return nightly


def _show_nightly(report: ArtifactRef, folder: Path, seconds: float) -> None:
    """Every set of every release in a sentence, then where the page is."""
    from reasoner.releases.night import Night
    from reasoner.releases.trend import sentence
    from reasoner.store import open_ref

    facts = json.loads((open_ref(report) / "report.json").read_text())
    for night in map(Night.from_row, facts["nights"]):
        for name, change in night.sets.items():
            print(f"{night.release}  {sentence(name, change)}")
    if not facts["nights"]:
        print("there are no releases; `reasoner release RUN NAME` makes one")
    print(f"report    {folder / 'report.md'}")
    print(f"done in {seconds:.0f} s")


def _check_publish(name: str, words: Sequence[str]) -> None:
    from reasoner.config.compose import load
    from reasoner.config.releases import PublishingConfig

    load(name, words, PublishingConfig).require_target()


def _publish_flow() -> Any:
    from flows.publish import publish

    return publish


def _show_publish(publication: ArtifactRef, folder: Path, seconds: float) -> None:
    """Where the model is on the Hub now."""
    from reasoner.store import open_ref

    facts = json.loads((open_ref(publication) / "publication.json").read_text())
    print(f"{'pushed to' if facts['pushed'] else 'already at'} {facts['url']} ({facts['commit']})")
    print(f"done in {seconds:.0f} s")

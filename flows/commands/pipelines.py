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
    from reasoner.store import open_ref

    facts = json.loads((open_ref(report) / "report.json").read_text())
    for row in facts["rows"]:
        two = row["two_turns"]
        print(
            f"{row['label']:10} turn 1 {two['acc_t1']['k']}/{two['n']}, turn 2 {two['acc_t2']['k']}/{two['n']}, "
            f"Δ {two['delta']:+.3f} ({two['delta_low']:+.3f} to {two['delta_high']:+.3f})"
        )
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

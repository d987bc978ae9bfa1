"""The table of the fault matrix: which fault meets which stage, when, and what the user is to be told."""

from dataclasses import dataclass, field
from typing import Any

KILLED, TERMINATED, FAILED, DONE = -9, 143, 1, 0

SMART = ("problems", "model", "few-shot", "verify", "analysis", "records-epoch1", "train", "merge", "answer", "sample",
         "retry", "gate", "records-later", "evaluation", "report")  # fmt: skip
"""Every stage of SMART."""
TRAININGS = {
    "train": ("smart", "reasoner.training.sft"),
    "grpo": ("smart-grpo", "reasoner.training.smart.grpo"),
    "planner-sft": ("planner", "reasoner.training.sft"),
    "planner-grpo": ("planner", "reasoner.training.planner.grpo"),
    "multiturn-train": ("multiturn", "reasoner.training.multiturn.program"),
}
"""The training stages: their pipeline and the program that their child process runs."""
CHECKPOINTS = {"train": "sft", "grpo": "grpo", "planner-sft": "sft", "planner-grpo": "grpo",
               "multiturn-train": "multiturn"}  # fmt: skip
"""Below the working folder of the stage."""

FULL = r"no space left on the disk|No space left on device|free some space"
DENIED = r"Permission denied"


@dataclass(frozen=True)
class Cell:
    """A fault that meets one computation of `stage` in a run of pipeline `world`."""

    world: str
    stage: str
    fault: str
    status: int
    """Of the run that meets it."""
    says: str = ""
    """Pattern of what it tells the user."""
    moment: str = "start"
    at: int = 1
    action: str = "nothing"
    details: dict[str, Any] = field(default_factory=dict)
    machine: str = ""
    """What the run lives on: `disk` (a small one), `obedient` (root obeys permissions), `clock`, `server`."""
    short: bool = False
    """Whether `make test` has it, too."""

    @property
    def name(self) -> str:
        return f"{self.stage}-{self.fault}"

    @property
    def fault_plan(self) -> dict[str, Any]:
        return {
            "stage": self.stage, "moment": self.moment, "action": self.action, "at": self.at, **self.details,
        }  # fmt: skip


LATER = ("sample", "retry", "gate", "records-later")
"""Stages that only a second epoch has."""


def world_of(stage: str) -> str:
    return "smart-later" if stage in LATER else TRAININGS.get(stage, ("smart", ""))[0]


def moments(stage: str) -> tuple[str, int]:
    """In a training after its second report (a checkpoint is there), elsewhere when the files are written."""
    return ("progress", 4) if stage in TRAININGS else ("written", 1)


def flow_killed() -> list[Cell]:
    cells = []
    for stage in (*SMART, *list(TRAININGS)[1:]):
        moment, at = moments(stage)
        cells.append(
            Cell(world_of(stage), stage, "flow-killed", KILLED, moment=moment, at=at, action="signal",
                 details={"number": "SIGKILL"}, short=stage == "verify")
        )  # fmt: skip
    return cells


def terminated() -> list[Cell]:
    found = []
    for stage in ("few-shot", "verify", "merge", "report", *TRAININGS):
        moment, at = moments(stage)
        found.append(
            Cell(world_of(stage), stage, "sigterm", TERMINATED, "ended by SIGTERM; the same command goes on", moment,
                 at, "signal", {"number": "SIGTERM"}, short=stage == "few-shot")
        )  # fmt: skip
    return found


def child_killed() -> list[Cell]:
    """A training's child is not replaced; a verifier's worker is, and the run does not fail."""
    cells = [
        Cell(world, stage, "child-killed", FAILED, r"was ended by SIGKILL \(killed for memory\?\)", "progress", 4,
             "kill", {"program": program})
        for stage, (world, program) in TRAININGS.items()
    ]  # fmt: skip
    cells.append(Cell("smart", "merge", "child-killed", FAILED, "was ended by SIGKILL", "start", 1, "kill-later",
                      {"program": "reasoner.training.merge"}))  # fmt: skip
    cells.append(Cell("smart", "verify", "child-killed", DONE, "", "start", 1, "kill-later",
                      {"program": "reasoner.verifiers.worker"}))  # fmt: skip
    return cells


def engine_killed() -> list[Cell]:
    program = "reasoner.engines.worker"
    return [
        Cell(world, stage, "engine-killed", FAILED, "was ended by SIGKILL", "start", 1, "kill-later",
             {"program": program})
        for world, stage in (("planner", "plan-candidates"), ("planner", "plan-arms"),
                             ("multiturn", "multiturn-evaluate"))
    ]  # fmt: skip


def server_killed() -> list[Cell]:
    return [
        Cell(world_of(stage), stage, "server-killed", FAILED, "Prefect server", *moments(stage), "kill",
             {"program": "uvicorn"}, machine="server")
        for stage in ("few-shot", "report", "train")
    ]  # fmt: skip


def disk_full() -> list[Cell]:
    cells = []
    for stage in (*SMART, *list(TRAININGS)[1:]):
        if stage == "model":  # writes a pointer of some hundred bytes; a tmpfs gives whole pages
            continue
        moment, at = ("progress", 2) if stage in TRAININGS else ("start", 1)
        cells.append(
            Cell(world_of(stage), stage, "disk-full", FAILED, FULL, moment, at, "fill", machine="disk",
                 short=stage == "few-shot")
        )  # fmt: skip
    return cells


def no_permission() -> list[Cell]:
    """The store, the ledger or the working folders may not be written from a moment on."""
    places = {"problems": "artifacts", "few-shot": "ledger", "verify": "artifacts/attempts", "train": "work",
              "merge": "artifacts/model", "sample": "ledger", "evaluation": "artifacts/evaluation",
              "report": "artifacts/report", "grpo": "work", "planner-sft": "work",
              "planner-grpo": "work", "multiturn-train": "work"}  # fmt: skip
    return [
        Cell(world_of(stage), stage, "no-permission", FAILED, DENIED, "start", 1, "forbid", {"folders": [folder]},
             machine="obedient")
        for stage, folder in places.items()
    ]  # fmt: skip


def read_only_cache() -> list[Cell]:
    """Prefect's results cannot be kept: the run goes on and says so, and the stage is made again."""
    return [
        Cell(world_of(stage), stage, "read-only-cache", DONE, "its result could not be kept in", "start", 1, "forbid",
             {"folders": ["results"]}, machine="obedient")
        for stage in ("verify", "report", "train")
    ]  # fmt: skip


def truncated_checkpoint() -> list[Cell]:
    return [
        Cell(
            world, stage, "truncated-checkpoint", KILLED, "", *moments(stage), "signal", {"number": "SIGKILL"}
        )
        for stage, (world, _) in TRAININGS.items()
    ]


def altered() -> list[Cell]:
    """An input changes on the disk in the moment in which it is to be read."""
    inputs = {
        "few-shot": ("problems", "eval-held-out.jsonl"), "verify": ("completions", "completions.jsonl"),
        "analysis": ("attempts", "attempts.jsonl"), "records-epoch1": ("attempts", "attempts.jsonl"),
        "train": ("records", "train.jsonl"), "merge": ("adapter", "adapter_config.json"),
        "retry": ("turn1", "attempts.jsonl"), "evaluation": ("few_shot", "attempts.jsonl"),
        "report": ("evaluations", "evaluation.json"), "grpo": ("problems", "train.jsonl"),
        "planner-sft": ("records", "train.jsonl"), "planner-grpo": ("problems", "train.jsonl"),
        "multiturn-train": ("problems", "train.jsonl"),
    }  # fmt: skip
    return [
        Cell(world_of(stage), stage, "altered-input", FAILED, r"was altered\. Run the same command again", "start", 1,
             "alter", {"argument": argument, "file": file}, short=stage == "records-epoch1")
        for stage, (argument, file) in inputs.items()
    ]  # fmt: skip


def out_of_memory() -> list[Cell]:
    """Not `grpo`: it starts threads, and CPython waits forever for one that died of it (docs/faults.md)."""
    return [
        Cell(world, stage, "out-of-memory", FAILED, "memory", "progress", 2, "memory", {"program": program})
        for stage, (world, program) in TRAININGS.items()
        if stage != "grpo"
    ]


def two_at_once() -> list[Cell]:
    return [
        Cell(world_of(stage), stage, "two-at-once", DONE)
        for stage in ("few-shot", "analysis", "report", "train", "multiturn-train")
    ]


def clock_back() -> list[Cell]:
    return [
        Cell(world_of(stage), stage, "clock-back", DONE, "", *moments(stage), "clock", machine="clock")
        for stage in ("few-shot", "report", "train", "multiturn-train")
    ]


CELLS = [
    *flow_killed(), *terminated(), *child_killed(), *engine_killed(), *server_killed(), *disk_full(),
    *no_permission(), *read_only_cache(), *truncated_checkpoint(), *altered(), *out_of_memory(), *two_at_once(),
    *clock_back(),
]  # fmt: skip
assert len({cell.name for cell in CELLS}) == len(CELLS)

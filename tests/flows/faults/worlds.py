"""Homes of finished, undisturbed runs, from which every cell gets a copy that owes one stage.

A home always lies at the same path, since references hold addresses: a cell's home is a fresh copy of the reference at
the path where the reference was made.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.store import Store
from tests.flows.faults.commands import Commands, request_of

SECONDS = 1500
"""For one command, on a machine with much else to do."""


@dataclass(frozen=True)
class World:
    """One pipeline with its models and data: the command, and what an undisturbed run of it left."""

    folder: Path
    argv: list[str]
    digests: dict[str, str]
    """By stage key."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def reference(self) -> Path:
        return self.folder / "reference"

    @property
    def computed(self) -> Path:
        """Where `planting` notes the stages that are computed."""
        return self.folder / "computed"

    def prepare(self, stage: str) -> None:
        """A fresh home in which one computation of `stage` is owed, with its completions."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.computed.unlink(missing_ok=True)
        copy(self.reference, self.home)
        owed = min(
            (m for m in manifests(self.home) if m["stage"] == stage), key=lambda found: str(found["label"])
        )
        (self.home / "results" / owed["key"]).unlink()
        shutil.rmtree(self.home / "artifacts" / owed["kind"] / owed["digest"])

    def problems(self, home: Path) -> list[str]:
        """What is not as an undisturbed run left it."""
        found = {m["key"]: m["digest"] for m in manifests(home)}
        wrong = [
            f"{key} is {found.get(key)}" for key, digest in self.digests.items() if found.get(key) != digest
        ]
        wrong += [f"{key} is too much" for key in found if key not in self.digests]
        patterns = ("work/*", "artifacts/.tmp-*", "artifacts/*/.*tmp*", "results/.*tmp*", "ledger/*/.*tmp*")
        return [*wrong, *(f"{path} is left" for pattern in patterns for path in home.glob(pattern))]


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def manifests(home: Path) -> list[dict[str, Any]]:
    """Metadata, kind and digest of every artifact."""
    store = Store(home / "artifacts")
    return [{**store.manifest(ref).metadata, "kind": ref.kind, "digest": ref.digest} for ref in store.list()]


def finish(folder: Path, argv: list[str], commands: Commands) -> World:
    """Run `argv` undisturbed in `folder / "home"` and keep what it leaves."""
    log, home = folder / "reference.log", folder / "home"
    request = request_of(argv, log, home, {"computed": str(folder / "undisturbed")})
    assert commands.wait(commands.start(request), SECONDS) == 0, log.read_text()[-3000:]
    # Completions would be found instead of made; runs, logs and locks are of no account.
    for name in ("ledger", "runs", "locks"):
        shutil.rmtree(home / name, ignore_errors=True)
    home.rename(folder / "reference")
    return World(folder, argv, {m["key"]: m["digest"] for m in manifests(folder / "reference")})


def make_smart(folder: Path, epochs: int = 1) -> list[str]:
    """SMART on 40 questions with scripted answers and real training of a tiny model."""
    from tests.flows.test_smart import settings
    from tests.support.tiny_llama import make_model

    small = ["data.pool.word_problems.limit=40", "train.batch_size=4", "train.save_steps=2", "train.eval_steps=2",
             "train.min_records=4", f"epochs={epochs}", "epoch1.max_records=24", "epoch2.max_records=24",
             "epoch2.samples=2"]  # fmt: skip
    return ["run", "smart-demo", *settings(make_model(folder / "model"), *small)]


def make_smart_grpo(folder: Path) -> list[str]:
    """SMART with GRPO after its only epoch: a tiny model that answers, and steps enough for four reports."""
    from tests.flows.test_smart_grpo import GRPO, overrides_of

    return ["run", "smart-demo", *overrides_of(folder), *GRPO, "grpo.max_steps=12"]


def make_planner(folder: Path) -> list[str]:
    """A tiny model that has learnt to plan: warm start and GRPO, with the engine in a process of its own.

    The warm start has so many steps that a fault planted at one of them finds it at work still.
    """
    from tests.flows.test_planner import overrides_of

    small = ["grpo.max_steps=4", "sft.train.epochs=20", "sft.train.save_steps=2"]
    return ["run", "planner-demo", *overrides_of(folder), *small]


def make_multiturn(folder: Path) -> list[str]:
    """MLMT on the toy task."""
    from tests.flows.test_multiturn import words
    from tests.support import signal

    ready = signal.make_ready(folder / "base")
    return ["run", "mlmt-math", *words(folder, ready, "hint", iterations=6, save_freq=2, eval_freq=4)]


MAKERS: dict[str, Callable[[Path], list[str]]] = {
    "smart": make_smart, "smart-later": lambda folder: make_smart(folder, 2), "smart-grpo": make_smart_grpo,
    "planner": make_planner, "multiturn": make_multiturn,
}  # fmt: skip


def make(name: str, folder: Path, commands: Commands) -> World:
    folder.mkdir(parents=True)
    return finish(folder, MAKERS[name](folder), commands)


def save(world: World) -> None:
    """Keep a world for another session (see the fixture)."""
    (world.folder / "world.json").write_text(json.dumps([world.argv, world.digests]))


def load(folder: Path) -> World:
    argv, digests = json.loads((folder / "world.json").read_text())
    return World(folder, argv, digests)

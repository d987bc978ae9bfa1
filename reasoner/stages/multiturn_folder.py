"""A multi-turn training in a plain folder, without Prefect: what the original's driver did.

    RUN/config.json  problems/  work/ (checkpoints)  logs/  checkpoints/{solver,guidance,value}/ (or `save_path`)

The same command again goes on where it was: problems are prepared once, training resumes from its last checkpoint, a
finished run says so. Another training's result in `save_path` is put aside as NAME.old.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.smart import ModelConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import UsageError
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.models import resolve
from reasoner.prompts.turns import load_turns
from reasoner.stages import multiturn as work
from reasoner.tracking import Run, tracked
from reasoner.tracking.episodes import asked_for, send_metrics, send_tables, settings_of
from reasoner.training.checkpoints import write_json
from reasoner.workbench import ModelFolder, Workbench

DONE = "done.json"
Show = Callable[[str, int, int, dict[str, Any]], None]
Say = Callable[[str], None]


class MultiTurnFolder:
    """One run. `show` draws progress, `say` prints a line."""

    def __init__(self, folder: Path, config: MultiTurnConfig, show: Show, say: Say) -> None:
        self.folder, self.config, self._show, self._say = folder.expanduser().resolve(), config, show, say
        given = config.save_path
        self.save_path = Path(given).expanduser().resolve() if given else self.folder / "checkpoints"
        if self.save_path == self.folder or self.folder.is_relative_to(self.save_path):
            raise UsageError(
                f"save_path {self.save_path} holds the run's folder {self.folder}: name another one"
            )

    def train(self) -> Path:
        """Train to the end; returns the folder with solver/, guidance/ and value/."""
        config = self.config
        _made(self.folder)
        (self.folder / "config.json").write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")
        home = Home.from_environment()
        base = self._model(config.model, home)
        other = (
            self._model(ModelConfig(path=config.correction_model), home) if config.correction_model else None
        )
        tracking = asked_for(config, self.folder)
        problems = self._problems()
        key = self._key(problems, base, other)
        if self._finished(key):
            self._say("this run is done; change a key or the run folder for another one")
            return self.save_path
        result = self.folder / "work" / "result"
        shutil.rmtree(result, ignore_errors=True)
        with ExitStack() as stack:
            engines = stack.enter_context(EnginePool(_made(self.folder / "logs")))
            tracking = tracking and replace(tracking, run_id=key[:16])
            shown = stack.enter_context(tracked(tracking, self._say, settings_of(config)))
            bench = Workbench(
                home, engines, _made(self.folder / "work"), self.folder / "logs", self._reporter(shown)
            )
            work.train(result, bench, problems, base, other, config.learned())
            send_tables(shown, result)
        self._place(result)
        write_json(self.folder / DONE, {"key": key, "save_path": str(self.save_path)})
        return self.save_path

    def _problems(self) -> Path:
        """Prepared problems; again only where data or settings have changed."""
        config, folder = self.config, self.folder / "problems"
        verify = config.verify
        key = content_hash([config.problems, config.env_type, work.fingerprint(config.problems)])
        if _read(folder / "key.json").get("key") != key:
            shutil.rmtree(folder, ignore_errors=True)
            facts = work.prepare(
                _made(folder), config.problems, config.env_type, verify.workers, verify.timeout
            )
            write_json(folder / "key.json", {"key": key, "facts": facts})
        sizes = _read(folder / "key.json")["facts"]["sizes"]
        self._say("problems: " + ", ".join(f"{name} {size}" for name, size in sizes.items()))
        return folder

    def _model(self, model: ModelConfig, home: Home) -> ModelFolder:
        found = resolve(model, home.path)
        return ModelFolder(found.folder, found.fingerprint, model.path)

    def _key(self, problems: Path, base: ModelFolder, other: ModelFolder | None) -> str:
        """What the result depends on."""
        return content_hash([
            _read(problems / "key.json")["key"], base.fingerprint, other.fingerprint if other else None,
            self.config.learned(), load_turns(self.config.prompts),
        ])  # fmt: skip

    def _finished(self, key: str) -> bool:
        done = _read(self.folder / DONE)
        there = (self.save_path / "training.json").is_file()
        return done.get("key") == key and done.get("save_path") == str(self.save_path) and there

    def _reporter(self, shown: Run) -> Callable[[int, int, dict[str, Any]], None]:
        def reported(done: int, total: int, facts: dict[str, Any]) -> None:
            if "step" in facts:
                send_metrics(shown, facts)
            names = ("acc_t1", "acc_t2", "validation_acc_t1", "validation_acc_t2")
            self._show("train", done, total, {name: facts[name] for name in names if name in facts})

        return reported

    def _place(self, result: Path) -> None:
        """Put the result where it was asked for; what another training left there is put aside."""
        if self.save_path.exists() and any(self.save_path.iterdir()):
            old = self.save_path.with_name(self.save_path.name + ".old")
            shutil.rmtree(old, ignore_errors=True)
            self.save_path.rename(old)
            self._say(f"an earlier result is in {old}")
        self.save_path.parent.mkdir(parents=True, exist_ok=True)
        if self.save_path.exists():
            self.save_path.rmdir()
        shutil.move(result, self.save_path)


def _read(path: Path) -> dict[str, Any]:
    """A JSON file that may not be there yet."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder

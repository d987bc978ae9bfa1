"""SMART step by step in one plain folder, as the original scripts work: no server, no cache, files to look at.

    DIR/config.json            the configuration of every step; code.json and code.zip say what code
    DIR/problems/              train, validation and evaluation questions
    DIR/few-shot/cot-1/        completions and attempts of one strategy and part; cot-eval-NAME of an evaluation set
    DIR/analysis.json
    DIR/epoch1/{records,adapter,model}/    DIR/epoch2/{turn1,turn2,records,adapter,model}/
    DIR/evaluation/            one folder a model and set

Completions still go through the ledger and training through its checkpoints, so a step that was cut off goes on.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from reasoner.config.smart import ModelConfig, SmartConfig, TrainConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.methods.smart.attempts import Attempt
from reasoner.models import ResolvedModel, resolve
from reasoner.provenance import save_code
from reasoner.records import Problem, Strategy
from reasoner.report.headline import Answers
from reasoner.stages import generation, policy, smart, training, verdicts
from reasoner.stages import problems as questions
from reasoner.stages import smart_asked as asked
from reasoner.stages.smart_merge import export_checkpoints
from reasoner.tracking import Tracking
from reasoner.tracking.evaluations import log_tables
from reasoner.workbench import ModelFolder, Workbench

ShowProgress = Callable[[str, int, int, dict[str, Any]], None]


@dataclass(frozen=True)
class SmartFolder:
    """One folder of steps. Every step returns what it counted; DataError says which step is missing before it."""

    path: Path
    config: SmartConfig
    show: ShowProgress

    @classmethod
    def open(cls, path: Path, show: ShowProgress) -> "SmartFolder":
        """A folder that an earlier `infer` made."""
        if not (path / "config.json").is_file():
            raise UsageError(
                f"{path} holds no SMART run (no config.json); start with: reasoner smart-infer MODEL {path} cot 1"
            )
        return cls(path, asked.saved_config(path), show)

    @classmethod
    def create(cls, path: Path, config: SmartConfig, show: ShowProgress) -> "SmartFolder":
        """A new folder, or the one that is there with this very configuration; questions are prepared once.

        Raises UsageError for a control whose records these steps do not make and for another configuration than the
        folder's, ModelError for a model that can't be used; neither leaves anything behind.
        """
        control = config.control.kind
        if control not in ("none", "random_strategy"):
            raise UsageError(
                f"these steps make SMART's own records, not those of control={control}; run the whole of it: "
                f"reasoner run smart-epoch2 control={control}"
            )
        asked.require_no_file(path, "DIR")
        text = config.model_dump_json(indent=1) + "\n"
        saved = path / "config.json"
        if saved.is_file() and saved.read_text() != text:
            asked.refuse_other(path, config)
        folder = cls(path, config, show)
        folder._base()  # an unusable model is told before anything is written
        path.mkdir(parents=True, exist_ok=True)
        if not (path / "problems" / "left-out.jsonl").is_file():
            questions.prepare(_made(path / "problems"), config.data, config.seed)
        saved.write_text(text)
        save_code(path)
        return folder

    def infer(self, strategy: Strategy, part: int, evaluation_set: str = "") -> dict[str, Any]:
        """Few-shot solutions of part `part` (from 1 to PARTS) of the pool, and their verdicts.

        With `evaluation_set` of that set instead, whole: a baseline that `evaluate` compares with.
        """
        asked.require_part(part)
        name = f"{strategy}-eval-{evaluation_set}" if evaluation_set else f"{strategy}-{part}"
        problems = (
            self._evaluation_set(evaluation_set)
            if evaluation_set
            else generation.shard_of(self._pool(), part - 1, asked.PARTS)
        )
        base = self._base()
        asks = generation.few_shot_asks(problems, strategy, self.config.few_shot, base.path)
        out = _made(self.path / "few-shot" / name)
        with self._bench(f"few-shot {name}") as bench:
            decoding = generation.few_shot_decoding(self.config.few_shot, strategy)
            made = generation.generate(
                out, bench, asks, base, self.config.engine, decoding, 1, self.config.seed
            )
            return made | verdicts.judge(out, out, self.config.verify, bench.child_progress)

    def analyse(self) -> dict[str, Any]:
        """Accuracy a strategy, overlap and oracle, as `analysis.json` has them, and the parts that are not there."""
        smart.analyse(self.path, self._few_shot())
        found: dict[str, Any] = json.loads((self.path / "analysis.json").read_text())
        return {**found, "missing_parts": self._missing_parts()}

    def records(self, epoch: int) -> dict[str, Any]:
        """Training records of an epoch."""
        out, pool = _made(self._epoch(epoch) / "records"), questions.read_pool(self.path / "problems")
        if epoch == 1:
            made = smart.records_epoch1(out, pool, self._few_shot(), self.config.epoch1, self.config.seed)
            return {**made, "missing_parts": self._missing_parts()}
        first, second = (
            verdicts.read([self._need(self._epoch(epoch) / turn, f"smart-sample --epoch {epoch}")])
            for turn in ("turn1", "turn2")
        )
        shown = self._few_shot() if self.config.epoch2.disagreement_only else []
        return smart.records_later(
            out, pool, first, second, shown, self.config.epoch2, self.config.seed, epoch
        )

    def train(
        self,
        epoch: int,
        batch_size: int | None = None,
        grad_accum: int | None = None,
        record: Path | None = None,
    ) -> dict[str, Any]:
        """Fine-tune on the epoch's records and merge; the two numbers replace those of the configuration.

        With `record` the checkpoints are also left under RECORD/DATE-TIME/MODEL/checkpoint-N, each an adapter that
        `smart-merge` takes, with the code and the configuration beside them.
        """
        if record is not None:
            asked.require_no_file(record, "--record")
        records = self._need(self._epoch(epoch) / "records", f"smart-records {epoch}")
        changed = asked.batch(batch_size, grad_accum)
        start = self.model(epoch - 1) if self.config.epoch2.init == "epoch1" else self._base()
        adapter, merged = (_fresh(self._epoch(epoch) / name) for name in ("adapter", "model"))
        config = TrainConfig.model_validate(self.config.train_for(epoch).model_dump() | changed)
        prompt = self.config.prompt
        self._save(self._epoch(epoch), config)
        with self._bench(f"train epoch {epoch}") as bench:
            facts = training.train(adapter, bench, records, start, config, prompt, self.config.seed + epoch)
            merged_facts = training.merge(
                merged, bench, start, adapter, records, prompt, self.config.train.merge_dtype
            )
            done: dict[str, Any] = {"training": facts, "merge": merged_facts}
            if record is not None:
                done["record"] = self._record(record, bench.work / "sft", start, adapter, config)
        return done

    def sample(self, epoch: int, model: str | None = None) -> dict[str, Any]:
        """The policy's own samples for an epoch's records, both turns, with verdicts; by the epoch before's model.

        `model` is used instead of that. Raises UsageError for epoch 1, which few-shot solutions teach.
        """
        if self._epoch(epoch) == self._epoch(1):
            raise UsageError(
                "epoch 1 learns few-shot solutions (smart-infer), not samples; --epoch 2 samples epoch 1's model"
            )
        policy_model, pool = self._model_or(model, epoch - 1), self._pool()
        counts: dict[str, Any] = {}
        first: list[Attempt] | None = None
        with self._bench(f"sample epoch {epoch}") as bench:
            for name, how in (("turn1", self.config.sampling(1)), ("turn2", self.config.sampling(2))):
                out = _made(self._epoch(epoch) / name)
                policy.sample(
                    out, bench, pool, first, policy_model, how, self.config.epoch2, self.config.seed, epoch
                )
                counts[name] = verdicts.judge(out, out, self.config.verify, bench.child_progress)
                first = verdicts.read([out])
        return counts

    def evaluate(self, name: str, epoch: int, model: str | None = None) -> dict[str, Any]:
        """Everything that is measured of a policy on one set (METHODS 2.8); `model` instead of the epoch's own."""
        questions_, how = self._evaluation_set(name), self.config.evaluation
        policy_model = self._model_or(model, epoch)
        label = f"epoch {epoch}" if model is None else model
        out = _made(self.path / "evaluation" / f"{label}-{name}".replace(" ", "").replace("/", "_"))
        passes = [("turn1", self.config.answering(1), True),
                  ("turn2", self.config.answering(2), how.second_turn != "none"),
                  ("each", self.config.answering_each(), how.each_strategy != "none")]  # fmt: skip
        found: dict[str, list[Attempt]] = {}
        with self._bench(f"evaluate {name}") as bench:
            for step, ask, due in passes:
                if due:
                    folder, first = _made(out / step), found.get("turn1") if step == "turn2" else None
                    policy.answer(folder, bench, questions_, first, policy_model, ask, self.config.seed)
                    verdicts.judge(folder, folder, self.config.verify, bench.child_progress)
                    found[step] = verdicts.read([folder])
        answers = Answers(label, found["turn1"], "policy", found.get("turn2", []), found.get("each", []))
        few_shot = verdicts.read(self._shown(f"*-eval-{name}"))
        smart.evaluate(out, name, few_shot, [answers], how)
        row: dict[str, Any] = json.loads((out / "evaluation.json").read_text())["rows"][-1]
        shown = self.tracking(f"evaluation {label}", "evaluation")
        log_tables(shown, {name: {label: row}}, lambda line: print(line, file=sys.stderr, flush=True))
        return {key: value for key, value in row.items() if value not in (None, [])}

    def model(self, epoch: int) -> ModelFolder:
        """The merged model of an epoch, which adapters trained on it name by its path; epoch 0 is the base."""
        if epoch == 0:
            return self._base()
        folder = self._need(self._epoch(epoch) / "model", f"smart-train --epoch {epoch}")
        return ModelFolder(folder, self._resolved(str(folder)).fingerprint, str(folder))

    def tracking(self, name: str, job: str, run_id: str | None = None) -> Tracking | None:
        """The W&B run `name` of this folder, if the configuration asks for one."""
        config = self.config.tracking
        asked = Tracking.of(config.wandb, config.project, self.path.resolve().name, self.path)
        return asked and asked.run(name, job, run_id)

    def _model_or(self, path: str | None, epoch: int) -> ModelFolder:
        if path is None:
            return self.model(epoch)
        found = self._resolved(path)
        return ModelFolder(found.folder, found.fingerprint, path)

    def _resolved(self, path: str) -> ResolvedModel:
        return resolve(ModelConfig(path=path), Home.from_environment().path)

    def _evaluation_set(self, name: str) -> list[Problem]:
        folder = self.path / "problems"
        if not (folder / f"eval-{name}.jsonl").is_file():
            there = sorted(p.stem.removeprefix("eval-") for p in folder.glob("eval-*.jsonl"))
            raise UsageError(f"no evaluation set {name!r} in {self.path}; there are: {', '.join(there)}")
        return questions.read(folder, f"eval-{name}")

    def _save(self, folder: Path, training_config: TrainConfig) -> None:
        """What a training was made with: the whole configuration, the training's own, and the code."""
        (_made(folder) / "config.json").write_text(self.config.model_dump_json(indent=1) + "\n")
        (folder / "train.json").write_text(training_config.model_dump_json(indent=1) + "\n")
        save_code(folder)

    def _record(
        self, record: Path, work: Path, start: ModelFolder, adapter: Path, config: TrainConfig
    ) -> str:
        """The original's layout; see `train`."""
        moment = datetime.now().strftime("%Y-%m-%d-%H-%M-%S")
        out = record / moment / self.config.model.path.strip("/").replace("/", "_").replace(":", "_")
        self._save(out, config)
        export_checkpoints(work, out, start.path, adapter)
        return str(out)

    def _base(self) -> ModelFolder:
        found = resolve(self.config.model, Home.from_environment().path)
        return ModelFolder(found.folder, found.fingerprint, self.config.model.path)

    def _pool(self) -> list[Problem]:
        return questions.read(self.path / "problems", "pool")

    def _shown(self, pattern: str) -> list[Path]:
        """Folders of few-shot attempts; a step that was cut off has left none."""
        return sorted(path.parent for path in (self.path / "few-shot").glob(f"{pattern}/{verdicts.FILE}"))

    def _few_shot(self) -> list[Attempt]:
        """The few-shot attempts at the pool."""
        parts = [path for path in self._shown(f"*-[1-{asked.PARTS}]") if "-eval-" not in path.name]
        if not parts:
            raise DataError(
                f"{self.path} has no few-shot results; run: reasoner smart-infer MODEL {self.path} STRATEGY PART"
            )
        return verdicts.read(parts)

    def _missing_parts(self) -> dict[str, list[int]]:
        """The parts of the pool that no few-shot attempts are there of, by strategy."""
        done = {path.name for path in self._shown("*")}
        missing = {
            str(s): [part for part in range(1, asked.PARTS + 1) if f"{s}-{part}" not in done]
            for s in self.config.few_shot.strategies
        }
        return {strategy: parts for strategy, parts in missing.items() if parts}

    def _epoch(self, epoch: int) -> Path:
        if epoch < 1:
            raise UsageError(f"epochs count from 1, not {epoch}")
        return self.path / f"epoch{epoch}"

    def _need(self, folder: Path, command: str) -> Path:
        if not folder.is_dir() or not any(folder.iterdir()):
            raise DataError(f"{folder} is not there yet; run: reasoner {command} --dir {self.path}")
        return folder

    def _bench(self, label: str) -> "_Bench":
        return _Bench(self, label)


class _Bench:
    """A workbench whose engine ends with the step."""

    def __init__(self, folder: SmartFolder, label: str) -> None:
        self._folder, self._label = folder, label
        idle = folder.config.compute.idle_seconds
        self._engines = EnginePool(_made(folder.path / "logs"), idle_seconds=idle)

    def __enter__(self) -> Workbench:
        engines = self._engines.__enter__()
        work = _made(self._folder.path / "work" / self._label.replace(" ", "-"))

        def show(done: int, total: int, facts: dict[str, Any]) -> None:
            self._folder.show(self._label, done, total, facts)

        tracking = self._folder.tracking(self._label, "train", content_hash(str(work.resolve()), 16))
        compute = self._folder.config.compute
        return Workbench(
            Home.from_environment(), engines, work, self._folder.path / "logs", show, tracking, compute
        )

    def __exit__(self, *error: Any) -> None:
        self._engines.__exit__(*error)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _fresh(folder: Path) -> Path:
    """An absent folder below an existing one; an earlier result is put aside as NAME.old."""
    import shutil

    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        old = folder.with_name(folder.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    return folder

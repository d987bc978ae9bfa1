"""SMART step by step in one plain folder, as the original scripts work: no server, no cache, files to look at.

    DIR/config.json            the configuration of every step
    DIR/problems/              train, validation and evaluation questions
    DIR/few-shot/cot-1/        completions and attempts of one strategy and part
    DIR/analysis.json
    DIR/epoch1/{records,adapter,model}/    DIR/epoch2/{turn1,turn2,records,adapter,model}/
    DIR/evaluation/            one file a model and set

Completions still go through the ledger and training through its checkpoints, so a step that was cut off goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.smart import SmartConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.ids import content_hash, file_hash
from reasoner.methods.smart.evaluation import evaluate
from reasoner.models import resolve
from reasoner.records import Strategy
from reasoner.stages import generation, smart, training, verdicts
from reasoner.stages import problems as questions
from reasoner.workbench import ModelFolder, Workbench

PARTS = 5
"""The original's number of parts of the training pool."""

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
        return cls(path, SmartConfig.model_validate_json((path / "config.json").read_text()), show)

    @classmethod
    def create(cls, path: Path, config: SmartConfig, show: ShowProgress) -> "SmartFolder":
        """A new folder, or the one that is there with this very configuration; questions are prepared once."""
        path.mkdir(parents=True, exist_ok=True)
        text = config.model_dump_json(indent=1) + "\n"
        saved = path / "config.json"
        if saved.is_file() and saved.read_text() != text:
            raise UsageError(
                f"{path} was made with another model or configuration (see {saved}); choose another folder"
            )
        folder = cls(path, config, show)
        if not (path / "problems" / "left-out.jsonl").is_file():
            questions.prepare(_made(path / "problems"), config.data, config.seed)
        saved.write_text(text)
        return folder

    def infer(self, strategy: Strategy, part: int) -> dict[str, Any]:
        """Few-shot solutions of part `part` (from 1 to PARTS) of the pool, and their verdicts."""
        if not 1 <= part <= PARTS:
            raise UsageError(f"PART is a number from 1 to {PARTS}, not {part}")
        asked = generation.shard_of(self._pool(), part - 1, PARTS)
        asks = generation.few_shot_asks(asked, strategy, self.config.few_shot)
        out = _made(self.path / "few-shot" / f"{strategy}-{part}")
        with self._bench(f"few-shot {strategy} {part}") as bench:
            decoding = generation.few_shot_decoding(self.config.few_shot.decoding, strategy)
            made = generation.generate(
                out, bench, asks, self._base(), self.config.engine, decoding, 1, self.config.seed
            )
            return made | verdicts.judge(out, out, self.config.verify, bench.child_progress)

    def analyse(self) -> dict[str, Any]:
        return smart.analyse(self.path, self._few_shot())

    def records(self, epoch: int) -> dict[str, Any]:
        """Training records of an epoch."""
        out, pool = _made(self._epoch(epoch) / "records"), questions.read_pool(self.path / "problems")
        if epoch == 1:
            return smart.records_epoch1(out, pool, self._few_shot(), self.config.epoch1, self.config.seed)
        first, second = (
            verdicts.read([self._need(self._epoch(epoch) / turn, "smart-sample")])
            for turn in ("turn1", "turn2")
        )
        return smart.records_later(out, pool, first, second, self.config.epoch2, self.config.seed, epoch)

    def train(self, epoch: int) -> dict[str, Any]:
        """Fine-tune on the epoch's records and merge."""
        records = self._need(self._epoch(epoch) / "records", f"smart-records {epoch}")
        start = self.model(epoch - 1) if self.config.epoch2.init == "epoch1" else self._base()
        adapter, merged = (_fresh(self._epoch(epoch) / name) for name in ("adapter", "model"))
        config, prompt = self.config.train_for(epoch), self.config.prompt
        with self._bench(f"train epoch {epoch}") as bench:
            facts = training.train(adapter, bench, records, start, config, prompt, self.config.seed + epoch)
            merged_facts = training.merge(
                merged, bench, start, adapter, records, prompt, self.config.train.merge_dtype
            )
        return {"training": facts, "merge": merged_facts}

    def sample(self, epoch: int) -> dict[str, Any]:
        """The policy's own samples, both turns, with verdicts."""
        model, config, pool = self.model(epoch - 1), self.config.epoch2, self._pool()
        seed, counts = self.config.seed + epoch, {}
        tried = None
        with self._bench(f"sample epoch {epoch}") as bench:
            for turn in ("turn1", "turn2"):
                out = _made(self._epoch(epoch) / turn)
                asks = generation.policy_asks(pool, tried, self.config.prompt, model.path)
                generation.generate(
                    out, bench, asks, model, self.config.engine, config.decoding, config.samples, seed
                )
                counts[turn] = verdicts.judge(out, out, self.config.verify, bench.child_progress)
                if turn == "turn1":
                    tried, _ = smart.second_turns(pool, verdicts.read([out]), config, self.config.seed, epoch)
        return counts

    def evaluate(self, name: str, epoch: int) -> dict[str, Any]:
        """First-attempt accuracy of an epoch's policy on one evaluation set."""
        split = self.path / "problems" / f"eval-{name}.jsonl"
        if not split.is_file():
            there = sorted(p.stem.removeprefix("eval-") for p in split.parent.glob("eval-*.jsonl"))
            raise DataError(f"no evaluation set {name!r} in {self.path}; there are: {', '.join(there)}")
        model, out = self.model(epoch), _made(self.path / "evaluation" / f"epoch{epoch}-{name}")
        asks = generation.policy_asks(
            questions.read(split.parent, f"eval-{name}"), None, self.config.prompt, model.path
        )
        with self._bench(f"evaluate {name}") as bench:
            decoding = self.config.evaluation.decoding
            generation.generate(out, bench, asks, model, self.config.engine, decoding, 1, self.config.seed)
            verdicts.judge(out, out, self.config.verify, bench.child_progress)
        found = evaluate(verdicts.read([out]), confidence=self.config.evaluation.confidence).to_row()
        smart.write_json(out / "evaluation.json", found)
        return found

    def model(self, epoch: int) -> ModelFolder:
        """The merged model of an epoch; epoch 0 is the base."""
        if epoch == 0:
            return self._base()
        folder = self._need(self._epoch(epoch) / "model", "smart-train")
        weights = sorted(folder.glob("*.safetensors"))
        return ModelFolder(
            folder, content_hash([file_hash(path) for path in weights]), self.config.model.path
        )

    def _base(self) -> ModelFolder:
        found = resolve(self.config.model, Home.from_environment().path)
        return ModelFolder(found.folder, found.fingerprint, self.config.model.path)

    def _pool(self) -> list[Any]:
        return questions.read(self.path / "problems", "pool")

    def _few_shot(self) -> list[Any]:
        parts = sorted(path.parent for path in (self.path / "few-shot").glob(f"*/{verdicts.FILE}"))
        if not parts:
            raise DataError(
                f"{self.path} has no few-shot results; run: reasoner smart-infer MODEL {self.path} STRATEGY PART"
            )
        return verdicts.read(parts)

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
        self._engines = EnginePool(_made(folder.path / "logs"))

    def __enter__(self) -> Workbench:
        engines = self._engines.__enter__()
        work = _made(self._folder.path / "work" / self._label.replace(" ", "-"))

        def show(done: int, total: int, facts: dict[str, Any]) -> None:
            self._folder.show(self._label, done, total, facts)

        return Workbench(Home.from_environment(), engines, work, self._folder.path / "logs", show)

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

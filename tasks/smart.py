"""SMART's stages as cached tasks: open the references, call the work in `reasoner.stages`, keep what it counts."""

from pathlib import Path
from typing import Any

from reasoner.config.data import DataConfig
from reasoner.config.smart import (
    Dtype,
    EngineConfig,
    Epoch1Config,
    Epoch2Config,
    EvaluationConfig,
    FewShotConfig,
    ModelConfig,
    PromptConfig,
    SamplingConfig,
    TrainConfig,
    VerifyConfig,
)
from reasoner.home import Home
from reasoner.models import resolve
from reasoner.prompts import load_exemplars, load_template
from reasoner.records import ArtifactRef, Strategy
from reasoner.stages import generation, smart, training, verdicts
from reasoner.stages import problems as questions
from reasoner.stages import report as reporting
from reasoner.store import Draft, open_ref, verify_ref
from reasoner.verifiers import solutions
from reasoner.workbench import ModelFolder
from tasks.context import bench
from tasks.stage import stage


def prompt_text(arguments: dict[str, Any]) -> Any:
    """The policy's prompt belongs to the key of every stage that renders it."""
    return load_template(arguments["prompt"].template)


@stage("problems", kind="problems", version=1, external=lambda a: questions.fingerprint(a["data"]))
def prepare_problems(out: Draft, data: DataConfig, seed: int) -> None:
    """Load the questions, check the golds, split, and refuse evaluation questions in the training pool."""
    out.metadata |= questions.prepare(out.path, data, seed)


@stage("model", kind="model", version=1, outside=True)
def prepare_model(out: Draft, model: ModelConfig) -> Path:
    """The base model on disk: found, fetched from the Hub, or converted from a packaged file."""
    found = resolve(model, Home.from_environment().path)
    out.metadata |= {"model": model.path, "revision": found.revision}
    return found.folder


@stage(
    "few-shot", kind="completions", version=1, gpu=True,
    external=lambda a: load_exemplars(a["few_shot"].exemplars), label=lambda a: f"{a['strategy']} {a['split']}",
)  # fmt: skip
def few_shot(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, split: str, strategy: Strategy, shard: int,
    few_shot: FewShotConfig, engine: EngineConfig, seed: int,
) -> None:  # fmt: skip
    """Solve every question of a split with one strategy, shown worked examples; greedy by default."""
    asked = generation.shard_of(questions.read(open_ref(problems), split), shard, few_shot.shards)
    asks = generation.few_shot_asks(asked, strategy, few_shot)
    decoding = generation.few_shot_decoding(few_shot.decoding, strategy)
    out.metadata |= generation.generate(out.path, bench(), asks, folder_of(model), engine, decoding, 1, seed)


@stage("verify", kind="attempts", version=1, external=lambda a: solutions.VERSION)
def verify(out: Draft, completions: ArtifactRef, config: VerifyConfig) -> None:
    """Judge completions; needs no accelerator, so a mended verifier re-scores without one."""
    out.metadata |= verdicts.judge(out.path, open_ref(completions), config, bench().child_progress)


@stage("analysis", kind="analysis", version=1)
def analyse(out: Draft, attempts: tuple[ArtifactRef, ...]) -> None:
    """How the three strategies overlap on the pool."""
    out.metadata |= smart.analyse(out.path, verdicts.read(folders(attempts)))


@stage("records-epoch1", kind="records", version=1)
def records_epoch1(
    out: Draft, problems: ArtifactRef, attempts: tuple[ArtifactRef, ...], config: Epoch1Config, seed: int
) -> None:
    """Training records from correct few-shot solutions (METHODS 2.5)."""
    pool = questions.read_pool(open_ref(problems))
    out.metadata |= smart.records_epoch1(out.path, pool, verdicts.read(folders(attempts)), config, seed)


@stage("sample", kind="completions", version=1, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']} turn 1")  # fmt: skip
def sample(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, config: Epoch2Config, prompt: PromptConfig,
    engine: EngineConfig, seed: int, epoch: int,
) -> None:  # fmt: skip
    """The policy's own first attempts at the pool, several a question (METHODS 2.7)."""
    served = folder_of(model)
    asks = generation.policy_asks(questions.read(open_ref(problems), "pool"), None, prompt, served.path)
    out.metadata |= generation.generate(
        out.path, bench(), asks, served, engine, config.decoding, config.samples, seed + epoch
    )


@stage("retry", kind="completions", version=1, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']} turn 2")  # fmt: skip
def retry(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, turn1: ArtifactRef, config: Epoch2Config,
    prompt: PromptConfig, engine: EngineConfig, seed: int, epoch: int,
) -> None:  # fmt: skip
    """Second attempts where a strategy failed, told which one."""
    served, pool = folder_of(model), questions.read(open_ref(problems), "pool")
    tried, counts = smart.second_turns(pool, verdicts.read([open_ref(turn1)]), config, seed, epoch)
    asks = generation.policy_asks(pool, tried, prompt, served.path)
    out.metadata |= {"queue": counts} | generation.generate(
        out.path, bench(), asks, served, engine, config.decoding, config.samples, seed + epoch
    )


@stage("records-later", kind="records", version=1, label=lambda a: f"epoch {a['epoch']}")
def records_later(
    out: Draft, problems: ArtifactRef, turn1: ArtifactRef, turn2: ArtifactRef, config: Epoch2Config, seed: int,
    epoch: int,
) -> None:  # fmt: skip
    """Training records from the policy's own samples: strict majority inside a strategy."""
    pool = questions.read_pool(open_ref(problems))
    first, second = (verdicts.read([open_ref(ref)]) for ref in (turn1, turn2))
    out.metadata |= smart.records_later(out.path, pool, first, second, config, seed, epoch)


@stage("train", kind="adapter", version=1, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']}")  # fmt: skip
def train(
    out: Draft, records: ArtifactRef, model: ArtifactRef, config: TrainConfig, prompt: PromptConfig,
    seed: int, epoch: int,
) -> None:  # fmt: skip
    """Fine-tune a LoRA adapter on the records, completions only."""
    out.metadata |= training.train(
        out.path, bench(), open_ref(records), folder_of(model), config, prompt, seed + epoch
    )


@stage("merge", kind="model", version=1, gpu=True, label=lambda a: f"epoch {a['epoch']}")
def merge(
    out: Draft, model: ArtifactRef, adapter: ArtifactRef, records: ArtifactRef, prompt: PromptConfig, dtype: Dtype,
    epoch: int,
) -> None:  # fmt: skip
    """Merge the adapter into its base and check that the two answer alike."""
    out.metadata |= training.merge(
        out.path, bench(), folder_of(model), open_ref(adapter), open_ref(records), prompt, dtype
    )


@stage("answer", kind="completions", version=1, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']} {a['split']}")  # fmt: skip
def answer(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, split: str, decoding: SamplingConfig, prompt: PromptConfig,
    engine: EngineConfig, seed: int, epoch: int,
) -> None:  # fmt: skip
    """The policy's single first attempt at every question of an evaluation set."""
    served = folder_of(model)
    asks = generation.policy_asks(questions.read(open_ref(problems), split), None, prompt, served.path)
    out.metadata |= generation.generate(out.path, bench(), asks, served, engine, decoding, 1, seed)


@stage("gate", kind="gate", version=1)
def require_strategies(out: Draft, attempts: tuple[ArtifactRef, ...], config: EvaluationConfig) -> None:
    """Stop before self-sampling where the policy does not name strategies."""
    out.metadata |= smart.require_strategies(out.path, verdicts.read(folders(attempts)), config)


@stage("evaluation", kind="evaluation", version=1, label=lambda a: a["name"])
def evaluate(
    out: Draft,
    name: str,
    few_shot: tuple[ArtifactRef, ...],
    answers: tuple[ArtifactRef, ...],
    config: EvaluationConfig,
) -> None:
    """One set: the base few-shot a strategy, then every epoch, with intervals and paired tests."""
    policies = [verdicts.read([open_ref(ref)]) for ref in answers]
    out.metadata |= smart.evaluate(out.path, name, verdicts.read(folders(few_shot)), policies, config)


@stage("report", kind="report", version=1)
def report(
    out: Draft, title: str, problems: ArtifactRef, base: ArtifactRef, analysis: ArtifactRef,
    evaluations: tuple[ArtifactRef, ...], records: tuple[ArtifactRef, ...], adapters: tuple[ArtifactRef, ...],
    seed: int,
) -> None:  # fmt: skip
    """The run as a page: headline tables, records, losses, what was left out."""
    facts = {"base model": folder_of(base).name, "base digest": base.digest[:16], "seed": str(seed)}
    reporting.write(
        out.path, title, facts, open_ref(problems), open_ref(analysis), folders(evaluations), folders(records),
        folders(adapters),
    )  # fmt: skip


def folders(refs: tuple[ArtifactRef, ...]) -> list[Path]:
    return [open_ref(ref) for ref in refs]


def folder_of(model: ArtifactRef) -> ModelFolder:
    """The model behind a reference; its fingerprint is the artifact's digest."""
    folder, manifest = open_ref(model), verify_ref(model)
    return ModelFolder(folder, model.digest, str(manifest.metadata.get("model", model.digest[:16])))

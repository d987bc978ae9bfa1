"""SMART's stages as cached tasks: open the references, call the work in `reasoner.stages`, keep what it counts.

The stages that make training records are in `tasks.smart_records`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reasoner.config.data import DataConfig
from reasoner.config.smart import (
    AskConfig,
    Dtype,
    EngineConfig,
    Epoch2Config,
    EvaluationConfig,
    FewShotConfig,
    ModelConfig,
    PromptConfig,
    SmartGrpoConfig,
    SmartVerifyConfig,
    TrainConfig,
)
from reasoner.home import Home
from reasoner.methods.smart.attempts import Attempt
from reasoner.models import resolve
from reasoner.prompts import load_exemplars, load_template
from reasoner.records import ArtifactRef, Strategy
from reasoner.report.headline import Answers
from reasoner.stages import generation, policy, smart, training, verdicts
from reasoner.stages import problems as questions
from reasoner.stages import report as reporting
from reasoner.store import Draft, open_ref, verify_ref
from reasoner.store.manifest import Manifest
from reasoner.verifiers import solutions
from reasoner.workbench import ModelFolder
from tasks.context import bench
from tasks.stage import stage

Kind = Literal["policy", "variant", "control"]
"""Of a training: the main one, SMART with other settings, or something else to compare with."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One model's answers to one set: first attempts; where they were made, second ones and one a strategy."""

    label: str
    kind: Kind
    turn1: ArtifactRef
    turn2: ArtifactRef | None = None
    each: ArtifactRef | None = None


Step = int | Literal["grpo"]
"""An epoch's number, or what comes after the last one."""


def step_label(step: Step) -> str:
    """`epoch 2`, or `grpo`."""
    return f"epoch {step}" if isinstance(step, int) else step


def answer_label(arguments: dict[str, Any]) -> str:
    """Tells the pass with every strategy forced from the one in which the policy chooses."""
    forced = " each strategy" if arguments["how"].choice == "each" else ""
    return f"{step_label(arguments['epoch'])} {arguments['split']}{forced}"


@dataclass(frozen=True, slots=True)
class Trained:
    """One training: its records, if it learns from any, and its adapter."""

    label: str
    records: ArtifactRef | None
    adapter: ArtifactRef


def prompt_text(arguments: dict[str, Any]) -> Any:
    """The policy's prompt belongs to the key of every stage that renders it."""
    prompt = arguments["prompt"] if "prompt" in arguments else arguments["how"].prompt
    return load_template(prompt.template)


def data_files(arguments: dict[str, Any]) -> Any:
    """The content of data files belongs to the key of the stage that reads them."""
    return questions.fingerprint(arguments["data"])


def exemplars(arguments: dict[str, Any]) -> Any:
    """The worked examples belong to the key of every stage that shows them."""
    return load_exemplars(arguments["few_shot"].exemplars)


def verifier_version(_: dict[str, Any]) -> int:
    """How answers are judged belongs to the key of the stage that judges."""
    return solutions.VERSION


def prompt_and_verifier(arguments: dict[str, Any]) -> Any:
    """Training by verdicts depends on both."""
    return [prompt_text(arguments), verifier_version(arguments)]


@stage("problems", kind="problems", version=1, external=data_files)
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
    external=exemplars, label=lambda a: f"{a['strategy']} {a['split']}",
)  # fmt: skip
def few_shot(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, split: str, strategy: Strategy, shard: int,
    few_shot: FewShotConfig, engine: EngineConfig, seed: int,
) -> None:  # fmt: skip
    """Solve every question of a split with one strategy, shown worked examples; greedy by default."""
    asked = generation.shard_of(questions.read(open_ref(problems), split), shard, few_shot.shards)
    base = folder_of(model)
    asks = generation.few_shot_asks(asked, strategy, few_shot, base.path)
    decoding = generation.few_shot_decoding(few_shot, strategy)
    out.metadata |= generation.generate(out.path, bench(), asks, base, engine, decoding, 1, seed)


def made_by(completions: ArtifactRef) -> str:
    """The label of the stage that a reference came from."""
    return str(verify_ref(completions).metadata.get("label", ""))


@stage("verify", kind="attempts", version=1,
       external=verifier_version, label=lambda a: made_by(a["completions"]))  # fmt: skip
def verify(out: Draft, completions: ArtifactRef, config: SmartVerifyConfig) -> None:
    """Judge completions; needs no accelerator, so a mended verifier re-scores without one."""
    out.metadata |= verdicts.judge(out.path, open_ref(completions), config, bench().child_progress)


@stage("analysis", kind="analysis", version=1)
def analyse(out: Draft, attempts: tuple[ArtifactRef, ...]) -> None:
    """How the three strategies overlap on the pool."""
    out.metadata |= smart.analyse(out.path, verdicts.read(folders(attempts)))


@stage("sample", kind="completions", version=2, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']} turn 1")  # fmt: skip
def sample(
    out: Draft,
    problems: ArtifactRef,
    model: ArtifactRef,
    how: AskConfig,
    config: Epoch2Config,
    seed: int,
    epoch: int,
) -> None:
    """The policy's own first attempts at the pool, several a question (METHODS 2.7)."""
    pool = questions.read(open_ref(problems), "pool")
    out.metadata |= policy.sample(out.path, bench(), pool, None, folder_of(model), how, config, seed, epoch)


@stage("retry", kind="completions", version=2, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']} turn 2")  # fmt: skip
def retry(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, turn1: ArtifactRef, how: AskConfig, config: Epoch2Config,
    seed: int, epoch: int,
) -> None:  # fmt: skip
    """Second attempts where a strategy failed, told which one."""
    pool, first = questions.read(open_ref(problems), "pool"), verdicts.read([open_ref(turn1)])
    out.metadata |= policy.sample(out.path, bench(), pool, first, folder_of(model), how, config, seed, epoch)


@stage("train", kind="adapter", version=3, gpu=True,
       external=prompt_text, label=lambda a: f"epoch {a['epoch']}")  # fmt: skip
def train(
    out: Draft, records: ArtifactRef, model: ArtifactRef, config: TrainConfig, prompt: PromptConfig,
    seed: int, epoch: int,
) -> None:  # fmt: skip
    """Fine-tune a LoRA adapter on the records, completions only."""
    out.metadata |= training.train(
        out.path, bench(), open_ref(records), folder_of(model), config, prompt, seed + epoch
    )


@stage("telling-questions", kind="problems", version=1)
def telling_questions(
    out: Draft, problems: ArtifactRef, attempts: ArtifactRef, pass_rate: tuple[float, float]
) -> None:
    """The training questions that some of the policy's samples solve and others do not."""
    judged = [(a.problem_id, a.right) for a in verdicts.read([open_ref(attempts)]) if a.scored]
    out.metadata |= questions.choose(out.path, open_ref(problems), judged, pass_rate)


@stage("grpo", kind="adapter", version=2, gpu=True, external=prompt_and_verifier)
def train_grpo(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, grpo: SmartGrpoConfig, prompt: PromptConfig,
    verify: SmartVerifyConfig, engine: EngineConfig, seed: int,
) -> None:  # fmt: skip
    """Train a fresh adapter on the training questions with GRPO, paid by the verdict on first attempts."""
    asked = questions.read(open_ref(problems), questions.TRAIN)
    out.metadata |= training.train_grpo(
        out.path,
        bench(),
        asked,
        folder_of(model),
        grpo=grpo,
        prompt=prompt,
        verify=verify,
        engine=engine,
        seed=seed,
    )


@stage("merge", kind="model", version=1, gpu=True, label=lambda a: step_label(a["epoch"]))
def merge(
    out: Draft, model: ArtifactRef, adapter: ArtifactRef, records: ArtifactRef, prompt: PromptConfig, dtype: Dtype,
    epoch: Step,
) -> None:  # fmt: skip
    """Merge the adapter into its base and check that the two answer alike."""
    out.metadata |= training.merge(
        out.path, bench(), folder_of(model), open_ref(adapter), open_ref(records), prompt, dtype
    )
    out.metadata["model"] = _first_base(verify_ref(model))


@stage("answer", kind="completions", version=2, gpu=True, external=prompt_text, label=answer_label)
def answer(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, split: str, how: AskConfig, seed: int, epoch: Step
) -> None:
    """The policy's first attempts at every question of a split: one, or one a strategy where `how` forces them."""
    asked = questions.read(open_ref(problems), split)
    out.metadata |= policy.answer(out.path, bench(), asked, None, folder_of(model), how, seed)


@stage("answer-again", kind="completions", version=1, gpu=True,
       external=prompt_text, label=lambda a: f"{step_label(a['epoch'])} {a['split']}")  # fmt: skip
def answer_again(
    out: Draft, problems: ArtifactRef, model: ArtifactRef, split: str, turn1: ArtifactRef, how: AskConfig, seed: int,
    epoch: Step,
) -> None:  # fmt: skip
    """A second attempt at every question of a split, right or wrong, told what the first tried."""
    asked, first = questions.read(open_ref(problems), split), verdicts.read([open_ref(turn1)])
    out.metadata |= policy.answer(out.path, bench(), asked, first, folder_of(model), how, seed)


@stage("gate", kind="gate", version=1)
def require_strategies(out: Draft, attempts: tuple[ArtifactRef, ...], config: EvaluationConfig) -> None:
    """Stop before self-sampling where the policy does not name strategies."""
    out.metadata |= smart.require_strategies(out.path, verdicts.read(folders(attempts)), config)


@stage("convergence", kind="convergence", version=1, label=lambda a: f"epoch {len(a['answers'])}")
def judge_convergence(
    out: Draft, answers: tuple[ArtifactRef, ...], min_delta: float, max_epochs: int
) -> None:
    """Whether first-attempt accuracy still rises from epoch to epoch."""
    epochs = [verdicts.read([open_ref(ref)]) for ref in answers]
    out.metadata |= smart.judge_convergence(out.path, epochs, min_delta, max_epochs)


@stage("evaluation", kind="evaluation", version=2, label=lambda a: a["name"])
def evaluate(
    out: Draft,
    name: str,
    few_shot: tuple[ArtifactRef, ...],
    answered: tuple[Answered, ...],
    config: EvaluationConfig,
) -> None:
    """One set: the base few-shot a strategy, then every model, with intervals and paired tests."""
    given = [
        Answers(a.label, read_one(a.turn1), a.kind, read_one(a.turn2), read_one(a.each)) for a in answered
    ]
    out.metadata |= smart.evaluate(out.path, name, verdicts.read(folders(few_shot)), given, config)


@stage("report", kind="report", version=3)
def report(
    out: Draft, title: str, facts: dict[str, str], problems: ArtifactRef, base: ArtifactRef, analysis: ArtifactRef,
    evaluations: tuple[ArtifactRef, ...], trained: tuple[Trained, ...], failed: tuple[str, ...],
    clean: ArtifactRef | None = None,
) -> None:  # fmt: skip
    """The run as a page: headline tables, records, losses, what was left out."""
    about = {"base model": folder_of(base).name, "base digest": base.digest[:16], **facts}
    sets = [(t.label, open_ref(t.records) if t.records else None, open_ref(t.adapter)) for t in trained]
    reporting.write(
        out.path, title, about, open_ref(problems), open_ref(analysis), folders(evaluations), sets, failed,
        open_ref(clean) if clean else None,
    )  # fmt: skip


def convergence_of(ref: ArtifactRef) -> tuple[bool, int, str]:
    """What `judge_convergence` found: whether to stop, the best epoch, and why."""
    found = smart.read_convergence(open_ref(ref))
    return found.stop, found.best, found.reason


def read_one(ref: ArtifactRef | None) -> list[Attempt]:
    return [] if ref is None else verdicts.read([open_ref(ref)])


def folders(refs: tuple[ArtifactRef, ...]) -> list[Path]:
    return [open_ref(ref) for ref in refs]


def folder_of(model: ArtifactRef) -> ModelFolder:
    """The model behind a reference; its fingerprint is the artifact's digest.

    A merged model has a name that nothing can be loaded by: an adapter trained on it names it as its base, and under
    the first base's name PEFT would put that adapter onto other weights without a word.
    """
    folder, manifest = open_ref(model), verify_ref(model)
    name = _first_base(manifest)
    merged = "parity" in manifest.metadata
    return ModelFolder(folder, model.digest, f"{name} merged {model.digest[:16]}" if merged else name)


def _first_base(model: Manifest) -> str:
    """The name of the model that all adapters merged into this one began with."""
    return str(model.metadata.get("model", model.digest[:16]))

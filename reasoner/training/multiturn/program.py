"""Multi-turn reinforcement learning, as a program: `python -m reasoner.training.multiturn.program SPEC.json`.

Covers: SCoRe, RL-guided SCoRe, MLMT-RL and ArCHer on one loop with LoRA adapters, sampling by engines of its own in
child processes, several training processes (gradients are summed; the first one samples), bfloat16 autocast, gradient
checkpointing, resume. Leaves solver/ and guidance/ (adapters), value/ (value network or critic), training.json,
metrics.jsonl and the last rollouts and validations.

Not covered: full fine-tuning, quantised bases.
"""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.errors import TrainingError, UsageError
from reasoner.ids import canonical, content_hash, file_hash
from reasoner.onpolicy.parts import device_parts
from reasoner.process.progress import report
from reasoner.prompts.turns import load_turns
from reasoner.records import Problem
from reasoner.store.rows import read_rows
from reasoner.training import adapter as adapters
from reasoner.training import checkpoints, runtime
from reasoner.training.multiturn import checkpointing
from reasoner.training.multiturn.loop import EPISODES, METRICS, VALIDATIONS, Loop
from reasoner.training.multiturn.parts import WEIGHTS, Learned, build
from reasoner.training.multiturn.sampling import open_sampler
from reasoner.training.multiturn.scoring import Processes
from reasoner.training.multiturn.spec import MultiTurnSpec
from reasoner.training.together import PATIENCE

VERSION = 2
"""Part of the identity of a work folder; raised when the meaning of a checkpoint changes."""
FOLDERS = {"solver": "solver", "feedback": "guidance"}
"""Adapter and its folder in the result, as the original names it."""


def identity(spec: MultiTurnSpec, device: str) -> str:
    """The hash of all that decides the result: problems, base, configuration, prompts, device, library versions."""
    from importlib.metadata import version

    base: Any = spec.base_fingerprint or [
        [p.name, p.stat().st_size, file_hash(p) if p.suffix == ".json" else ""]
        for p in sorted(spec.base.iterdir())
        if p.is_file()
    ]
    rows = [file_hash(spec.problems / f"{name}.jsonl") for name in ("train", "validation")]
    libraries = [version(name) for name in ("torch", "transformers", "peft", "accelerate")]
    outside = [load_turns(spec.config.prompts), spec.correction_base and spec.correction_base.name]
    return content_hash([VERSION, spec.base_name, base, rows, spec.config, outside, device, libraries])


def train(spec: MultiTurnSpec, report: Callable[..., Any], say: Callable[[str], None]) -> None:
    """Train to the end and publish. The same spec again goes on from the last complete checkpoint."""
    started = time.monotonic()
    device = runtime.pick_device(spec.device)
    config = settled(spec.config, device)
    processes = make_processes(config, device)
    log = say if processes.first else _silent
    if processes.first:
        adapters.require_empty(spec.output)
        last = checkpoints.open_work(spec.work, identity(spec, device), log)
    processes.wait()
    if not processes.first:
        last = checkpoints.last_complete(spec.work)
    tokenizer = runtime.load_tokenizer(spec.base)
    dtype = "bfloat16" if device == "cuda" and config.precision == "bf16" else "float32"
    learned = build(config, spec.base, spec.base_name, tokenizer, processes, dtype, log)
    state = checkpointing.load(last, learned) if last is not None else checkpointing.State()
    problems = [read_problems(spec, part) for part in ("train", "validation")]
    if not problems[0] or not problems[1]:
        raise TrainingError(f"{spec.problems} holds no problems to train on or none to validate on")
    announce(config, device, state.step, log)
    run = _Run(spec, config, learned, processes, problems, state, report, log)
    if state.step < config.steps or last is None:
        run.go()
    processes.wait()
    if processes.first:
        publish(spec, config, learned, run.metric)
        seconds = round(time.monotonic() - started, 3)
        metrics = {
            "resumed_from_step": checkpoints.step_of(last) if last else 0, "seconds": seconds,
            **runtime.peak_memory(device),
        }  # fmt: skip
        checkpoints.write_json(spec.work / runtime.METRICS_FILE, metrics)


def read_problems(spec: MultiTurnSpec, part: str) -> list[Problem]:
    """The problems of a part; none where the folder has no such part."""
    path = spec.problems / f"{part}.jsonl"
    return [Problem.from_row(row) for row in read_rows(path)] if path.is_file() else []


class _Run:
    """The loop with its sampler, which only the first process has."""

    def __init__(
        self, spec: MultiTurnSpec, config: MultiTurnConfig, learned: Learned, processes: Processes,
        problems: list[list[Problem]], state: checkpointing.State, report: Any, log: Any,
    ) -> None:  # fmt: skip
        self._spec, self._config = spec, config
        self._loop = Loop(
            config, spec.work, learned, processes, problems[0], problems[1], None, report, log,
            device_parts(learned.policy.device.type), state,
        )  # fmt: skip
        self.metric = self._loop.metric

    def go(self) -> None:
        """Run to the end; the engine ends with it."""
        loop, spec = self._loop, self._spec
        loop.processes.wait()  # every model is on its card before an engine measures what is free there
        if not loop.processes.first:
            loop.run()
            return
        limit = int(self._config.engine.options.get("max_model_len") or context_of(spec.base))
        with open_sampler(
            self._config, spec.base, spec.correction_base, spec.work, limit, loop.parts
        ) as sampler:
            # The test's problems, too: that they don't fit must not show after the training.
            sampler.check_lengths(loop.train, [*loop.validation, *read_problems(spec, "test")], limit)
            loop.sampler = sampler
            loop.run()


def context_of(base: Path) -> int:
    """How many positions a model has, by its configuration."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(
        base, local_files_only=True, trust_remote_code=False
    ).get_text_config()
    return int(getattr(config, "max_position_embeddings", None) or 1 << 30)


def make_processes(config: MultiTurnConfig, device: str) -> Processes:
    """accelerate's view of the processes, with bfloat16 autocast where it is asked for."""
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs

    mixed = "bf16" if config.precision == "bf16" else "no"
    patient = InitProcessGroupKwargs(timeout=PATIENCE)
    return Processes(Accelerator(mixed_precision=mixed, cpu=device == "cpu", kwargs_handlers=[patient]))


def settled(config: MultiTurnConfig, device: str) -> MultiTurnConfig:
    """`precision: auto` decided: bfloat16 autocast on an accelerator, float32 on a CPU."""
    if config.precision != "auto":
        return config
    return config.model_copy(update={"precision": "bf16" if device == "cuda" else "fp32"})


def announce(config: MultiTurnConfig, device: str, step: int, log: Callable[[str], None]) -> None:
    """Say what will be done."""
    mode = f" ({config.mode})" if config.mode else ""
    log(
        f"{config.method}{mode} on {config.env_type}: {config.steps} iterations of {config.rollout_size} episodes, "
        f"{config.precision} on {device}"
    )
    if config.method == "mlmt" and config.baseline == "single":
        log(
            "baseline=single starves turn 1: with an accurate V(x,z,g) its expected gradient is zero (METHODS 3.3)"
        )
    if step:
        log(f"going on from iteration {step}")


def publish(spec: MultiTurnSpec, config: MultiTurnConfig, learned: Learned, metric: str) -> None:
    """Export the chosen checkpoint's adapters and value network, and what the run recorded."""
    last = checkpoints.last_complete(spec.work)
    if last is None:
        if config.steps:
            raise TrainingError(f"the training left no complete checkpoint in {spec.work}; run it again")
        last = checkpointing.save(spec.work, learned, checkpointing.State(), metric, 1)
    state = checkpointing.load(last)
    best = state.best(metric) if config.checkpoint == "best_validation" else None
    chosen = last if best is None else spec.work / f"checkpoint-{best}"
    facts = {
        "schema": 1, "base": {"name": spec.base_name, "fingerprint": spec.base_fingerprint},
        "method": config.method, "mode": config.mode, "env_type": config.env_type, "seed": config.seed,
        "config": canonical(config), "steps": state.step, "exported_step": checkpoints.step_of(chosen),
        "chosen_by": metric if best is not None else "last", "validations": state.validations,
    }  # fmt: skip
    for name in learned.policy.adapters:
        tokenizer = runtime.load_tokenizer(spec.base)
        adapters.export_adapter(chosen / name, spec.output / FOLDERS[name], tokenizer, spec.base_name, facts)
    if learned.network is not None:
        (spec.output / "value").mkdir(parents=True)
        shutil.copyfile(chosen / WEIGHTS, spec.output / "value" / WEIGHTS)
        kind = "critic" if learned.critic is not None else "value"
        on = config.critic_lm if learned.critic is not None else config.value_backbone
        checkpoints.write_json(spec.output / "value" / "value.json", {"schema": 1, "kind": kind, "on": on})
    if (spec.work / METRICS).is_file():
        shutil.copyfile(spec.work / METRICS, spec.output / METRICS)
    for folder in (EPISODES, VALIDATIONS):
        if (spec.work / folder).is_dir():
            shutil.copytree(spec.work / folder, spec.output / folder)
    checkpoints.write_json(spec.output / adapters.TRAINING, facts)


def _silent(line: str) -> None:
    """The log of every process but the first."""


def main(arguments: list[str]) -> int:
    """Exit status 0 when the result is written; see `runtime.run_program` for failures."""
    try:
        if len(arguments) != 1:
            raise UsageError(
                "give one argument, the spec: python -m reasoner.training.multiturn.program SPEC.json"
            )
        spec = MultiTurnSpec.load(Path(arguments[0]))
    except UsageError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    runtime.prepare_process(spec.threads)
    return runtime.run_program(spec.work, lambda: train(spec, report, runtime.say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

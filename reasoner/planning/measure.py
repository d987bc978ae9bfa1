"""`reasoner plan NAME --calibrate`: a minute or two of the real engine and the real training, against the roofline.

What is run: the configured engine on the configured model (its start, prompts of about 200 tokens, 32 tokens each), six
steps of the real training program, and programs in the sandbox. What is kept: by which share the roofline was reached,
and the fixed times. Shares of a machine that does other work are those of that moment: measure it as it will be used.
"""

import datetime
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig
from reasoner.config.training import TrainConfig
from reasoner.engines.protocol import EngineSettings
from reasoner.errors import InfrastructureError, ModelError
from reasoner.home import Home
from reasoner.planning import roofline
from reasoner.planning.architecture import Architecture
from reasoner.planning.calibration import Calibration, Speed
from reasoner.planning.device import Device
from reasoner.planning.estimate import Scene, Tokens
from reasoner.problems.word_problems import generate
from reasoner.prompts import ChatRenderer
from reasoner.provenance import environment
from reasoner.records import GenerationRequest, Sampling, TrainingExample
from reasoner.store.rows import write_rows

PROMPTS, NEW, STEPS, PROGRAMS = 32, 32, 6, 24

Say = Callable[[str], None]


def measure(
    model: Path, name: str, engine: EngineConfig, train: TrainConfig, device: Device, home: Home, say: Say
) -> Calibration:
    """Run all parts on the model in folder `model`. Raises what engine, training and sandbox raise."""
    if not (model / "config.json").is_file():
        raise ModelError(f"{model} is not a model folder: config.json is missing")
    arch = Architecture.from_config(json.loads((model / "config.json").read_text()))
    scene = Scene(Speed(device), arch, Tokens(model), lambda ref: {}, 1, device.memory)
    shares: dict[str, float] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="reasoner-calibration-") as scratch:
        if engine.kind != "scripted":
            say(f"calibrating: {engine.kind}")
            _engine(scene, model, engine, Path(scratch), shares, seconds)
        say("calibrating: training")
        _training(scene, model, train, Path(scratch), shares, seconds)
    say("calibrating: sandbox")
    _sandbox(seconds)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Calibration(device, now, dict(environment()["packages"]), name, shares, seconds)


def _engine(
    scene: Scene, model: Path, engine: EngineConfig, scratch: Path, shares: dict[str, float], seconds: dict[str, float]
) -> None:  # fmt: skip
    from reasoner.engines.start import open_engine

    questions = [p.question for p in generate(PROMPTS * 4, seed=1)]
    texts = ["\n".join(questions[4 * i : 4 * i + 4]) for i in range(PROMPTS)]
    settings = EngineSettings(engine.kind, model, engine.dtype, options=engine.options)
    started = time.monotonic()
    running = open_engine(settings, log=scratch / "engine.log")
    try:
        _generate(running, ["Hello"], 1)
        kind = f"engine-{engine.kind}"
        name = f"{kind}-cpu" if engine.kind == "vllm" and scene.speed.device.is_cpu else kind
        seconds[name] = time.monotonic() - started
        read_seconds, read, _ = _generate(running, texts, 1)
        other = [text[::-1] for text in texts]  # nothing of it is in the prefix cache
        both_seconds, prompt, written = _generate(running, other, NEW)
    finally:
        running.close()
    device, dtype = scene.speed.device, scene.dtype(engine)
    batch = scene.batch(engine, dtype, prompt / PROMPTS + NEW)
    ideal = roofline.prefill(scene.arch, device, read, 1.0)
    shares[f"prefill-{engine.kind}-{dtype}"] = ideal / read_seconds
    # The second call reads other prompts, which takes in proportion to their tokens, and then writes.
    writing = max(both_seconds - read_seconds * prompt / read, 0.1 * both_seconds)
    ideal, with_host = (
        roofline.decode(
            scene.arch, device, sequences=PROMPTS, tokens=written / PROMPTS, context=prompt / PROMPTS, batch=batch,
            dtype=dtype, share=1.0, host=host,
        )
        for host in (roofline.NO_HOST, scene.beside(engine))
    )  # fmt: skip
    shares[f"decode-{engine.kind}-{dtype}"] = ideal / max(writing - (with_host - ideal), 0.1 * writing)


def _generate(engine: Any, texts: list[str], tokens: int) -> tuple[float, int, int]:
    """Seconds, prompt tokens and new tokens of one call."""
    sampling = Sampling(temperature=1.0, max_tokens=tokens)
    started = time.monotonic()
    made = [done for _, done in engine.generate([GenerationRequest("", t, sampling, 0) for t in texts])]
    taken = time.monotonic() - started
    return taken, sum(d.prompt_tokens for d in made), sum(d.completion_tokens for d in made)


def _training(
    scene: Scene, model: Path, train: TrainConfig, scratch: Path, shares: dict[str, float], seconds: dict[str, float]
) -> None:  # fmt: skip
    from reasoner.training.launch import run_sft
    from reasoner.training.specs import SftSpec

    renderer = ChatRenderer(model)
    size = train.batch_size * train.grad_accum
    rows = [
        TrainingExample(p.id, renderer.render([{"role": "user", "content": p.question}]).text,
                        renderer.completion_text(f"The answer is {p.gold}."))
        for p in generate(STEPS * size, seed=2)
    ]  # fmt: skip
    write_rows(scratch / "train.jsonl", [row.to_row() for row in rows])
    settings = train.model_copy(update={"epochs": 1.0, "min_records": 1, "save_steps": 10_000})
    spec = SftSpec(
        base=model, base_name=model.name, train_rows=scratch / "train.jsonl", output=scratch / "adapter",
        work=scratch / "sft", end_token=renderer.end_token, train=settings,
        add_special_tokens=not renderer.has_chat_template,
    )  # fmt: skip
    times: list[float] = []
    started = time.monotonic()
    done = run_sft(spec, scratch / "sft.log", lambda facts: times.append(time.monotonic()))
    whole = time.monotonic() - started
    if len(times) < 3:
        raise InfrastructureError(f"the training reported {len(times)} steps; its log: {scratch / 'sft.log'}")
    step = (times[-1] - times[0]) / (len(times) - 1)
    counts = done.training["records"]
    tokens = (counts["prompt_tokens"] + counts["completion_tokens"]) / done.training["steps"]
    ideal = roofline.training(
        scene.arch, scene.speed.device, tokens=tokens, seen_only=0, recompute=train.gradient_checkpointing, share=1.0
    )  # fmt: skip
    precision = done.training["train"]["precision"]
    shares[f"train-{precision}"] = ideal / step
    seconds["child"] = max(0.0, whole - step * done.training["steps"])


def _sandbox(seconds: dict[str, float]) -> None:
    from reasoner.planning.benchmark import cores
    from reasoner.records import Strategy
    from reasoner.verifiers.solutions import Answer, verify_solutions

    answers = [Answer(Strategy.POT, f"```python\nanswer = {i} + 1\n```", str(i + 1)) for i in range(PROGRAMS)]
    started = time.monotonic()
    verify_solutions(answers)
    seconds["program"] = (time.monotonic() - started) * cores() / PROGRAMS


def only_processor(device: Device) -> Calibration:
    """A calibration that holds the micro-benchmark alone."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Calibration(device, now, dict(environment()["packages"]))

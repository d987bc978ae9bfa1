"""One stage's estimate, and what every estimator stands on: device, model, measured speeds, what the inputs hold."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig
from reasoner.config.training import TrainConfig
from reasoner.hardware import served_dtype
from reasoner.planning import fit, memory, roofline
from reasoner.planning.architecture import BYTES, Architecture
from reasoner.planning.calibration import Speed
from reasoner.planning.launches import launches
from reasoner.planning.memory import Need, TrainingShape
from reasoner.planning.roofline import Host
from reasoner.records import ArtifactRef, Record

Facts = Mapping[str, Any]
"""What an artifact holds, measured or expected: counts and mean lengths."""
BATCH = 256
"""Sequences that vLLM runs at once where `max_num_seqs` does not say."""
PIECES = re.compile(r"[^\W\d_]{1,7}| (?=\d)|\d|_|\n|[^\w\s]")
"""Tokens by rule of thumb: a word (a long one is two), every digit and the space before a number, every sign. So most
byte-level tokenizers cut; those that take three digits at once write fewer."""
SERVING_REMEDY = "lower engine.options.max_model_len, or take a smaller model or a larger card"
GREEDY_CHECK = 8 * 32
"""Tokens that a merge writes for its parity check, one by one."""
MERGE_PASSES = 5
"""How often a merge and the store go through the model's files: the base read, the merged model written, read again
for the check, hashed for the store and for whoever uses it."""


@dataclass(frozen=True, slots=True)
class Estimate(Record):
    """What one stage will take. Bytes of memory are peaks, of disk what stays."""

    seconds: float = 0.0
    prompt_tokens: int = 0
    """Read by the engine, shared prefixes once."""
    new_tokens: int = 0
    """Written by the engine."""
    trained_tokens: int = 0
    device_bytes: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0
    notes: tuple[str, ...] = ()
    """What was assumed."""
    remedy: str = ""
    """Settings that would fit where this does not; filled in by `reasoner.planning.fit`."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """What the artifact will hold, for the estimates of later stages."""


class Tokens:
    """Counts tokens: with the model's tokenizer.json where it is at hand, else by `PIECES`."""

    def __init__(self, folder: Path | None) -> None:
        self._tokenizer: Any = None
        if folder is not None and (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def count(self, text: str) -> int:
        if self._tokenizer is None:
            return len(PIECES.findall(text))
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def mean(self, texts: list[str], otherwise: float) -> float:
        """Mean tokens of some texts; `otherwise` where there are none."""
        return sum(map(self.count, texts)) / len(texts) if texts else otherwise


@dataclass
class Scene:
    """Where the estimates are made. `engine` is the one that is running, as the flow goes from stage to stage."""

    speed: Speed
    arch: Architecture
    tokens: Tokens
    facts: Callable[[ArtifactRef], Facts]
    cores: int
    host: int
    """Bytes of main memory that may be taken."""
    engine: str = ""
    engines: int = 0
    """Started so far."""

    @property
    def on_card(self) -> bool:
        return not self.speed.device.is_cpu

    @property
    def layer_step(self) -> float:
        """Seconds that the host of a card takes for a layer and micro-step of training."""
        return self.speed.seconds("layer-step") if self.on_card else 0.0

    def generation(
        self, model: ArtifactRef, engine: EngineConfig, *, sequences: float, shared: float, own: float, new: float,
        groups: float | None = None, **expected: Any,
    ) -> Estimate:  # fmt: skip
        """`sequences` completions of `new` tokens; prompts of `shared` tokens that all have and `own` of their own.

        `groups` distinct prompts (all, unless given): samples of one prompt read it once where prefixes are cached.
        """
        distinct = sequences if groups is None else groups
        caches = engine.kind == "vllm"
        read = shared + distinct * own if caches else sequences * (shared + own)
        facts = {"rows": round(sequences), "new_tokens": new, **expected}
        need = self.served(engine)
        if engine.kind == "scripted":
            return Estimate(0.0002 * sequences, round(read), round(sequences * new), expected=facts,
                            host_bytes=need.host, disk_bytes=round(1500 * sequences))  # fmt: skip
        dtype = self.dtype(engine)
        seconds = self.started(model, engine) + distinct * self.speed.seconds("prompt")
        context = shared + own
        once = shared if caches and self.on_card else 0.0
        batch = self.batch(engine, dtype, own + new)
        device, host = self.speed.device, self.beside(engine)
        seconds += roofline.prefill(self.arch, device, read, self.speed.share("prefill", engine.kind, dtype))
        seconds += roofline.decode(
            self.arch, device, sequences=sequences, tokens=new, context=context - once, batch=batch, dtype=dtype,
            share=self.speed.share("decode", engine.kind, dtype), shared=once, host=host, joins=caches,
        )  # fmt: skip
        seconds += sequences * context * host.prompt_token
        return Estimate(
            seconds, round(read), round(sequences * new), device_bytes=need.device, host_bytes=need.host,
            disk_bytes=round(1500 * sequences), expected=facts, remedy=SERVING_REMEDY,
        )  # fmt: skip

    def dtype(self, engine: EngineConfig) -> str:
        """The precision that it serves in on the planned device."""
        if self.on_card:
            return served_dtype(engine.dtype, cpu=False)
        return served_dtype(engine.dtype, cpu=True) if engine.dtype == "auto" else engine.dtype

    def beside(self, engine: EngineConfig) -> Host:
        """What the host of a card takes for an engine's steps."""
        if not self.on_card:
            return roofline.NO_HOST
        steps = launches(engine)
        layer = {"kernels": "layer-launch", "pieces": "layer-launch-pieces"}
        one = self.speed.seconds(layer[steps.mixed]) if steps.mixed in layer else 0.0
        token, prompt_token, joined = map(self.speed.seconds, ("token", "prompt-token", "joined-step"))
        return Host(token, prompt_token, joined, one * self.arch.layers, steps.decoding == "kernels")

    def batch(self, engine: EngineConfig, dtype: str, context: float) -> int:
        """Sequences at once: as configured, and as many as the cache holds."""
        if engine.kind != "vllm":
            return int(engine.options.get("batch_size", 16))
        most = int(engine.options.get("max_num_seqs", BATCH))
        a_token = self.arch.cache_numbers * BYTES[dtype]
        room = memory.CPU_CACHE
        if self.on_card:
            share = float(engine.options.get("gpu_memory_utilization", 0.9))
            room = int(share * self.speed.device.memory - self.arch.weights * BYTES[dtype])
        return max(1, min(most, int(room / a_token / max(context, 1))))

    def started(self, model: ArtifactRef, engine: EngineConfig) -> float:
        """Seconds until an engine of this model runs; 0 where the stage before left it running."""
        wanted = f"{model.digest} {engine.model_dump_json()}"
        if engine.kind == "scripted" or wanted == self.engine:
            return 0.0
        self.engine = wanted
        self.engines += 1
        if engine.kind != "vllm":
            return self.speed.seconds(f"engine-{engine.kind}")
        name = "engine-vllm" + ("" if self.on_card else "-cpu")
        measured = self.speed.measured(name)
        name += "" if self.engines == 1 else "-again"
        if not self.on_card or (measured and self.engines == 1):
            return self.speed.seconds(name)
        steps = launches(engine)
        more = [name for name, has in (("graphs", steps.graphs), ("compilation", steps.compiled)) if has]
        return self.speed.seconds(name) + sum(map(self.speed.seconds, more))

    def served(self, engine: EngineConfig) -> Need:
        """Memory of an engine."""
        if engine.kind == "scripted":
            return Need(0, 0)
        context = int(engine.options.get("max_model_len", 4096))
        share = float(engine.options.get("gpu_memory_utilization", 0.9))
        if engine.kind == "transformers":
            share = 1.0
        return memory.serving(
            self.arch, self.dtype(engine), self.on_card, context, share, self.speed.device.memory
        )

    def shape(self, config: TrainConfig, length: float) -> TrainingShape:
        """A training step's shape on the planned device; the longest record is taken as twice the mean one."""
        precision = config.precision
        if precision == "auto":
            precision = "bf16" if self.on_card else "fp32"
        half = self.on_card and precision == "bf16"
        limit = config.nf4_above_gib
        nf4 = limit is not None and 2 * self.arch.weights > limit * 2**30
        return TrainingShape(
            config.batch_size, min(config.max_length, round(2 * length)), config.gradient_checkpointing,
            "nf4" if nf4 else "bfloat16" if half else "float32", "bfloat16" if half else "float32",
        )  # fmt: skip

    def training(
        self, config: TrainConfig, *, records: float, validation: float, prompt: float, completion: float
    ) -> Estimate:
        """LoRA training on `records` records. Ends the engine, as the run does."""
        self.engine = ""
        shape, length = self.shape(config, prompt + completion), prompt + completion
        need = memory.training(self.arch, shape, config.lora, self.on_card)
        trained = records * config.epochs * length
        steps = records * config.epochs / (config.batch_size * config.grad_accum)
        looks = max(1.0, steps / config.eval_steps) if validation else 0.0
        precision = "bf16" if shape.compute == "bfloat16" else "fp32"
        seconds = self.child(training=True) + roofline.training(
            self.arch, self.speed.device, tokens=trained, seen_only=looks * validation * length,
            recompute=shape.recompute, share=self.speed.share("train", precision),
            steps=steps * config.grad_accum, looks=looks * validation / config.batch_size,
            layer_step=self.layer_step,
        )  # fmt: skip
        each = self.speed.seconds("record") + self.speed.seconds("prompt")
        seconds += (records + validation) * each
        adapter = self.arch.lora_weights(config.lora) * 4
        notes = ("NF4 taken as fast as bfloat16",) if shape.weights == "nf4" else ()
        remedy = ""
        if need.device > self.speed.device.memory or need.host > self.host:
            remedy = fit.training_remedy(
                self.arch, shape, config.grad_accum, config.lora, self.speed.device, self.host
            )
        return Estimate(
            seconds, trained_tokens=round(trained), device_bytes=need.device, host_bytes=need.host,
            disk_bytes=adapter + (config.save_total_limit + 1) * 3 * adapter, notes=notes, remedy=remedy,
        )  # fmt: skip

    def child(self, training: bool = False) -> float:
        """Seconds until a program for training or merging has its model, and after its last step."""
        start = self.speed.seconds("child")
        if not (training and self.on_card) or self.speed.measured("child"):
            return start
        return start + self.speed.seconds("trainer") + 2 * self.arch.weights * self.speed.seconds("byte")

    def merging(self) -> Estimate:
        """A merge in float32 with its parity check, which writes token by token without an engine."""
        self.engine = ""
        weights, device = self.arch.weights, self.speed.device
        floor = (
            self.arch.layers * self.speed.seconds("layer-token") if self.on_card else 4 * device.step_floor
        )
        step = max(4 * weights / device.bandwidth, floor)
        files = MERGE_PASSES * 2 * weights * self.speed.seconds("byte")
        seconds = self.speed.seconds("child") + GREEDY_CHECK * step + files
        size = int(4 * weights * 1.1)
        return Estimate(
            seconds, device_bytes=size + memory.CONTEXT if self.on_card and size < device.memory else 0,
            host_bytes=size + memory.PROCESS, disk_bytes=2 * weights,
            remedy="the merge holds the model once in float32: take a machine with more main memory",
        )  # fmt: skip

    def judging(self, rows: float, programs: float) -> Estimate:
        """Verdicts: `programs` of the `rows` answers are programs for the sandbox, on all cores; all are read and
        written by one."""
        seconds = self.speed.seconds("verdict") * rows + self.speed.seconds("program") * programs / self.cores
        return Estimate(seconds, disk_bytes=round(1500 * rows))

"""One side of `grpo_step.py`: a GRPOTrainer in a process of its own that makes a step for each line of JSON it is sent.

    python benchmarks/grpo_side.py ours|trl SETTINGS_JSON      (started by grpo_step.py)

`ours`: the on-policy sampler through `rollout_func`, the adapter sent alone to an engine in another process. `trl`:
TRL's colocated vLLM, merged weights loaded into it. Base, adapter, optimiser, prompts and reward are the same code.

Orders: {"do": "step", "sleep": bool}, {"do": "check"} (ours), {"do": "end"}; each is answered by a line.
"""

import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from paced import GIB, Finished, device_memory, machine, own_memory, pace, run_paced

from reasoner.config.data import ColumnMap, SourceConfig
from reasoner.engines.protocol import EngineSettings
from reasoner.onpolicy.gate import Gate, measure
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.parts import Part, device_parts
from reasoner.onpolicy.trl_rollout import POLICY, rollout_func
from reasoner.problems import load_problems
from reasoner.prompts import ChatRenderer
from reasoner.records import GenerationRequest, Sampling
from reasoner.training import runtime
from reasoner.training.grpo.timing import timed
from reasoner.training.trainer import present_modules
from reasoner.verifiers.numbers import extract_number, numbers_equal, parse_number

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ASK = "Solve the problem step by step. End with: The answer is NUMBER.\n\n"
LOADED = re.compile(r"Model loading took ([\d.]+) GiB")
SPARE = 64
"""Tokens of context beyond prompt and completion."""
SYNC_WRITE, SYNC_ENGINE = "sync_write", "sync_engine"
"""What sync is made of: the adapter off the trainer and into a file, the file into the engine."""


class Side:
    """A trainer and its sampler; `answer` writes a line to the parent."""

    def __init__(self, given: dict[str, Any], channel: Any) -> None:
        self.given, self._channel = given, channel
        self.parts = device_parts()
        self.folder = Path(given["model"])
        self.cuda = device_memory() is not None
        self.memory: dict[str, Any] = {}

    def answer(self, **row: Any) -> None:
        print(json.dumps(row), file=self._channel, flush=True)

    def wait(self) -> None:
        """Until a step is ordered; other orders are carried out here. Raises Finished."""
        while line := sys.stdin.readline():
            order: dict[str, Any] = json.loads(line)
            if order["do"] == "step":
                self.prepare(order["sleep"])
                return
            if order["do"] == "check":
                self.answer(check=self.check())
            if order["do"] == "end":
                break
        raise Finished

    def run(self) -> None:
        """Load, wait for the card, then steps until the end."""
        raise NotImplementedError

    def prepare(self, sleep: bool) -> None:
        """Make ready for a step with or without sleeping, outside its time."""
        raise NotImplementedError

    def wait_for_card(self) -> None:
        """The sides take memory on the card one after another."""
        self.answer(loaded=True)
        sys.stdin.readline()
        self.memory["device_before"] = device_memory()

    def check(self) -> dict[str, Any]:
        """What the side says of itself at the end."""
        return {}

    def make(self) -> tuple[Any, Any, Any]:
        """Base with adapter, questions as rows, tokenizer."""
        import torch
        from datasets import Dataset
        from peft import LoraConfig, get_peft_model

        given = self.given
        tokenizer, renderer = runtime.load_tokenizer(self.folder), ChatRenderer(self.folder)
        rows = []
        for problem in load_problems(source(given["data"], given["questions"])).problems:
            text = renderer.render([{"role": "user", "content": ASK + problem.question}]).text
            if len(tokenizer.encode(text, add_special_tokens=False)) <= given["prompt_tokens"]:
                rows.append({"prompt": text, "gold": problem.gold})
        base = runtime.load_model(self.folder, "bfloat16" if self.cuda else "float32")
        torch.manual_seed(0)
        lora = LoraConfig(r=given["rank"], lora_alpha=2 * given["rank"], lora_dropout=0.0, task_type="CAUSAL_LM",
                          target_modules=present_modules(base, MODULES))  # fmt: skip
        return get_peft_model(base, lora), Dataset.from_list(rows), tokenizer

    def config(self, **more: Any) -> Any:
        """The same GRPOConfig for both sides."""
        from trl import GRPOConfig

        given = self.given
        return GRPOConfig(
            output_dir=given["room"], per_device_train_batch_size=given["micro_batch"],
            gradient_accumulation_steps=given["prompts"] * given["group"] // given["micro_batch"],
            num_generations=given["group"], max_completion_length=given["tokens"], temperature=1.0, top_p=1.0,
            max_steps=10_000, learning_rate=given["lr"], lr_scheduler_type="constant", beta=0.0, loss_type="dapo",
            bf16=self.cuda, use_cpu=not self.cuda, gradient_checkpointing=given["gradient_checkpointing"],
            save_strategy="no", logging_steps=1, report_to="none", disable_tqdm=True, seed=0,
            dataloader_pin_memory=self.cuda, **more,
        )  # fmt: skip

    def serve(self, trainer: Any) -> None:
        """Steps until the end."""
        self.frozen = frozen(trainer.model)

        def tell(times: Any, logs: dict[str, float]) -> None:
            drift = logs.get("sampler_trainer_difference", logs.get("sampling/sampling_logp_difference/mean"))
            self.answer(
                wall=times.wall, parts=times.parts, other=times.other, difference=drift,
                tokens=logs["completions/mean_length"] * self.given["prompts"] * self.given["group"],
                reward=logs["reward"], memory={**own_memory(), "device": device_memory()},
            )  # fmt: skip

        pace(trainer, self.parts, self.wait, tell)
        self.memory["device_started"] = device_memory()
        self.answer(ready=True, memory=self.memory, machine=machine())
        run_paced(trainer)

    def base_moved(self, model: Any) -> bool:
        """Whether a frozen weight of the trainer is another than at the start."""
        import torch

        return any(not torch.equal(weight, self.frozen[name]) for name, weight in frozen(model).items())


class Ours(Side):
    """The on-policy loop."""

    def run(self) -> None:
        from trl import GRPOTrainer

        given = self.given
        model, rows, tokenizer = self.make()
        self.wait_for_card()
        model = model.to("cuda" if self.cuda else "cpu")
        self.memory["trainer_copy"] = own_memory().get("allocated")
        self.memory["device_with_trainer"] = device_memory()
        limit = given["prompt_tokens"] + given["tokens"] + SPARE
        options = {"max_model_len": limit, "max_num_seqs": max(8, given["prompts"] * given["group"])}
        options |= {"gpu_memory_utilization": given["share"]} if self.cuda else {}
        settings = EngineSettings(
            "vllm", self.folder, max_lora_rank=given["rank"], options=options | given["options"]
        )
        log = Path(given["room"]) / "engine.log"
        with open_sampler(settings, log=log, share_card=True, parts=self.parts, say=complain) as self.sampler:
            self.memory |= weights(log.read_text(errors="replace"), self.folder)
            self.gate = Gate("bfloat16", log=complain)
            hook = rollout_func(self.sampler, lambda prompt: (str(prompt), False), max_tokens=given["tokens"],
                                gate=self.gate)  # fmt: skip
            self.trainer = GRPOTrainer(
                model=model, reward_funcs=right, args=self.config(use_vllm=False), train_dataset=rows,
                processing_class=tokenizer, rollout_func=hook,
            )  # fmt: skip
            self.prompts = [row["prompt"] for row in rows][: given["prompts"]]
            timed(self.sampler._folder, "write", self.parts, SYNC_WRITE)
            timed(self.sampler._engine, "load_adapter", self.parts, SYNC_ENGINE)
            self.serve(self.trainer)

    def prepare(self, sleep: bool) -> None:
        self.sampler.wake()
        self.sampler.share_card = sleep

    def check(self) -> dict[str, Any]:
        """New weights in the engine after an update, the base's tokens as before, memory of the adapter."""
        import torch

        model, sampler = self.trainer.accelerator.unwrap_model(self.trainer.model), self.sampler
        steps = [drift.to_row() for drift in self.gate.history]
        asked = [self._ask("", text, 0.0) for text in self.prompts]
        # Sleep empties the prefix cache; a prompt computed whole rounds otherwise than one looked up.
        cold, before = [[s.token_ids for s in sampler.sample(asked)] for _ in range(2)]
        drawn = [self._ask(POLICY, text, 1.0) for text in self.prompts]
        sampler.sync(POLICY, model)
        same = self._apart(model, sampler.sample(drawn))
        draw = torch.Generator().manual_seed(1)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                step = torch.randn(weight.shape, generator=draw) * self.given["jump"]
                weight.data += step.to(weight.device, weight.dtype)
        old = self._apart(model, sampler.sample(drawn))
        sampler.sync(POLICY, model)
        new = self._apart(model, sampler.sample(drawn))
        after = [s.token_ids for s in sampler.sample(asked)]
        sampler.share_card = True
        sampler.rest()
        asleep = device_memory()
        sampler.wake()
        woken = [self._rested(asked) for _ in range(2)]
        return {
            "step_0_difference": steps[0], "differences": [s["mean"] for s in steps],
            "difference_before_update": same, "difference_old_adapter": old, "difference_new_adapter": new,
            "samples_with_new_adapter": new < old / 4, "base_same_tokens": after == before,
            "base_same_answers": {
                "cold, warm": alike(cold, before), "cold, cold after a sleep": alike(cold, woken[0]),
                "cold after a sleep, cold after another": alike(*woken),
            },
            "base_tokens": sum(map(len, before)),
            "trainer_base_changed": self.base_moved(model), "device_asleep": asleep, "device_awake": device_memory(),
            "engine_restarts": sampler.restarts,
        }  # fmt: skip

    def _rested(self, asked: list[GenerationRequest]) -> list[tuple[int, ...]]:
        """The answers' tokens after a sleep, with an empty prefix cache."""
        self.sampler.rest()
        return [sample.token_ids for sample in self.sampler.sample(asked)]

    def _ask(self, adapter: str, text: str, temperature: float) -> GenerationRequest:
        sampling = Sampling(temperature, max_tokens=min(64, self.given["tokens"]))
        return GenerationRequest(text, text, sampling, adapter=adapter, add_special_tokens=False)

    def _apart(self, model: Any, samples: list[Any]) -> float:
        import torch

        with torch.no_grad():
            found = token_logprobs(model, [s.prompt_ids for s in samples], [s.token_ids for s in samples])
        ours = [row[mask].tolist() for row, mask in zip(found.logprobs, found.mask, strict=True)]
        return measure([s.logprobs for s in samples], ours).mean


class Trl(Side):
    """TRL's colocated mode. Its engine loads in this process when the trainer is made."""

    def run(self) -> None:
        from trl import GRPOTrainer

        given = self.given
        model, rows, tokenizer = self.make()
        self.wait_for_card()
        config = self.config(
            use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=given["share"],
            vllm_max_model_length=given["prompt_tokens"] + given["tokens"] + SPARE,
            vllm_enable_sleep_mode=given["sleep"],
        )  # fmt: skip
        self.trainer = GRPOTrainer(
            model=model, reward_funcs=right, args=config, train_dataset=rows, processing_class=tokenizer
        )
        self.generation: Any = self.trainer.vllm_generation
        timed(self.generation, "sync_weights", self.parts, Part.SYNC)
        timed(self.generation, "generate", self.parts, Part.GENERATE)
        for name in ("sleep", "wake_up"):
            timed(self.generation.llm, name, self.parts, Part.SLEEP)
        log = Path(given["room"]) / "side.log"
        self.memory |= weights(log.read_text(errors="replace"), self.folder)
        self.serve(self.trainer)

    def prepare(self, sleep: bool) -> None:
        """Sleep mode is read at each step; between two modes the engine is brought to where the next one begins."""
        made = self.generation
        if made.enable_sleep_mode and not sleep and made._llm_weights_sleeping:
            made.llm.wake_up()
            made._llm_weights_sleeping = False
        if sleep and not made.enable_sleep_mode:
            made.llm.sleep(level=2)
            made._llm_weights_sleeping = True
        made.enable_sleep_mode = sleep

    def check(self) -> dict[str, Any]:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        return {"trainer_base_changed": self.base_moved(model)}


def alike(ours: list[tuple[int, ...]], others: list[tuple[int, ...]]) -> float:
    """The share of answers with the same tokens."""
    return sum(a == b for a, b in zip(ours, others, strict=True)) / len(ours)


def source(path: str | None, count: int) -> SourceConfig:
    """Questions in GSM8K's shape from a file, or generated ones."""
    if path:
        columns = ColumnMap(answer="answer")
        return SourceConfig(name="bench", kind="file", path=path, columns=columns, answer_format="hash_marks",
                            limit=count)  # fmt: skip
    return SourceConfig(name="bench", kind="generated", path="word-problems", limit=count)


def right(completions: list[str], gold: list[str], **_: Any) -> list[float | None]:
    """1 for the right number."""
    golds = map(parse_number, gold)
    return [float(numbers_equal(extract_number(text), g)) for text, g in zip(completions, golds, strict=True)]


def weights(log: str, folder: Path) -> dict[str, Any]:
    """What an engine's log says of the memory of its weights, and how many copies of the base that is."""
    found = LOADED.findall(log)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / GIB
    return {
        "weights_on_disk": round(size, 3),
        "engine_weights": float(found[-1]) if found else None,
        "engine_base_copies": round(float(found[-1]) / size, 2) if found else None,
    }


def complain(line: str) -> None:
    """To the log: the standard output is for answers."""
    print(line, file=sys.stderr, flush=True)


def frozen(model: Any) -> dict[str, Any]:
    """A copy of some frozen weights: those of the first layer's projections."""
    return {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if ".layers.0." in name and "lora_" not in name
    }


def main() -> int:
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    runtime.prepare_process(None)
    side = {"ours": Ours, "trl": Trl}[sys.argv[1]](json.loads(sys.argv[2]), channel)
    try:
        side.run()
    except BaseException as error:
        traceback.print_exc()
        side.answer(error=f"{type(error).__name__}: {runtime.first_line(error)}")
        return 1
    finally:
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # vLLM leaves threads that would hold the exit up

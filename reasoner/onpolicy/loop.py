"""The loop around the learner: sync, collect, step, checkpoint; the same call again resumes.

What a method gives is `collect`: it draws problems, asks the sampler for completions in as many waves as it needs,
gets verdicts, and returns rows. On the CPU a run that was killed and resumed ends with the same bytes as one that was
not, as long as `collect` depends on the context and `data` only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reasoner.ids import derived_seed
from reasoner.onpolicy.checkpoint import load_checkpoint, save_checkpoint
from reasoner.onpolicy.learner import Learner
from reasoner.onpolicy.losses import TokenLoss
from reasoner.onpolicy.parts import Part, Parts
from reasoner.onpolicy.rows import Row
from reasoner.onpolicy.sampler import OnPolicySampler


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step's collection may use."""

    step: int
    seed: int
    """Of this step: the same when the step is repeated or the run resumed. Put it into the requests."""
    sampler: OnPolicySampler
    parts: Parts


Collect = Callable[[StepContext], Sequence[Row]]
Report = Callable[[Mapping[str, float]], None]


class Stateful(Protocol):
    """A data source whose position is plain JSON data."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> None: ...


def run_loop(
    learner: Learner,
    sampler: OnPolicySampler,
    collect: Collect,
    *,
    work: Path,
    steps: int,
    seed: int = 0,
    identity: str = "",
    save_steps: int = 1,
    share_card: bool = False,
    policies: Sequence[str] | None = None,
    loss: TokenLoss | None = None,
    data: Stateful | None = None,
    report: Report | None = None,
) -> None:
    """Train until `steps` optimiser steps are done, from the last checkpoint in `work` where there is one.

    `identity` is the hash of what decides the run; a checkpoint of another one is refused. With `share_card` the
    sampler sleeps while the optimiser works. `policies` are the adapters that
    are synced each step, under their own names (by default those that are trained).
    `report` gets each step's numbers with the seconds of its parts. Raises what the parts raise.
    """
    parts = sampler.parts = learner.parts  # one clock, so that parts exclude each other
    restored = load_checkpoint(work, learner, identity=identity)
    first = restored["step"] if restored else 0
    if restored and data is not None:
        data.load_state_dict(restored["data"])
    parts.take()
    for step in range(first, steps):
        for name in policies or learner.policies:
            sampler.sync(name, learner.model, name)
        rows = list(collect(StepContext(step, derived_seed(seed, step), sampler, parts)))
        if share_card:
            sampler.sleep()
        numbers = learner.step(rows, loss=loss)
        if (step + 1) % save_steps == 0 or step + 1 == steps:
            with parts.part(Part.CHECKPOINT):
                position = data.state_dict() if data is not None else None
                save_checkpoint(work, learner, step=step + 1, identity=identity, data=position)
        if report is not None:
            report({"step": step, **numbers, **parts.take_step().metrics()})

"""What happens around the Trainer's steps: progress, the finite-loss check, sealed checkpoints.

The classes are made inside functions, because transformers is imported only where a training runs.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reasoner.errors import TrainingError
from reasoner.training.checkpoints import all_checkpoints, rotate, seal, step_of

Report = Callable[..., Any]


def reporting(report: Report, log: Callable[[str], None], every: int) -> Any:
    """A callback that reports each step, prints every `every`-th, and stops at a loss that is not finite.

    The Trainer would hide such a loss (`logging_nan_inf_filter` puts an average in its place), so it is off.
    """
    from transformers import TrainerCallback

    class Reporting(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if not state.is_world_process_zero:
                return
            if "loss" in (logs or {}):
                loss = logs["loss"]
                if not math.isfinite(loss):
                    raise TrainingError(
                        f"The loss is {loss} at step {state.global_step}; lower train.lr or train in fp32"
                    )
                report(done=state.global_step, total=state.max_steps, loss=loss)
                if state.global_step % every == 0 or state.global_step == state.max_steps:
                    rate = logs["learning_rate"]
                    log(f"step {state.global_step}/{state.max_steps} loss {loss:.4f} lr {rate:.2e}")
            if "eval_loss" in (logs or {}):
                log(f"step {state.global_step}/{state.max_steps} validation loss {logs['eval_loss']:.4f}")

    return Reporting()


def sealing(work: Path, limit: int) -> Any:
    """A callback that saves at every evaluation, seals each checkpoint, then removes the old ones.

    Saving at every evaluation is what lets the best model be exported whatever save_steps and eval_steps are.
    """
    from accelerate import PartialState
    from transformers import TrainerCallback

    class Sealing(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            control.should_save = control.should_save or control.should_evaluate
            return control

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            PartialState().wait_for_everyone()  # other processes write their random state
            if state.is_world_process_zero:
                newest = all_checkpoints(work)[-1]
                if step_of(newest) != state.global_step:
                    raise TrainingError(f"{newest} was left behind by a later run; empty the folder {work}")
                seal(newest)
                rotate(work, limit)

    return Sealing()


def counting_epochs(sampler: Any) -> Any:
    """A callback that tells `sampler` each epoch.

    The Trainer tells it, too, but does not reach a sampler behind the wrappers of a resumed run of several processes.
    """
    from transformers import TrainerCallback

    class CountingEpochs(TrainerCallback):
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sampler.set_epoch(int(state.epoch or 0))

    return CountingEpochs()

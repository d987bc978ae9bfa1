"""`reasoner plan NAME`: what a run would do, take and cost, before it is started; `--actual`: what it took."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.commands import prefect_settings
from flows.commands.pipelines import find
from reasoner.config.compose import load
from reasoner.config.kinds import MULTI_TURN, method_of, section_of
from reasoner.config.training import TrainConfig
from reasoner.errors import InfrastructureError, UsageError
from reasoner.home import Home
from reasoner.planning import calibration, device, measure
from reasoner.planning import plan as plans
from reasoner.planning.benchmark import measure_cpu
from reasoner.planning.device import GIB, Device
from reasoner.planning.plan import CACHED, Plan

UNPLANNED = ("nightly", "publish")
"""Methods that train nothing; what there is to do is known only when they run."""


def plan(
    name: str, overrides: list[str], price: float | None, as_json: bool, calibrate: bool, check: bool, actual: bool,
    on: str | None,
) -> None:  # fmt: skip
    """Print the plan; exit status 1, with a line a reason, where it does not fit."""
    home = Home.from_environment()
    _require_meaning(actual, calibrate, {
        "--price": price is not None, "--check": check, "--calibrate": calibrate, "--device": on is not None,
        "key=value": bool(overrides),
    }, on)  # fmt: skip
    if actual:
        show_actual(plans.read(_run_folder(name, home)), as_json)
        return
    find(name).check(overrides)
    if calibrate:
        _calibrate(name, overrides, home)
    made = make(name, overrides, home, on)
    if check:
        _check(made, name, overrides, home, as_json)
        return
    if as_json:
        json.dump(made.to_row(price), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        show(made, price)
    if made.refusals:
        raise InfrastructureError("; ".join(made.refusals))


def _require_meaning(actual: bool, calibrate: bool, given: Mapping[str, bool], on: str | None) -> None:
    """UsageError for options that would have no effect together."""
    idle = [option for option, is_given in given.items() if is_given]
    if actual and idle:
        raise UsageError(
            f"--actual shows a run as it was: leave {', '.join(idle)} out (reasoner plan RUN --actual)"
        )
    if calibrate and on is not None and on != here().name:
        raise UsageError(f"--calibrate measures this machine, which is {here().name}: leave --device {on} out, or "
                         "calibrate there")  # fmt: skip


def make(
    name: str, overrides: Sequence[str], home: Home, on: str | None = None, benchmark: bool = True
) -> Plan:
    """The plan for the device `on`, or for this machine's. Without `benchmark` nothing is measured or written.

    Raises UsageError for a pipeline that trains nothing.
    """
    if method_of(name) in UNPLANNED:
        raise UsageError(
            f"{name!r} has no plan: it trains nothing, and what there is to do is known when it runs"
        )
    wanted = device.find(on) if on else here()
    elsewhere = not wanted.is_cpu and not Path("/dev/nvidiactl").exists()
    found = calibration.read(home.path)
    if wanted.is_cpu and (found is None or not found.device.is_cpu) and benchmark:
        found = measure.only_processor(measure_cpu())
        calibration.write(home.path, found)
    config: Any = load(name, overrides, section_of(name))
    prefect_settings.prepare()
    from tasks.planning import make_plan

    # Where numbers are shown besides the report needs what only a finished run has; it decides no stage.
    quiet = ["use_wandb=false"] if method_of(name) in MULTI_TURN else []
    return make_plan(
        name, find(name).flow(), [*overrides, *quiet], config.model, home, wanted, found, elsewhere
    )


def here() -> Device:
    """This machine's device: its card, else its processor. UsageError for a card that is in no table."""
    if not Path("/dev/nvidiactl").exists():
        return device.unmeasured_cpu()
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(
            asked, capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        names = []
    card = device.card_named(names[0]) if names else None
    if card is None:
        raise UsageError(f"no figures for the card {names[0] if names else 'here'!r}; name the nearest with --device: "
                         f"{', '.join(device.CARDS)} or cpu")  # fmt: skip
    return card


def _calibrate(name: str, overrides: Sequence[str], home: Home) -> None:
    """Measure this machine with the configured model and keep it in HOME/calibration.json."""
    from reasoner.models import resolve

    config: Any = load(name, overrides, section_of(name))
    print(f"calibrating with {config.model.path}: a few minutes", file=sys.stderr, flush=True)
    folder = resolve(config.model, home.path).folder
    found = here()
    found = measure_cpu() if found.is_cpu else found
    train: Any = getattr(config, "train", None) or getattr(
        getattr(config, "sft", None), "train", TrainConfig()
    )
    result = measure.measure(
        folder, config.model.path, config.engine, train, found, home,
        lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    where = calibration.write(home.path, result)
    for kind in ("shares", "seconds"):
        for key, value in sorted(getattr(result, kind).items()):
            print(f"  {key} {value:.3g}", file=sys.stderr)
    print(f"kept in {where}", file=sys.stderr, flush=True)


def _check(made: Plan, name: str, overrides: Sequence[str], home: Home, as_json: bool) -> None:
    """Every gate a line; exit status 1 where one does not pass."""
    from reasoner.models import resolve
    from reasoner.planning.architecture import folder_of
    from reasoner.preflight.check import examine

    config: Any = load(name, overrides, section_of(name))
    folder = folder_of(config.model, home.path)
    if folder is None and config.model.path.lower().endswith(".gguf"):
        folder = resolve(config.model, home.path).folder  # converted once, from a file that is here
    found = []
    for finding in examine(config, folder, made.device, made.refusals):
        found.append(finding)
        if not as_json:
            print(f"{'ok    ' if finding.passed else 'FAILED'} {finding.gate}: {finding.line}", flush=True)
    failed = [finding.gate for finding in found if not finding.passed]
    if as_json:
        json.dump({"ok": not failed, "gates": [f.to_row() for f in found]}, sys.stdout, indent=1)
        print()
    if failed:
        raise InfrastructureError(f"{name} would not work here: {', '.join(failed)}")


def show(made: Plan, price: float | None) -> None:
    """A line a stage, then the sums."""
    print(f"{made.name} on {made.device}; {made.basis}")
    width = max((len(step.label) for step in made.steps), default=5)
    print(
        f"{'stage':<{width}}  state   {'tokens':>9}  {'time':>8}  {'card':>8}  {'memory':>8}  {'disk':>8}  why"
    )
    for step in made.steps:
        what = step.estimate
        if step.state == CACHED:
            print(f"{step.label:<{width}}  cached")
            continue
        tokens = what.trained_tokens or what.new_tokens
        print(
            f"{step.label:<{width}}  {step.state:<6}  {tokens or '':>9}  {clock(what.seconds):>8}  "
            f"{size(what.device_bytes):>8}  {size(what.host_bytes):>8}  {size(what.disk_bytes):>8}  {step.reason}"
        )
    states = made.states
    print(f"{states['cached']} cached, {states['stale']} stale, {states['to run']} to run")
    print(
        f"about {clock(made.seconds)} ({clock(made.overhead)} of it orchestration), {made.total('prompt_tokens'):,} "
        f"tokens read, {made.total('new_tokens'):,} written, {made.total('trained_tokens'):,} trained on, "
        f"{size(made.peak('device_bytes')) or 'no'} card memory, {size(made.peak('host_bytes'))} main memory, "
        f"{size(made.total('disk_bytes'))} disk"
    )
    notes = list(dict.fromkeys(note for step in made.owed for note in step.estimate.notes))
    if notes:
        print(f"assumed: {'; '.join(notes)}")
    if price is not None:
        print(f"cost about {made.cost(price):.2f} EUR at {price:g} EUR an hour")


def show_actual(made: Plan, as_json: bool) -> None:
    """Predicted beside actual, a line a stage, then the sums."""
    rows = plans.compared(made)
    if as_json:
        json.dump(made.to_row(), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    print(f"{made.name} on {made.device}; {made.basis}")
    width = max((len(step.label) for step, _ in rows), default=5)
    print(f"{'stage':<{width}}  {'predicted':>9}  {'actual':>9}  off")
    for step, seconds in rows:
        off = plans.error_of(step.estimate.seconds, seconds)
        share = f"{off:+.0%}" if max(step.estimate.seconds, seconds) >= 1 else ""  # of less it says nothing
        print(f"{step.label:<{width}}  {step.estimate.seconds:>7.1f} s  {seconds:>7.1f} s  {share}".rstrip())
    print(summary(made))


def summary(made: Plan) -> str:
    """One line: the stages' sums, and the whole run."""
    rows = plans.compared(made)
    predicted, taken = sum(s.estimate.seconds for s, _ in rows), sum(seconds for _, seconds in rows)
    line = (f"{len(rows)} stages: predicted {predicted:.0f} s, took {taken:.0f} s "
            f"({plans.error_of(predicted, taken):+.0%})")  # fmt: skip
    if made.actual_seconds is not None:
        whole = made.actual_seconds
        off = plans.error_of(made.seconds, whole)
        line += f"; the run: predicted {made.seconds:.0f} s, took {whole:.0f} s ({off:+.0%})"
    return line


def keep(made: Plan, folder: Path, seconds: float) -> Plan:
    """Add what the run in `folder` took, and keep plan and actual there."""
    steps = plans.with_keys_of_run(made.steps, folder)
    done = dataclasses.replace(
        made, steps=steps, actual=plans.timings(folder), actual_seconds=round(seconds, 1)
    )
    done.write(folder)
    return done


def _run_folder(name: str, home: Home) -> Path:
    from reasoner.audit.runs import find_run

    return find_run(name, home)


def clock(seconds: float) -> str:
    """`12 s`, `3:40 min`, `5:20 h`."""
    whole = round(seconds)
    if whole < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 7200:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def size(count: float) -> str:
    """Bytes in MiB or GiB; empty for none."""
    if not count:
        return ""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{max(1, round(count / 2**20))} MiB"

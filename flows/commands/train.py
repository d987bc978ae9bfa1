"""`reasoner train`: the multi-turn driver (originals: run_bi_level_score.py, scripts/run.py), in a plain folder.

reasoner train                                              MLMT-RL on math, full-grad
reasoner train stop_value_gradients=true
reasoner train --config-name score_math --env-type math
reasoner train --config-name bi_level_score_code --env-type code hydra.run.dir=outputs/mlmt save_path=outputs/mlmt/saved
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT = "bi_level_score_math"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("train")(train)


def train(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Keys, such as lm_lr=1e-5 save_path=out")
    ] = None,
    config_name: Annotated[
        str, typer.Option("--config-name", "-cn", help="A configuration, such as score_math or archer_code")
    ] = DEFAULT,
    env_type: Annotated[
        str | None, typer.Option("--env-type", help="math or code; must be the configuration's")
    ] = None,
) -> None:
    """Train with a multi-turn method (MLMT-RL, RL-guided SCoRe, SCoRe, ArCHer) on math or code."""
    from reasoner.config.compose import load
    from reasoner.config.multiturn import MultiTurnConfig
    from reasoner.stages.multiturn_folder import MultiTurnFolder
    from tasks.progress import Progress

    name = plain_name(config_name)
    folder, given = run_folder(name, overrides or [])
    require_multi_turn(name)
    config = load(name, given, MultiTurnConfig)
    require_env_type(name, config.env_type, env_type)
    print_config(name, config)
    progress = Progress()
    try:
        run = MultiTurnFolder(
            folder,
            config,
            lambda label, done, total, facts: progress.update(label, done, total, **facts),
            _say,
        )
        saved = run.train()
    finally:
        progress.close()
    _say(f"run       {run.folder}")
    for part in ("solver", "guidance", "value"):
        if (saved / part).is_dir():
            _say(f"{part:9} {saved / part}")


def plain_name(name: str) -> str:
    """`math_configs/bi_level_score_math.yaml`, as the original writes it, is `bi_level_score_math`."""
    return Path(name).name.removesuffix(".yaml")


def run_folder(name: str, overrides: list[str]) -> tuple[Path, list[str]]:
    """Where the run goes (`hydra.run.dir`), and the overrides without Hydra's own. Raises UsageError for others of
    Hydra's: only composing is Hydra's work here."""
    from reasoner.errors import UsageError
    from reasoner.ids import content_hash

    folder: Path | None = None
    given = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key.lstrip("+") == "hydra.run.dir" and value:
            folder = Path(value)
        elif key.lstrip("+~").startswith("hydra."):
            raise UsageError(f"{key}: of Hydra's own keys only hydra.run.dir is known, the run's folder")
        else:
            given.append(override)
    if folder is None:
        mark = f"-{content_hash(sorted(given), 8)}" if given else ""
        folder = Path("outputs") / f"{name}{mark}"
    return folder, given


def require_multi_turn(name: str) -> None:
    """Raises ConfigurationError for a configuration of another method."""
    from reasoner.config import compose
    from reasoner.config.kinds import MULTI_TURN, method_of
    from reasoner.errors import ConfigurationError

    if method_of(name) not in MULTI_TURN:
        those = [n for n in compose.names() if method_of(n) in MULTI_TURN]
        raise ConfigurationError(
            f"configuration {name!r} is of method {method_of(name)!r}; `reasoner train` takes {', '.join(those)}"
        )


def require_env_type(name: str, has: str, wanted: str | None) -> None:
    """Raises UsageError where --env-type says something else than the configuration."""
    from reasoner.errors import UsageError

    if wanted not in (None, "math", "code"):
        raise UsageError(f"--env-type is math or code, not {wanted!r}")
    if wanted is not None and wanted != has:
        other = name.replace(has, wanted)
        raise UsageError(f"--env-type {wanted}: {name} is a {has} configuration; use --config-name {other}")


def print_config(name: str, config: Any) -> None:
    """The resolved configuration and the mode, as the original prints them."""
    import yaml

    print(f"# {name}")
    yaml.safe_dump(json.loads(config.model_dump_json()), sys.stdout, sort_keys=False, allow_unicode=True)
    print(
        f"# method: {config.method} on {config.env_type}" + (f", mode: {config.mode}" if config.mode else "")
    )
    sys.stdout.flush()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

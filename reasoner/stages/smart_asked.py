"""What SMART's step commands may be asked for; each refusal says what to give instead, before anything is written."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reasoner.config.smart import SmartConfig
from reasoner.errors import DataError, UsageError

PARTS = 5
"""The original's number of parts of the training pool."""
NAMED = 4
"""At most so many differing keys are named."""


def require_part(part: int) -> None:
    """Raises UsageError unless the pool has such a part."""
    if not 1 <= part <= PARTS:
        raise UsageError(f"PART is a number from 1 to {PARTS}, not {part}")


def require_no_file(path: Path, what: str) -> None:
    """Raises UsageError where `path`, given as `what`, is there and no folder."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{what} {path} is a file; give a folder")


def batch(batch_size: int | None, grad_accum: int | None) -> dict[str, int]:
    """The given ones of the two numbers, by their names in `train`. Raises UsageError for one below 1."""
    given = [("batch_size", "--per_device_train_batch_size", batch_size),
             ("grad_accum", "--gradient_accumulation_steps", grad_accum)]  # fmt: skip
    for _, flag, value in given:
        if value is not None and value < 1:
            raise UsageError(f"{flag} is at least 1, not {value}")
    return {name: value for name, _, value in given if value is not None}


def saved_config(folder: Path) -> SmartConfig:
    """The configuration that `folder` was made with. Raises DataError where it can't be read as one."""
    file = folder / "config.json"
    try:
        return SmartConfig.model_validate_json(file.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{file} is not a configuration of this version ({where + ': ' if where else ''}{first['msg']}); "
            "choose another folder"
        ) from error


def refuse_other(folder: Path, config: SmartConfig) -> None:
    """Raises UsageError that names the keys in which `config` differs from the folder's."""
    keys = differing(saved_config(folder).model_dump(), config.model_dump())
    named = ", ".join(keys[:NAMED]) + (f" and {len(keys) - NAMED} more" if len(keys) > NAMED else "")
    raise UsageError(
        f"{folder} was made with another model or configuration: {named or 'written by another version'}; give the "
        "words of its first smart-infer again, or another folder"
    )


def differing(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys of two nested tables whose values differ."""
    found: list[str] = []
    for key in sorted(one.keys() | other.keys()):
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differing(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(prefix + key)
    return found

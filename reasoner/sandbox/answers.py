"""Turns a line of the result channel into a `Result`. The program itself may have written that line."""

import math
from typing import Any

from reasoner.sandbox.jobs import Result, Status
from reasoner.sandbox.values import BadTreeError, decode


def program_result(line: dict[str, Any], seconds: float) -> Result:
    """Check what a program's process says: it may have been written by the program itself."""
    if isinstance(line.get("r"), str):
        try:
            number = float(line["r"])
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return Result(Status.OK, repr(number), seconds=seconds)
    return failure_of(line, seconds) or Result(Status.BAD_VALUE, message="not a number", seconds=seconds)


def failure_of(line: dict[str, Any], seconds: float) -> Result | None:
    """The result of a line that reports an exception or a value that is not plain; None for another line."""
    if isinstance(line.get("o"), str):
        return Result(Status.BAD_VALUE, type_name=line["o"][:80], message=line["o"][:80], seconds=seconds)
    if "e" not in line:
        return None
    claimed = {s.value: s for s in (Status.EXCEPTION, Status.SYNTAX_ERROR, Status.MEMORY, Status.BAD_VALUE)}
    status = claimed.get(str(line["e"]), Status.EXCEPTION)
    return Result(
        status,
        type_name=str(line.get("x", ""))[:80],
        message=str(line.get("m", ""))[:500],
        seconds=seconds,
    )


def value_of(line: dict[str, Any], seconds: float) -> Result:
    """The result of a line that answers an expression."""
    failure = failure_of(line, seconds)
    if failure is not None:
        return failure
    if "v" not in line:
        return Result(Status.BAD_VALUE, message="no value", seconds=seconds)
    try:
        return Result(Status.OK, decode(line["v"]), seconds=seconds)
    except (BadTreeError, RecursionError, MemoryError) as error:
        return Result(Status.BAD_VALUE, message=f"not a plain value: {error}", seconds=seconds)

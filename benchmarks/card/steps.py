"""How many iterations of a multi-turn training a number of minutes holds, from the times of a short one.

    python benchmarks/card/steps.py TIMES.jsonl MINUTES

TIMES are the seconds by part that a training leaves in its logs. The median over all iterations but the first counts,
without validations and checkpoints; five validations are taken off the minutes. Prints a multiple of 4, at least 4.
"""

import json
import statistics
import sys
from pathlib import Path

VALIDATIONS = 5
"""Before the first iteration, and after each quarter."""


def main() -> int:
    times, minutes = Path(sys.argv[1]), float(sys.argv[2])
    rows = [json.loads(line) for line in times.read_text().splitlines()]
    own = [row["wall"] - row.get("validate", 0.0) - row.get("checkpoint", 0.0) for row in rows]
    seconds, validation = statistics.median(own[1:]), rows[0].get("validate", 0.0)
    steps = int((60 * minutes - VALIDATIONS * validation) / seconds) // 4 * 4
    print(
        f"{seconds:.2f} s an iteration (median of {len(own) - 1}), {validation:.2f} s a validation",
        file=sys.stderr,
    )
    print(max(4, steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Claim: no text, number, value or program crashes or hangs a verifier, or makes equal numbers differ.

    python benchmarks/fuzz_verdicts.py --minutes 10 [--seed 0] [--only NAME] [--log fuzz.jsonl]

Tries the properties of tests/support/fuzz.py with hypothesis, one seed after the other, until the time is over. Every
round is one line of JSON in the log: seed, examples a property, rows that only the clock stopped, and the smallest
example of each failure. `--seed N --rounds 1` repeats a round. Exit status 1 where something failed.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support import fuzz
from tests.support.fuzz import PROPERTIES, Property, Tools

EXAMPLES = 100
"""Examples of a property with weight 1 in one round."""


def try_property(prop: Property, tools: Tools, number: int) -> dict[str, Any]:
    """One round of one property: how many examples, how long, and the smallest failure if there is one."""
    tried, last, started = 0, None, time.monotonic()

    @seed(number)
    @settings(
        max_examples=max(4, round(EXAMPLES * prop.weight)), deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(prop.examples)
    def holds(example: object) -> None:
        nonlocal tried, last
        tried, last = tried + 1, example
        prop.check(tools, example)

    failure = None
    try:
        holds()
    except AssertionError as error:
        failure = f"{last!r}: {str(error)[:1500]}"
    except Exception as error:
        failure = f"{last!r}: {type(error).__name__}: {str(error)[:1500]}"
    found: dict[str, Any] = {"tried": tried, "seconds": round(time.monotonic() - started, 1)}
    return found | ({"failure": failure} if failure else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--only", help="part of a property's name")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    chosen = [p for p in PROPERTIES if not options.only or options.only in p.name]
    warnings.simplefilter(
        "ignore", SyntaxWarning
    )  # Python's own remarks on nonsense that it is given to parse
    end = time.monotonic() + 60 * options.minutes
    total, failed, slow, number = 0, 0, 0, options.seed
    with fuzz.tools() as tools:
        while time.monotonic() < end and number < options.seed + options.rounds:
            tools.slow.clear()
            round_ = {
                p.name: try_property(p, tools, number)
                for p in chosen
                if not (p.sandboxed and tools.sandbox is None)
            }
            total += sum(result["tried"] for result in round_.values())
            failed += sum("failure" in result for result in round_.values())
            slow += len(tools.slow)
            line = json.dumps({"seed": number, "properties": round_, "stopped_by_the_clock": tools.slow})
            if options.log:
                with options.log.open("a", encoding="utf-8") as log:
                    log.write(line + "\n")
            for name, result in round_.items():
                if "failure" in result:
                    print(
                        f"seed {number} {name}: {result['failure']}".encode(errors="replace").decode(),
                        flush=True,
                    )
            number += 1
    print(json.dumps({
        "rounds": number - options.seed, "examples": total, "failures": failed, "stopped_by_the_clock": slow,
        "minutes": round(options.minutes - max(0.0, end - time.monotonic()) / 60, 2),
    }))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

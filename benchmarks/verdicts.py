"""Verdicts a second: the pool of killable workers against math-verify called directly in one process.

    python benchmarks/verdicts.py [--rows 400] [--repeats 5] [--workers 2] [--out verdicts.json]

Rows are generated, different in every block: numbers, fractions, radicals, polynomials, equations, intervals,
tuples and matrices, right and wrong, at the end of some prose. Measured in ABBA order in one run:

- `clean`: pool / direct on clean rows (bar: 0.8). Direct has no limit on memory, no process to kill, and its
own alarms.
- `poison`: pool with 1 % hostile rows / pool without (bar: 0.9).

A ratio is the median over the repeats with a 95 % bootstrap interval. The exit status is 1 only where an
interval lies wholly below its bar. The start of the pool is not part of a ratio; it is reported.
"""

import argparse
import json
import logging
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reasoner.verifiers.math import MathItem
from reasoner.verifiers.pool import MathPool

BARS = {"clean": 0.8, "poison": 0.9}
POISON = (
    r"\boxed{5^{5^{5^5}}}",
    r"\boxed{(9^{9^{9}})!}",
    "{" * 100_000 + "1" + "}" * 100_000,
    r"\frac{1}{2}+" * 90_000,
    r"\boxed{3} " * 10_000,
)
PROSE = "We compare both sides of step {n} and keep what the condition allows, so the next case is ${n}k$. "


def pair(rng: random.Random) -> tuple[str, str]:
    """A gold and an answer that is equal in another form, or off by one in a fifth of the cases."""
    a, b, c = (rng.randint(2, 97) for _ in range(3))
    d = a + (rng.random() < 0.2)
    return rng.choice(
        (
            (f"{a * 1000 + b}", f"{d},{b:03d}"),
            (f"\\frac{{{a}}}{{{b}}}", f"\\frac{{{d * c}}}{{{b * c}}}"),
            (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{d * d * b}}}"),
            (f"x^2+{2 * a}x+{a * a}", f"(x+{d})^2"),
            (f"y={a}x+{b}", f"{d}x-y+{b}=0"),
            (f"[{a},{a + b})", f"{d} \\le x < {a + b}"),
            (f"({a}, \\frac{{{b}\\pi}}{{2}})", f"({d}, {b}\\pi/2)"),
            (f"{a}, {a + b}", f"{a + b} \\text{{ and }} {d}"),
            (
                f"\\begin{{pmatrix}}{a}\\\\{b}\\end{{pmatrix}}",
                f"\\begin{{bmatrix}}{d}\\\\{b}\\end{{bmatrix}}",
            ),
            (f"{a}\\pi", f"{d} \\pi \\text{{ cm}}"),
        )
    )


def rows(count: int, seed: int, poison: float = 0.0) -> list[MathItem]:
    """`count` different rows; a share `poison` of them is hostile."""
    rng = random.Random(seed)
    items = []
    for i in range(count):
        gold, answer = pair(rng)
        prose = "".join(PROSE.format(n=rng.randint(2, 99)) for _ in range(rng.randint(2, 12)))
        items.append(MathItem(f"${gold}$", f"{prose}Therefore the answer is $\\boxed{{{answer}}}$."))
        if poison and i % round(1 / poison) == 0:
            items[-1] = MathItem("1", POISON[(i * seed) % len(POISON)])
    return items


def direct(items: list[MathItem]) -> None:
    """math-verify as its documentation shows it, with its own timeouts."""
    from math_verify import parse, verify

    for item in items:
        verify(parse(item.gold), parse(item.prediction))


def seconds(work: Callable[[list[MathItem]], object], items: list[MathItem]) -> float:
    start = time.perf_counter()
    work(items)
    return time.perf_counter() - start


def abba(
    first: Callable[[int], float], second: Callable[[int], float], repeats: int
) -> tuple[list[float], list[float]]:
    """Times of two measures in ABBA order; both get the same block number."""
    a: list[float] = []
    b: list[float] = []
    for block in range(1, repeats + 1):
        a.append(first(2 * block))
        b.append(second(2 * block))
        b.append(second(2 * block + 1))
        a.append(first(2 * block + 1))
    return a, b


def summary(name: str, above: list[float], below: list[float]) -> dict[str, object]:
    """The median of above/below, pair by pair, with a bootstrap interval."""
    ratios = [x / y for x, y in zip(above, below, strict=True)]
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    low, high = medians[50], medians[1949]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "bar": BARS[name],
        "passed": high >= BARS[name],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    direct(rows(40, 10**6))
    start = time.perf_counter()
    with MathPool(workers=options.workers) as pool:
        started = time.perf_counter() - start
        list(pool.verdicts(rows(40, 10**6)))

        def pooled(seed: int, poison: float = 0.0) -> float:
            return seconds(lambda items: list(pool.verdicts(items)), rows(options.rows, seed, poison))

        own, library = abba(pooled, lambda seed: seconds(direct, rows(options.rows, seed)), options.repeats)
        plain, poisoned = abba(
            lambda seed: pooled(seed + 1000), lambda seed: pooled(seed + 2000, 0.01), options.repeats
        )
    result = {
        "clean": summary("clean", library, own),
        "poison": summary("poison", plain, poisoned),
        "pool_rows_per_second": round(options.rows / statistics.median(own), 1),
        "direct_rows_per_second": round(options.rows / statistics.median(library), 1),
        "pool_start_seconds": round(started, 2),
        "rows": options.rows,
        "repeats": 2 * options.repeats,
        "workers": options.workers,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "math_verify": version("math-verify"),
        "sympy": version("sympy"),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 0 if all(result[name]["passed"] for name in BARS) else 1  # type: ignore[index]


if __name__ == "__main__":
    sys.exit(main())

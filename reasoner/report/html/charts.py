"""Line charts as numbers for an SVG: where the lines and the ticks are. The template draws them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 420.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 12.0, 30.0
MOST = 400
"""Points a line: more cannot be told apart on a screen."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its path in the chart's coordinates; `last` is its last point and value."""

    label: str
    path: str
    dots: tuple[tuple[float, float], ...]
    """The points themselves, where there are few of them."""
    last: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: `x_ticks` and `y_ticks` are along the axes, `rows` the numbers for the table below."""

    title: str
    x_label: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def summary(self) -> str:
        """The chart in a sentence, for those who do not see it."""
        last = ", ".join(f"{line.label} ends at {number(line.last)}" for line in self.lines)
        return f"{self.title} by {self.x_label}: {last}."


def line_chart(title: str, series: Mapping[str, Points], x_label: str = "step") -> Chart | None:
    """A chart of the series that have finite points; None where none has."""
    found = {label: kept for label, points in series.items() if (kept := thinned(_finite(points)))}
    if not found:
        return None
    xs = [x for points in found.values() for x, _ in points]
    ys = [y for points in found.values() for _, y in points]
    y_at = ticks(min(ys), max(ys), 5)
    x_at = [x for x in ticks(min(xs), max(xs), 6) if min(xs) <= x <= max(xs)] or [min(xs)]
    low, high = min(y_at[0], min(ys)), max(y_at[-1], max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = (max(xs) - min(xs)) or 1.0, (high - low) or 1.0
        across = LEFT + (WIDTH - LEFT - RIGHT) * (x - min(xs)) / wide
        return round(across, 1), round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / tall, 1)

    lines = tuple(
        _line(label, [place(x, y) for x, y in points], points[-1][1]) for label, points in found.items()
    )
    return Chart(
        title, x_label, lines,
        tuple(Tick(place(x, low)[0], number(x)) for x in x_at),
        tuple(Tick(place(min(xs), y)[1], number(y)) for y in y_at),
        (x_label, *found), _table(found),
    )  # fmt: skip


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers that span `low` to `high`, about so many."""
    if high - low < 1e-12 + 1e-9 * max(abs(low), abs(high)):
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(1, about - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * i, 12) for i in range(first, last + 1)]


def thinned(points: Points) -> list[tuple[float, float]]:
    """At most MOST points: the mean of equal windows, under the window's last x."""
    size = math.ceil(len(points) / MOST)
    if size <= 1:
        return list(points)
    windows = [points[i : i + size] for i in range(0, len(points), size)]
    return [(w[-1][0], sum(y for _, y in w) / len(w)) for w in windows]


def number(value: float) -> str:
    """Short: no needless digits, a real minus sign."""
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("e-0", "e-").replace("-", "−")


def whole_windows(points: Points) -> list[tuple[float, float]]:
    """Means of windows, under each window's last x, without a last window of less than half the others' size: it goes
    into the one before. The mean of one step would look like the end of a training."""
    if len(points) < 3:
        return list(points)
    (before, _), (x1, y1), (x2, y2) = points[-3:]
    usual, last = x1 - before, x2 - x1
    if last >= usual / 2:
        return list(points)
    return [*points[:-2], (x2, (y1 * usual + y2 * last) / (usual + last))]


@dataclass(frozen=True, slots=True)
class Axis:
    """The part of the line from 0 to 1 on which a table draws its intervals."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a proportion lies, from 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    @property
    def labels(self) -> tuple[str, str, str]:
        """At the left end, in the middle, at the right end."""
        return tuple(
            f"{v:.2f}".rstrip("0").rstrip(".") for v in (self.low, (self.low + self.high) / 2, self.high)
        )  # type: ignore[return-value]


NARROWEST = 0.4
"""The least that an axis spans, so that a difference that is small does not fill the table."""


def axis(estimates: Iterable[Any]) -> Axis:
    """One axis, in tenths, for all intervals of a table. An estimate has `n`, `low` and `high`."""
    known = [e for e in estimates if e is not None and e.n]
    if not known:
        return Axis(0.0, 1.0)
    low = math.floor(10 * min(e.low for e in known)) / 10
    high = math.ceil(10 * max(e.high for e in known)) / 10
    while high - low < NARROWEST - 1e-9:
        low, high = max(0.0, low - 0.1), min(1.0, high + 0.1)
    return Axis(round(low, 1), round(high, 1))


def _finite(points: Points) -> list[tuple[float, float]]:
    return sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))


def _line(label: str, points: list[tuple[float, float]], last: float) -> Line:
    path = "M" + "L".join(f"{x:g},{y:g}" for x, y in points)
    return Line(label, path, tuple(points) if len(points) <= 12 else (points[-1],), last)


def _table(found: Mapping[str, Points]) -> tuple[tuple[str, ...], ...]:
    """One row an x, thinned to what one reads."""
    by_x: dict[float, dict[str, float]] = {}
    for label, points in found.items():
        for x, y in points:
            by_x.setdefault(x, {})[label] = y
    keys = sorted(by_x)
    keys = keys[:: math.ceil(len(keys) / 40)]
    return tuple(
        (number(x), *(number(by_x[x][label]) if label in by_x[x] else "" for label in found)) for x in keys
    )

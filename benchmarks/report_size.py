"""How large the HTML report of a big run is, how fast it opens, filters and searches in a real browser.

python benchmarks/report_size.py --rows 50000

Makes a SMART run in a store without a model (three strategies few-shot, two epochs, about 100 words a response), writes
its report as `reasoner report` does, and drives a headless Chromium. Prints one JSON object; times are in seconds,
medians of `--repeats`. `first_view` is from the navigation until the list stands; `filter` from the choice until the
rows are laid out; `search_first` unpacks every text, `search_again` does not.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reasoner.home import Home  # noqa: E402  (the path above is for runs out of the repository)
from reasoner.report.html.build import write_html  # noqa: E402
from tests.support.chromium import HOW, Chromium, find_chromium  # noqa: E402
from tests.support.report_runs import Runs  # noqa: E402

FILTER = """new Promise((done) => {
  const select = document.getElementById('f-FACET'), started = performance.now();
  select.selectedIndex = INDEX;
  select.dispatchEvent(new Event('change', { bubbles: true }));
  document.getElementById('list').getBoundingClientRect();
  requestAnimationFrame(() => setTimeout(() => done((performance.now() - started) / 1000)));
})"""
SEARCH = """new Promise((done) => {
  const field = document.getElementById('search'), before = document.getElementById('shown').textContent;
  const started = performance.now();
  field.value = WORDS;
  field.dispatchEvent(new Event('input', { bubbles: true }));
  const look = () => (document.getElementById('shown').textContent !== before
    ? done((performance.now() - started) / 1000) : setTimeout(look, 2));
  look();
})"""
SCROLL = """new Promise((done) => {
  const list = document.getElementById('list'), times = [];
  let last = performance.now(), n = 0;
  const step = (now) => { times.push(now - last); last = now; list.scrollTop = (n++ * 7919) % list.scrollHeight;
    n < 60 ? requestAnimationFrame(step) : done(times.sort((a, b) => a - b)[Math.floor(times.length * 0.95)] / 1000); };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=50_000, help="trajectories, about")
    parser.add_argument("--words", type=int, default=100, help="words a response")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    program = find_chromium()
    if program is None:
        raise SystemExit(HOW)
    with tempfile.TemporaryDirectory() as folder:
        print(
            json.dumps(measure(Path(folder), program, options.rows, options.words, options.repeats), indent=1)
        )


def measure(folder: Path, program: str, rows: int, words: int, repeats: int) -> dict[str, Any]:
    """All figures."""
    # 3 few-shot passes over pool and held-out, and 2 epochs over held-out: 3 p + 5 h = rows with h = 2 p, 13 p.
    pool = max(1, rows // 13)
    run = Runs(folder, words=words).smart(pool=pool, held_out=2 * pool)
    started, cpu = time.perf_counter(), time.process_time()
    path, count = write_html(run, Home(folder), chat=False)
    made = {"wall": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    with Chromium(program, patience=600) as browser:
        opened = [browser.open(path) for _ in range(repeats)]
        filters = [
            browser.evaluate(FILTER.replace("FACET", facet).replace("INDEX", str(index)))
            for _ in range(repeats)
            for facet, index in (
                ("outcome", 1),
                ("arm", 1),
                ("strategy", 1),
                ("arm", 0),
                ("outcome", 0),
                ("strategy", 0),
            )
        ]
        scrolled = browser.evaluate(SCROLL)
        first = browser.evaluate(SEARCH.replace("WORDS", "'pears boxes'"))
        again = [
            browser.evaluate(SEARCH.replace("WORDS", json.dumps(word)))
            for word in ("eval-17", "answer is 1", "the apples", "karen pears", "talopo")[:repeats]
        ]
        heap = browser.evaluate("performance.memory ? performance.memory.usedJSHeapSize / 1e6 : null")
        version = browser.call("Browser.getVersion")["product"]
        errors = browser.errors
    return {
        "trajectories": count,
        "file_mb": round(path.stat().st_size / 1e6, 2),
        "write": {name: round(value, 2) for name, value in made.items()},
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "first_view": _spread(opened),
        "filter": _spread(filters),
        "search_first": round(first, 3),
        "search_again": _spread(again),
        "scroll_frame_p95": round(scrolled, 3),
        "heap_mb_after_search": heap and round(heap),
        "console_errors": errors,
        "browser": version,
        "machine": {
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "system": platform.platform(),
        },
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 3), "worst": round(max(values), 3)}


if __name__ == "__main__":
    main()

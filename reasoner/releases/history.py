"""The nights of a release: one JSON line a night in `nights/NAME.jsonl`, the newest word on each night."""

import json
from pathlib import Path

from reasoner.errors import DataError
from reasoner.home import Home
from reasoner.process.locks import FileLock
from reasoner.releases.night import Night
from reasoner.store.durable import make_folder, replace_file

WAIT_SECONDS = 30.0


class History:
    """Nights of one release, kept under a lock and replaced as a whole."""

    def __init__(self, home: Home, release: str) -> None:
        self.path = home.path / "nights" / f"{release}.jsonl"
        self._lock = home.locks / f"nights-{release}.lock"

    def read(self, model: str | None = None) -> list[Night]:
        """The nights in order; only those of the model with this digest, where one is given."""
        nights = sorted(self._all(), key=lambda night: night.night)
        return [night for night in nights if model is None or night.model == model]

    def add(self, night: Night) -> None:
        """Write a night down; the same night of the same model takes the place of what was there."""
        make_folder(self.path.parent)
        with FileLock(self._lock, timeout=WAIT_SECONDS):
            kept = [n for n in self._all() if (n.night, n.model) != (night.night, night.model)]
            rows = [json.dumps(n.to_row(), sort_keys=True, ensure_ascii=False) for n in [*kept, night]]
            replace_file(self.path, [(row + "\n").encode() for row in rows])

    def _all(self) -> list[Night]:
        if not self.path.exists():
            return []
        return list(map(self._night, Path(self.path).read_text(encoding="utf-8").splitlines()))

    def _night(self, line: str) -> Night:
        try:
            return Night.from_row(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.path} holds a line that is no night ({error}); mend it or move it away"
            ) from None

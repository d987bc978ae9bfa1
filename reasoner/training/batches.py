"""The micro-batch of a training's work folder and its halvings, kept over a crash."""

import json
from pathlib import Path

from reasoner.ids import canonical
from reasoner.training.checkpoints import write_json
from reasoner.training.trainer import Batch

BATCH_FILE = "batch.json"


class BatchRecord:
    """`batch` is the one to use now; `halve` takes the next smaller one and writes it down."""

    def __init__(self, work: Path, configured: Batch, *, fresh: bool) -> None:
        """`fresh` forgets what an earlier training left."""
        self._path = work / BATCH_FILE
        self.batch = configured
        self.halvings: list[dict[str, int]] = []
        if fresh:
            self._path.unlink(missing_ok=True)
        elif self._path.is_file():
            known = json.loads(self._path.read_text(encoding="utf-8"))
            self.batch, self.halvings = Batch(**known["batch"]), known["halvings"]

    def halve(self, step: int) -> bool:
        """False if there is no smaller micro-batch."""
        smaller = self.batch.halved()
        if smaller is None:
            return False
        self.batch = smaller
        self.halvings.append({"step": step, "batch_size": smaller.size, "grad_accum": smaller.accum})
        write_json(self._path, {"batch": canonical(smaller), "halvings": self.halvings})
        return True

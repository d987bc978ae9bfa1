"""The folder in which everything that a run leaves is found: `REASONER_HOME`, or `.reasoner` where one stands."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """Names the parts of the home folder; creates nothing by itself."""

    path: Path

    @classmethod
    def from_environment(cls) -> "Home":
        return cls(Path(os.environ.get("REASONER_HOME", ".reasoner")).expanduser().resolve())

    @property
    def artifacts(self) -> str:
        """Folder or fsspec URL of the artifact store (`REASONER_STORE` overrides)."""
        return os.environ.get("REASONER_STORE", str(self.path / "artifacts"))

    @property
    def ledger(self) -> Path:
        """Journals of completions, one folder a model fingerprint."""
        return self.path / "ledger"

    @property
    def shared_ledger(self) -> str:
        """fsspec URL or folder where ledgers are shared with other machines (`REASONER_LEDGER`); empty for nowhere."""
        return os.environ.get("REASONER_LEDGER", "")

    @property
    def shared_jobs(self) -> str:
        """Where workers of other machines may join a generation (`REASONER_SHARDS`); empty for this machine alone."""
        return os.environ.get("REASONER_SHARDS", "")

    @property
    def results(self) -> Path:
        """Prefect's cached results, one small file a stage key."""
        return self.path / "results"

    @property
    def locks(self) -> Path:
        return self.path / "locks"

    @property
    def runs(self) -> Path:
        """One folder a run: resolved configuration, logs, report."""
        return self.path / "runs"

    @property
    def models(self) -> Path:
        """Checkpoints converted from packaged files."""
        return self.path / "models"

    @property
    def work(self) -> Path:
        """Unfinished work of stages, such as training checkpoints, named by the stage's key."""
        return self.path / "work"

    @property
    def engines(self) -> Path:
        """Records of kept engines, one file a host and set of cards."""
        return self.path / "engines"

    @property
    def micro_batches(self) -> Path:
        """Notes on the training micro-batch that fitted a model, device and length."""
        return self.path / "micro-batches"

    @property
    def prefect(self) -> Path:
        """The embedded Prefect server's database and profile."""
        return self.path / "prefect"

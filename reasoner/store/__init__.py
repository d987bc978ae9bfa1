"""Content-addressed artifacts: see `store.Store`. Rows of an artifact are JSON Lines: see `rows`."""

from reasoner.store.manifest import FileEntry, Manifest
from reasoner.store.store import Draft, Store, open_ref, verify_ref

__all__ = ["Draft", "FileEntry", "Manifest", "Store", "open_ref", "verify_ref"]

"""The releases of a home folder: `releases.json`, replaced as a whole under a lock."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from reasoner.config.compose import nearest
from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.process.locks import FileLock
from reasoner.releases.release import Release, check_name
from reasoner.store.durable import make_folder, replace_file

SCHEMA = 1
WAIT_SECONDS = 30.0


class Book:
    """Reads and changes `releases.json`. Changes of several processes follow one another; none is lost."""

    def __init__(self, home: Home) -> None:
        self.path = home.path / "releases.json"
        self._lock = home.locks / "releases.lock"

    def list(self) -> list[Release]:
        """All releases by name. Raises DataError where the file is not one of ours."""
        if not self.path.exists():
            return []
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']}, this version reads {SCHEMA}")
            found = [Release.from_row(row) for row in data["releases"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path} is no list of releases ({type(error).__name__}: {error}); mend it or move it away"
            ) from None
        return sorted(found, key=lambda release: release.name)

    def get(self, name: str) -> Release:
        """The release `name`. UsageError names those that there are."""
        there = {release.name: release for release in self.list()}
        if name not in there:
            known = ", ".join(there) or "none; `reasoner release RUN NAME` makes one"
            raise UsageError(f"no release {name!r}.{nearest(name, there)} There are: {known}")
        return there[name]

    def add(self, release: Release, *, replace: bool = False) -> None:
        """Write down a release. UsageError for a name that cannot be one, or that is taken, without `replace`."""
        check_name(release.name)
        with self._changing() as releases:
            old = releases.get(release.name)
            if old is not None and not replace:
                raise UsageError(
                    f"release {old.name!r} is there already (run {old.run}, {old.date[:10]}); give another name,"
                    " or --replace it"
                )
            releases[release.name] = release

    def remove(self, name: str) -> Release:
        """Forget a release; its artifacts and its nights stay. UsageError for an unknown name."""
        with self._changing() as releases:
            found = self.get(name)
            del releases[name]
            return found

    def published(self, name: str, digest: str, repo: str, revision: str) -> None:
        """Write down where a release's model is on the Hub, unless the name has come to stand for another model."""
        with self._changing() as releases:
            found = releases.get(name)
            if found is not None and found.model.digest == digest:
                releases[name] = replace(found, hub_repo=repo, hub_revision=revision)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Release]]:
        """The releases by name; what the block leaves is written, and nothing after an exception."""
        make_folder(self.path.parent)
        with FileLock(self._lock, timeout=WAIT_SECONDS):
            releases = {release.name: release for release in self.list()}
            yield releases
            rows = [releases[name].to_row() for name in sorted(releases)]
            text = json.dumps({"schema": SCHEMA, "releases": rows}, indent=1, ensure_ascii=False)
            replace_file(self.path, [text.encode(), b"\n"])

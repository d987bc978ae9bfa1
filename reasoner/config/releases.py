"""The configurations of a night and of publishing: which releases, how they are judged, where to."""

from typing import Literal

from pydantic import Field

from reasoner.config.base import Section
from reasoner.config.training import ComputeConfig
from reasoner.errors import ConfigurationError


class NightlyConfig(Section):
    """Measuring releases again. How each is asked stands in the release itself."""

    method: Literal["nightly"] = "nightly"
    releases: tuple[str, ...] = ()
    """Names; unset takes all that there are."""
    night: str = Field(default="", max_length=40, pattern=r"^[A-Za-z0-9.:_-]*$", coerce_numbers_to_str=True)
    """What the evaluation is called. Within one night what is done is not done again; another name measures anew.
    Unset is the day for which the run was scheduled, UTC."""
    alpha: float = Field(default=0.01, gt=0, lt=1)
    """The largest chance, a release and night, that an unchanged model is called worse (Holm over its sets)."""
    notify: str = Field(default="", pattern=r"^([a-z0-9-]+/[^/\s]+)?$")
    """A Prefect notification block that is told of a drop: `type/name`, such as `slack-webhook/oncall`."""
    compute: ComputeConfig = ComputeConfig()


class PublishingConfig(Section):
    """Pushing one model to the Hub. Nothing is pushed without a repository."""

    method: Literal["publish"] = "publish"
    release: str = ""
    """A release's name; this or `run`."""
    run: str = ""
    """A run's id or name, or a beginning of either."""
    repo: str = Field(default="", pattern=r"^([^/\s]+/[^/\s]+)?$")
    """`owner/name`."""
    private: bool = True
    """A new repository is made private, and one that is there already must be."""

    def require_target(self) -> None:
        """ConfigurationError unless it is said what to push and where to."""
        if not self.repo:
            raise ConfigurationError("publishing is off: no repository is named; set repo=owner/name")
        if bool(self.release) == bool(self.run):
            raise ConfigurationError("say what to publish: release=NAME or run=RUN, one of them")

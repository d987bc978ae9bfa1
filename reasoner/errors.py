"""The one tree of errors.

A message says what is wrong, where, and what to do next, in a line or two. An `InfrastructureError` is never
the model's failure: it must not be turned into a verdict or a reward. A message that holds a secret (an address with a
password, a token in a library's words) is shown without it.
"""

from reasoner.redaction import find_secret, redact


class ReasonerError(Exception):
    """Root of every error that this project raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        return redact(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class UsageError(ReasonerError, ValueError):
    """The caller asked for something that cannot be meant: a bad option, key or value (exit status 2)."""

    exit_code = 2


class ConfigurationError(UsageError):
    """A configuration key or value is wrong; the message names the nearest valid key."""


class DataError(ReasonerError, ValueError):
    """A data set cannot be used: missing file or column, no rows, too many unreadable golds, contamination."""


class ModelError(ReasonerError, ValueError):
    """A model cannot be used: no such path, no tokenizer, an adapter of another base, unsafe weights."""


class ArtifactError(ReasonerError):
    """A stored artifact is missing, incomplete or altered."""


class TrainingError(ReasonerError):
    """Training cannot start or its result is not acceptable (bad mask, failed parity, too few records)."""


class CollapseError(ReasonerError):
    """A model's output is not usable by the next stage, for example because it names no strategy."""


class RegressionError(ReasonerError):
    """A released model has become significantly worse than it was when it was released."""


class PublishError(ReasonerError):
    """A model cannot be published: no token, no permission, or something in its files that must stay here."""


class InfrastructureError(ReasonerError, RuntimeError):
    """Something around the model failed: an engine, a worker pool, a sandbox, a child process."""


class EngineError(InfrastructureError):
    """A generation engine failed to start, died or broke its protocol."""


class SandboxUnavailableError(InfrastructureError):
    """This machine cannot isolate untrusted programs; code is refused, never run bare."""


class ChildFailedError(InfrastructureError):
    """A child process ended with an error; the message holds its last lines and the path of its log."""


class BusyError(InfrastructureError):
    """Another live process owns this file or stage."""


def without_secrets(error: Exception) -> Exception:
    """The error itself, or one of ours in its place where its words, or those of its causes, hold a secret."""
    told: BaseException | None = error
    while told is not None:
        if not isinstance(told, ReasonerError) and find_secret(f"{told} {told!r}"):
            if not isinstance(error, ReasonerError):
                return InfrastructureError(f"{type(error).__name__}: {error}")
            error.__cause__ = error.__context__ = None  # its own words are shown redacted
            return error
        told = told.__cause__ or told.__context__
    return error

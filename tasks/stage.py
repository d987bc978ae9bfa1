"""Makes a cached Prefect task of a stage function.

A stage function fills a draft folder from configuration sections and artifact references:

    @stage("records", kind="records", version=1)
    def records_epoch1(out: Draft, problems: ArtifactRef, attempts: tuple[ArtifactRef, ...], config: Epoch1Config): ...

    ref = records_epoch1(problems, attempts, config)        # in a flow: a task run, cached by content

The key is name + version + canonical hash of the arguments (a reference counts by digest) + what `external` says of
the world outside (a prompt's hash, a file's). The cached result is the reference; loading it verifies the artifact, so
a stage whose artifact is gone or altered is run again.
"""

import functools
import inspect
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import FlowRunContext, TaskRunContext
from prefect.serializers import Serializer
from prefect.transactions import IsolationLevel
from pydantic import TypeAdapter

from reasoner.errors import ArtifactError
from reasoner.ids import content_hash
from reasoner.lineage.calls import Call, outline
from reasoner.provenance import environment
from reasoner.records import ArtifactRef
from reasoner.redaction import redact
from reasoner.store import Draft, Store, verify_ref
from reasoner.store.removal import touch_ref
from tasks.context import RunContext, clean_errors, current, in_run, in_stage
from tasks.locks import FlockLockManager

STAGES: dict[str, "Stage"] = {}
"""Every stage by name, for the flow that runs one stage on the GPU pool."""

_locks = FlockLockManager()


class VerifiedRefSerializer(Serializer):
    """Stores a reference as JSON; loading it verifies the artifact. An error here is a cache miss to Prefect."""

    type: Literal["verified-ref"] = "verified-ref"

    def dumps(self, obj: ArtifactRef | BaseException) -> bytes:
        """Prefect also stores the exception of a failed run; only its words are kept, nothing is pickled."""
        row = (
            {"error": redact(f"{type(obj).__name__}: {obj}")}
            if isinstance(obj, BaseException)
            else obj.to_row()
        )
        return json.dumps(row).encode()

    def loads(self, blob: bytes) -> ArtifactRef:
        row = json.loads(blob)
        if "error" in row:
            raise ArtifactError(f"the stage failed: {row['error']}")
        ref = ArtifactRef.from_row(row)
        if in_run():
            ref = current().store.here(ref)
        verify_ref(ref)
        if in_run():  # under the stage's lock, which housekeeping takes before it removes
            touch_ref(ref)
        return ref


class Stage:
    """A stage: call it in a flow, or `run` it without Prefect. Made by the decorator `stage`.

    Its function fills the draft; with `outside` it returns a folder outside the store, which is registered.
    """

    def __init__(
        self,
        function: Callable[..., Path | None],
        name: str,
        kind: str,
        version: int,
        gpu: bool,
        outside: bool,
        external: Callable[[dict[str, Any]], Any] | None,
        label: Callable[[dict[str, Any]], str] | None,
    ) -> None:
        self.function, self.name, self.kind, self.version = function, name, kind, version
        self.gpu, self.outside = gpu, outside
        self._external, self._label = external, label
        signature = inspect.signature(function)
        self.signature = signature.replace(
            parameters=list(signature.parameters.values())[1:], return_annotation=ArtifactRef
        )
        hints = get_type_hints(function)
        self._adapters = {name: TypeAdapter(hints[name]) for name in self.signature.parameters}
        self._task = self._make_task()
        functools.update_wrapper(self, function)
        STAGES[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> ArtifactRef:
        arguments, context = self.bind(*args, **kwargs), current()
        rehearsed = context.rehearse(self, arguments)
        if rehearsed is not None:
            return rehearsed
        results = context.home.results
        results.mkdir(parents=True, exist_ok=True)
        named = self._task.with_options(result_storage=results, task_run_name=self.label(arguments))
        ref: ArtifactRef = named(**arguments)
        _untrack_fields(ref)
        context.ended(replace(self.call(arguments), ref=ref))
        if not (results / self.key(arguments)).exists():
            # Prefect only logs it: a run that is complete would be made again without anybody knowing why.
            current().progress.say(
                f"{self.label(arguments)}: its result could not be kept in {results}, so the same command will make it "
                "again; make that folder writable, or free some space"
            )
        return ref

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def key(self, arguments: dict[str, Any]) -> str:
        """Name, version and content of the inputs. TypeError if an argument has no canonical form."""
        return self._key(arguments, self.external(arguments))

    def external(self, arguments: dict[str, Any]) -> Any:
        """What the key holds of the world outside of the arguments, such as a prompt's text."""
        return self._external(arguments) if self._external else None

    def call(self, arguments: dict[str, Any], label: str | None = None) -> Call:
        """This stage with these inputs, in a form that can be kept and compared."""
        outside = self.external(arguments)
        label = self.label(arguments) if label is None else label
        key = self._key(arguments, outside)
        named = {self._external_name: outline(outside)} if self._external else {}
        return Call(self.name, label, self.version, key, self.encode(arguments), named)

    @property
    def _external_name(self) -> str:
        """What people call that which lies outside: the function's name in words."""
        name = getattr(self._external, "__name__", "<lambda>")
        return "outside" if name == "<lambda>" else name.replace("_", " ")

    def _key(self, arguments: dict[str, Any], outside: Any) -> str:
        return f"{self.name}-{self.version}-{content_hash([arguments, outside], 32)}"

    def label(self, arguments: dict[str, Any]) -> str:
        """What the task run and the progress lines are called, such as `few-shot cot`."""
        return f"{self.name} {self._label(arguments)}".strip() if self._label else self.name

    def encode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as JSON data, to send a stage to another process."""
        return {
            name: self._adapters[name].dump_python(value, mode="json") for name, value in arguments.items()
        }

    def decode(self, data: dict[str, Any]) -> dict[str, Any]:
        return {name: self._adapters[name].validate_python(value) for name, value in data.items()}

    def run(self, arguments: dict[str, Any]) -> ArtifactRef:
        """Compute the stage here and now and publish its artifact."""
        context, call, started = current(), self.call(arguments), time.monotonic()
        facts = {
            "stage": call.stage, "label": call.label, "version": call.version, "key": call.key,
            "arguments": call.arguments, "external": call.external,
        }  # fmt: skip
        with in_stage(call.key, call.label):
            if self.outside:
                draft = Draft(context.home.work / call.key, facts)
                folder = self.function(draft, **arguments)
                assert folder is not None, f"stage {self.name} must return the folder to register"
                return context.store.register(self.kind, folder, _complete(draft.metadata, started))
            with context.store.writer(self.kind, metadata=facts) as draft:
                self.function(draft, **arguments)
                _complete(draft.metadata, started)
            return draft.ref

    def _compute(self, arguments: dict[str, Any]) -> ArtifactRef:
        context, started = current(), time.monotonic()
        with clean_errors():
            ref = self._made(arguments, context)
        context.note_time(self.key(arguments), self.label(arguments), ref, time.monotonic() - started)
        _record(self, arguments, ref, context.store)
        return ref

    def _made(self, arguments: dict[str, Any], context: RunContext) -> ArtifactRef:
        context.started(self.call(arguments))
        if self.gpu and context.gpu_pool:
            from tasks.gpu import run_on_pool

            return run_on_pool(self, arguments)
        return self.run(arguments)

    def _make_task(self) -> Any:
        def body(**arguments: Any) -> ArtifactRef:
            return self._compute(arguments)

        body.__name__ = body.__qualname__ = self.name.replace("-", "_")
        body.__doc__ = self.function.__doc__
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in self.signature.parameters.values()]
        body.__signature__ = self.signature.replace(parameters=named)  # type: ignore[attr-defined]

        def cache_key(_: TaskRunContext, parameters: dict[str, Any]) -> str:
            return self.key(parameters)

        policy = CacheKeyFnPolicy(cache_key_fn=cache_key).configure(
            isolation_level=IsolationLevel.SERIALIZABLE, lock_manager=_locks
        )
        return task(
            name=self.name, version=str(self.version), cache_policy=policy, persist_result=True,
            result_serializer=VerifiedRefSerializer(), cache_result_in_memory=False,
        )(body)  # fmt: skip


def stage(
    name: str,
    *,
    kind: str,
    version: int,
    gpu: bool = False,
    outside: bool = False,
    external: Callable[[dict[str, Any]], Any] | None = None,
    label: Callable[[dict[str, Any]], str] | None = None,
) -> Callable[[Callable[..., Path | None]], Stage]:
    """Decorate a stage function. Raise `version` whenever its result would change for the same inputs."""
    return lambda function: Stage(function, name, kind, version, gpu, outside, external, label)


def _untrack_fields(ref: ArtifactRef) -> None:
    """Let the run graph know this reference by itself alone.

    Prefect 3.7 links a task run to the fields of its result too, by identity. The string `kind` is one object for all
    artifacts of a kind, so that edges were drawn from the last of them to whatever took any of them.
    """
    flow = FlowRunContext.get()
    if flow is not None:
        for value in (ref.kind, ref.digest, ref.uri):
            flow.run_results.pop(id(value), None)


def _complete(metadata: dict[str, Any], started: float) -> dict[str, Any]:
    """Add how long it took and in what environment."""
    metadata |= {"seconds": round(time.monotonic() - started, 3), "environment": environment()}
    return metadata


def _record(stage_: Stage, arguments: dict[str, Any], ref: ArtifactRef, store: Store) -> None:
    """One Prefect artifact under the stage's key, so that its page shows a timeline of versions."""
    try:
        manifest = store.manifest(ref)
    except ArtifactError:  # pragma: no cover - published a moment ago on another machine's disk
        return
    facts = {
        name: value
        for name, value in manifest.metadata.items()
        if name not in ("arguments", "environment", "external")
    }
    lines = [f"# {stage_.label(arguments)}", "", f"`{ref.kind}` `{ref.digest[:16]}` at `{ref.uri}`", "",
             "```json", json.dumps(facts, indent=1, ensure_ascii=False), "```"]  # fmt: skip
    create_markdown_artifact(redact("\n".join(lines)), key=stage_.name, description=stage_.label(arguments))

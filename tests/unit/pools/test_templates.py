"""Work pools beyond this machine: their templates are what the packages that read them take, down to the manifest."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema
import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.templating import find_placeholders
from prefect.workers.process import ProcessJobConfiguration

from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.vllm_settings import vllm_arguments
from reasoner.errors import ConfigurationError

POOLS = Path(__file__).resolve().parents[3] / "pools"


def template(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((POOLS / f"{name}.json").read_text())
    return value


@pytest.mark.parametrize("name", ["kubernetes", "process"])
def test_every_placeholder_is_a_variable_and_every_variable_is_used(name: str) -> None:
    found = template(name)
    jsonschema.Draft202012Validator.check_schema(found["variables"])
    used = {placeholder.name for placeholder in find_placeholders(found["job_configuration"])}
    assert used == set(found["variables"]["properties"])
    for variable in found["variables"]["properties"].values():
        if "default" in variable:
            jsonschema.validate(variable["default"], variable)


def filled(configuration: Any, name: str, values: dict[str, Any]) -> Any:
    """The worker's own reading of a template. It needs no server, since the template names no blocks or variables."""
    return asyncio.run(configuration.from_template_and_values(template(name), values, client=object()))


def job(**values: Any) -> dict[str, Any]:
    """The manifest that prefect-kubernetes would submit for a flow run; nothing is submitted."""
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    made = filled(KubernetesWorkerJobConfiguration, "kubernetes", values)
    made.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="quiet-owl"))
    manifest: dict[str, Any] = made.job_manifest
    return manifest


def through_the_client(manifest: dict[str, Any]) -> Any:
    """A manifest as the Kubernetes client's model of a job understands it."""
    from kubernetes_asyncio.client import ApiClient

    async def read_and_written() -> Any:
        async with ApiClient() as client:
            return client.sanitize_for_serialization(client._ApiClient__deserialize(manifest, "V1Job"))

    return asyncio.run(read_and_written())


def test_kubernetes_takes_the_job() -> None:
    """Read by the Kubernetes client's own model, which drops what it does not know: nothing may be lost."""
    manifest = job(image="registry.example/reasoner@sha256:0", gpus=2)
    wanted = json.loads(json.dumps(manifest))
    limits = wanted["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/gpu"] = "2"  # the client writes quantities as text
    for name in ("completions", "parallelism"):
        # prefect-kubernetes 0.7 demands them in the pod's spec, where Kubernetes knows of none and drops them.
        assert wanted["spec"]["template"]["spec"].pop(name) == wanted["spec"][name] == 1
    assert through_the_client(manifest) == wanted
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": 2}
    assert container["image"].endswith("@sha256:0") and pod["restartPolicy"] == "Never"
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    named = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert named["REASONER_HOME"] == "/reasoner" == container["volumeMounts"][0]["mountPath"]
    assert "PREFECT__FLOW_RUN_ID" in named and container["args"][0] == "prefect"


def test_a_mistyped_key_of_the_manifest_would_be_seen() -> None:
    """What the test above rests on."""
    pod = {"spec": {"containers": [{"name": "c"}]}}
    assert through_the_client({"spec": {"backofLimit": 1, "template": pod}}) == {"spec": {"template": pod}}


def test_an_image_is_required() -> None:
    schema = template("kubernetes")["variables"]
    with pytest.raises(jsonschema.ValidationError, match="image"):
        jsonschema.validate({}, schema)
    jsonschema.validate({"image": "x", "gpus": 8}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"image": "x", "gpus": 0}, schema)


def test_a_host_takes_the_process() -> None:
    values = {"working_dir": "/opt/reasoner", "env": {"REASONER_HOME": "/shared/reasoner"}}
    made = filled(ProcessJobConfiguration, "process", values)
    made.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="quiet-owl"))
    assert made.env["REASONER_HOME"] == "/shared/reasoner" and made.env["HF_HUB_OFFLINE"] == "1"
    assert made.working_dir == Path("/opt/reasoner")
    assert str(made.command).endswith("-m prefect.engine")


RAY = {"distributed_executor_backend": "ray", "tensor_parallel_size": 8, "pipeline_parallel_size": 2}


def ray_arguments(known: set[str]) -> dict[str, Any]:
    engine = load("smart-epoch1", ["engine=vllm_ray"], SmartConfig).engine
    return vllm_arguments(
        EngineSettings(engine.kind, Path("m"), options=engine.options), cpu=False, known=known
    )


def test_settings_of_several_cards_reach_vllm_as_they_are() -> None:
    arguments = ray_arguments({*RAY, "max_model_len", "gpu_memory_utilization", "compilation_config"})
    assert {name: arguments[name] for name in RAY} == RAY and arguments["max_model_len"] == 4096


@pytest.mark.long
def test_vllm_knows_them() -> None:
    """Its import takes most of the time."""
    from vllm import EngineArgs

    made = EngineArgs(**ray_arguments({field.name for field in dataclasses.fields(EngineArgs)}))
    assert {name: getattr(made, name) for name in RAY} == RAY


def test_data_parallel_settings_are_ours() -> None:
    settings = EngineSettings("vllm", Path("m"), options={"data_parallel_size": 4})
    with pytest.raises(ConfigurationError, match=r"compute\.engines=4"):
        vllm_arguments(settings, cpu=False, known={"data_parallel_size"})

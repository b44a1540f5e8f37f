"""The chart's manifests against the published schemas of the kinds that they are."""

from __future__ import annotations

import copy

import kubeflow_trainer_api.models as trainer
import kubernetes_validate
import pytest
import yaml

from chart import ROOT, render

KUBERNETES = "1.33"
JOBSET = {"jobset": {"nodes": 2}}


def check(model, manifest: dict) -> None:
    """The model refuses wrong types and missing keys, and loses what it does not know."""
    understood = model.from_dict(copy.deepcopy(manifest)).to_dict()
    lost = differences(manifest, understood)
    assert not lost, f"unknown to {model.__name__}: {lost}"


def differences(written, understood, path: str = "") -> list[str]:
    if isinstance(written, dict) and isinstance(understood, dict):
        return [
            line
            for key in written
            for line in (
                differences(written[key], understood[key], f"{path}.{key}")
                if key in understood
                else [f"{path}.{key}"]
            )
        ]
    if (
        isinstance(written, list)
        and isinstance(understood, list)
        and len(written) == len(understood)
    ):
        pairs = enumerate(zip(written, understood, strict=False))
        return [
            line for at, (one, other) in pairs for line in differences(one, other, f"{path}[{at}]")
        ]
    return [] if written == understood else [f"{path}: {written!r} became {understood!r}"]


def pods(replicated_jobs: list[dict]) -> list[dict]:
    return [job["template"]["spec"]["template"] for job in replicated_jobs]


def check_pods(replicated_jobs: list[dict]) -> None:
    """Each pod by the schema of Kubernetes itself, which knows every key."""
    for job in replicated_jobs:
        pod = job["template"]["spec"]["template"]
        for container in pod["spec"]["containers"]:
            container.setdefault("image", "set by the TrainJob")
        whole = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": job["name"]},
            "spec": pod["spec"],
        }
        kubernetes_validate.validate(whole, KUBERNETES, strict=True)


@pytest.fixture
def runtime(tmp_path):
    [manifest] = render(tmp_path, {})
    return manifest


@pytest.fixture
def jobset(tmp_path):
    [manifest] = render(tmp_path, JOBSET)
    return manifest


def test_the_runtime_is_a_cluster_training_runtime(runtime):
    check(trainer.TrainerV1alpha1ClusterTrainingRuntime, runtime)
    check_pods(runtime["spec"]["template"]["spec"]["replicatedJobs"])


def test_the_training_without_trainer_is_a_jobset(jobset):
    check(trainer.JobsetV1alpha2JobSet, jobset)
    check_pods(jobset["spec"]["replicatedJobs"])


def test_the_example_is_a_train_job_of_the_runtime_of_the_chart(runtime):
    manifest = yaml.safe_load((ROOT / "configs/kubernetes/trainjob.yaml").read_text())
    check(trainer.TrainerV1alpha1TrainJob, manifest)
    assert manifest["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]


@pytest.mark.parametrize(
    "wrong", ["spec.mlPolicy.numNode", "spec.template.spec.replicatedJobs.0.templates"]
)
def test_a_key_that_the_schema_does_not_know_is_found(runtime, wrong):
    *path, key = wrong.split(".")
    place = runtime
    for step in path:
        place = place[int(step)] if step.isdigit() else place[step]
    place[key] = 1
    with pytest.raises(AssertionError, match=key):
        check(trainer.TrainerV1alpha1ClusterTrainingRuntime, runtime)


def test_the_trainer_gets_no_token_and_no_container_has_privileges(jobset):
    for pod in pods(jobset["spec"]["replicatedJobs"]):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["automountServiceAccountToken"] is False
        ours = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        for container in ours:
            if container["name"] == "node":
                assert all(variable["name"] != "TIERFEED_TOKEN" for variable in container["env"])
            else:
                context = container["securityContext"]
                assert (
                    context["capabilities"]["drop"] == ["ALL"] and context["readOnlyRootFilesystem"]
                )
                assert "limits" in container["resources"], container["name"]

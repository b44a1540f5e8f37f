"""Runs the pods of a JobSet as a kubelet would, with runc.

Each container has namespaces of its own, with the user, the memory limit, the read-only root, the
volumes and the variables that the manifest gives it, without capabilities and behind the default
seccomp profile. All pods share the network of this host, where a file names them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import seccomp

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
NAMESPACES = ("pid", "ipc", "uts", "mount")
SHM = "64k"  # smaller than any engine's: nothing of tierfeed needs it


def size(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def refusal() -> str | None:
    """Why this process can run no container; `None` if it can."""
    namespaces = ["unshare", *(f"--{kind}" for kind in NAMESPACES), "--fork", "true"]
    done = subprocess.run(namespaces, capture_output=True, text=True)
    return done.stderr.strip() or None


@dataclass
class Cluster:
    """What a cluster has beside pods."""

    folder: Path
    images: dict[str, Path]
    """The root of each image."""
    config_maps: dict[str, dict[str, str]]
    secrets: dict[str, dict[str, str]]
    claims: dict[str, Path]

    def run(self, jobset: dict) -> list[Pod]:
        """Starts the pods of all jobs, in any order, as a cluster does."""
        name, pods = jobset["metadata"]["name"], []
        for job in jobset["spec"]["replicatedJobs"]:
            spec = job["template"]["spec"]
            for index in range(spec.get("completions", 1)):
                pods.append(Pod(self, name, job["name"], index, spec["template"]["spec"]))
        hosts = "".join(f"127.0.0.1 {pod.host}.{name}\n" for pod in pods)
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        for pod in pods:
            pod.start()
        return pods


@dataclass
class Pod:
    cluster: Cluster
    jobset: str
    job: str
    index: int
    spec: dict
    containers: dict[str, Container] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return (
            f"{self.jobset}-{self.job}-{self.index}-0"
            if self.job == "manager"
            else f"{self.jobset}-{self.job}-0-{self.index}"
        )

    @property
    def folder(self) -> Path:
        return self.cluster.folder / self.host

    @property
    def user(self) -> int:
        return self.spec["securityContext"]["runAsUser"]

    def start(self) -> None:
        """Init containers in their order, where one that restarts always is a sidecar; then others."""
        self.folder.mkdir()
        for spec in self.spec.get("initContainers", []):
            container = self.begin(spec)
            if spec.get("restartPolicy") != "Always":
                assert container.wait(60) == 0, container.output()
        for spec in self.spec["containers"]:
            self.begin(spec)

    def begin(self, spec: dict) -> Container:
        container = Container(self, spec)
        self.containers[spec["name"]] = container
        container.start()
        return container

    def stop(self) -> None:
        """The sidecars end after the others, with a signal."""
        for container in reversed(self.containers.values()):
            container.stop()

    def volume(self, name: str) -> Path:
        """Where the bytes of a volume lie on this host."""
        [volume] = [volume for volume in self.spec["volumes"] if volume["name"] == name]
        if claim := volume.get("persistentVolumeClaim"):
            return self.cluster.claims[claim["claimName"]]
        path = self.folder / f"volume-{name}"
        if not path.exists():
            path.mkdir()
            shutil.chown(path, self.user, self.user)
            path.chmod(0o2777)
            if config := volume.get("configMap"):
                for file, text in self.cluster.config_maps[config["name"]].items():
                    (path / file).write_text(text)
        return path

    def value(self, variable: dict) -> str:
        if "value" in variable:
            return variable["value"]
        source = variable["valueFrom"]
        if secret := source.get("secretKeyRef"):
            return self.cluster.secrets[secret["name"]][secret["key"]]
        known = {
            "metadata.labels['jobset.sigs.k8s.io/jobset-name']": self.jobset,
            "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(self.index),
        }
        return known[source["fieldRef"]["fieldPath"]]


class Container:
    def __init__(self, pod: Pod, spec: dict) -> None:
        self.pod, self.spec, self.stopping, self.starts = pod, spec, False, 0
        # Of those that were started again.
        self.exit_codes: list[int] = []
        self.changing = threading.Lock()
        self.name = f"tierfeed-{pod.host}-{spec['name']}"
        self.bundle = pod.folder / spec["name"]
        self.log = pod.folder / f"{spec['name']}.log"
        self.process: subprocess.Popen | None = None

    @property
    def restarts(self) -> bool:
        policy = self.spec.get("restartPolicy") or self.pod.spec["restartPolicy"]
        return policy in ("Always", "OnFailure")

    def start(self) -> None:
        self.bundle.mkdir()
        (self.bundle / "config.json").write_text(json.dumps(self.config()))
        self.begin()
        if self.restarts:
            threading.Thread(target=self.keep, daemon=True).start()

    def begin(self) -> None:
        self.starts += 1
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["runc", "run", "--bundle", self.bundle, self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def keep(self) -> None:
        while True:
            code = self.process.wait()
            self.exit_codes.append(code)
            if code == 0 and self.spec.get("restartPolicy") != "Always":
                return
            time.sleep(0.2)
            with self.changing:
                if self.stopping:
                    return
                self.begin()

    def kill(self, signal: str = "KILL") -> None:
        subprocess.run(["runc", "kill", self.name, signal], check=True, capture_output=True)

    def stop(self) -> None:
        with self.changing:
            self.stopping = True
        if self.process.poll() is None:
            subprocess.run(["runc", "kill", self.name, "TERM"], check=False, capture_output=True)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                self.process.wait(10)
        subprocess.run(["runc", "delete", "--force", self.name], check=False, capture_output=True)

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def output(self) -> str:
        return f"{self.name}:\n{self.log.read_text()}"

    def environment(self) -> dict[str, str]:
        values = {
            "PATH": "/opt/tierfeed/bin:/usr/bin:/bin",
            "HOME": "/",
            "JOB_COMPLETION_INDEX": str(self.pod.index),
        }
        for variable in self.spec.get("env", []):
            values[variable["name"]] = expanded(self.pod.value(variable), values)
        return values

    def config(self) -> dict:
        environment = self.environment()
        entry = self.spec.get("command") or ["/opt/tierfeed/bin/tierfeed"]
        arguments = [*entry, *self.spec.get("args", [])]
        context = self.spec.get("securityContext", {})
        limits = self.spec.get("resources", {}).get("limits", {})
        return {
            "ociVersion": "1.0.2",
            "hostname": self.pod.host,
            "process": {
                "user": {"uid": self.pod.user, "gid": self.pod.user},
                "args": [expanded(argument, environment) for argument in arguments],
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": "/",
                "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted")},
                "noNewPrivileges": not context.get("allowPrivilegeEscalation", True),
            },
            "root": {"path": str(self.pod.cluster.images[self.spec["image"]]), "readonly": True},
            "mounts": [
                *MOUNTS,
                self.bind(self.pod.cluster.folder / "hosts", "/etc/hosts", "ro"),
                *self.volumes(),
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in NAMESPACES],
                "cgroupsPath": f"/{self.name}",
                "resources": {"memory": {"limit": size(limits["memory"])}} if limits else {},
                "seccomp": seccomp.without_capabilities(),
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
                "readonlyPaths": [
                    "/proc/bus",
                    "/proc/fs",
                    "/proc/irq",
                    "/proc/sys",
                    "/proc/sysrq-trigger",
                ],
            },
        }

    def volumes(self) -> list[dict]:
        return [
            self.bind(
                self.pod.volume(mount["name"]),
                mount["mountPath"],
                "ro" if mount.get("readOnly") else "rw",
            )
            for mount in self.spec.get("volumeMounts", [])
        ]

    @staticmethod
    def bind(source: Path, destination: str, access: str) -> dict:
        return {
            "destination": destination,
            "type": "bind",
            "source": str(source),
            "options": ["rbind", "nosuid", access],
        }


MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "mode=755", "size=64k"],
    },
    {
        "destination": "/dev/shm",
        "type": "tmpfs",
        "source": "shm",
        "options": ["nosuid", "nodev", "mode=1777", f"size={SHM}"],
    },
    {
        "destination": "/sys",
        "type": "sysfs",
        "source": "sysfs",
        "options": ["nosuid", "noexec", "nodev", "ro"],
    },
    {
        "destination": "/sys/fs/cgroup",
        "type": "cgroup",
        "source": "cgroup",
        "options": ["nosuid", "noexec", "nodev", "ro"],
    },
    {
        "destination": "/tmp",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "nodev", "mode=1777", "size=1m"],
    },
]


def expanded(text: str, values: dict[str, str]) -> str:
    """As Kubernetes expands $(NAME); what it does not know it leaves."""
    return re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), text)

"""Covers: what deploy/kubernetes and the guide beside it say is what the program has: names of
settings, ports, paths, arguments, nodes; and that kubectl builds the overlays.

Not covered: a cluster of Kubernetes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import dejaqueue
from dejaqueue.access.routes import RULES
from dejaqueue.cli.main import main
from dejaqueue.cluster.embedded import nodes_of
from dejaqueue.configuration import load
from dejaqueue.http import shapes
from dejaqueue.settings import BrokerSettings
from dejaqueue.times import parse_span_ms
from tests.cli.test_serve import Serve
from tests.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
SETTINGS = KUBERNETES / "base/dejaq.toml"
GUIDE = ROOT / "docs/guides/kubernetes.md"
Yaml = dict[str, Any]


def documents(name: str) -> list[Yaml]:
    text = (KUBERNETES / name).read_text(encoding="utf-8")
    return [one for one in yaml.safe_load_all(text) if one]


BASE = {
    (one["kind"], one["metadata"]["name"]): one
    for name in ("services", "statefulset", "network-policy", "disruption-budget")
    for one in documents(f"base/{name}.yaml")
}
POD: Yaml = BASE["StatefulSet", "dejaq"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
[CLUSTER] = documents("three/cluster.yaml")
FACTS = {"metadata.name": "", "metadata.namespace": "default"}
"""What a pod may be told of itself; its name is another one for each."""
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}


def environment(pod: str, *containers: Yaml) -> dict[str, str]:
    """What a pod of this name has in its environment."""
    known: dict[str, str] = {}
    for one in [variable for container in containers for variable in container["env"]]:
        path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = (FACTS[path] or pod) if path else str(one["value"])
        known[one["name"]] = re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], value)
    return known


def settings_of(monkeypatch: pytest.MonkeyPatch, pod: str, *containers: Yaml) -> BrokerSettings:
    for name, value in environment(pod, *containers).items():
        monkeypatch.setenv(name, value)
    return load(SETTINGS).settings


def test_the_settings_are_settings__and_ports_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, "dejaq-0", CONTAINER)
    assert (settings.server.port, settings.server.http_port) == (PORTS["dejaq"], PORTS["http"])
    assert settings.server.host == "0.0.0.0"
    assert settings.cluster.advertise == "dejaq-0.dejaq-nodes.default.svc"
    mounts = {mount["mountPath"]: mount for mount in CONTAINER["volumeMounts"]}
    assert Path(settings.journal.url).parent.as_posix() in mounts
    assert mounts["/etc/dejaq"]["readOnly"]


def test_three_pods_are_the_nodes_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    [more] = CLUSTER["spec"]["template"]["spec"]["containers"]
    assert more["name"] == CONTAINER["name"]
    pods = [f"dejaq-{number}" for number in range(CLUSTER["spec"]["replicas"])]
    service = BASE["StatefulSet", "dejaq"]["spec"]["serviceName"]
    for pod in pods:
        settings = settings_of(monkeypatch, pod, CONTAINER, more)
        assert settings.cluster.node == pod
        nodes = nodes_of(settings.cluster.nodes)
        assert [node.name for node in nodes] == pods
        assert [node.host for node in nodes] == [f"{one}.{service}" for one in pods]
        ports = {(node.route_port, node.client_port) for node in nodes}
        assert ports == {(PORTS["routes"], PORTS["journals"])}
        [mount] = more["volumeMounts"]
        assert settings.cluster.secret_file == f"{mount['mountPath']}/secret"
    # Brokers meet before they are ready, so their names have to be there.
    assert BASE["Service", service]["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in BASE["Service", "dejaq"]["spec"]


def test_the_arguments_are_those_of_the_command() -> None:
    command, *options = CONTAINER["args"]
    found = CliRunner().invoke(main, [command, *options, "--help"])
    assert found.exit_code == 0, found.output
    assert options == ["--config", "/etc/dejaq/dejaq.toml"]


def test_probes_ask_what_there_is() -> None:
    paths = {
        kind: CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    }
    assert {kind: asked["path"] for kind, asked in paths.items()} == {
        "startup": "/livez", "liveness": "/livez", "readiness": "/readyz",
    }  # fmt: skip
    for asked in paths.values():
        assert ("GET", asked["path"]) in RULES
        assert asked["port"] == "http"


def test_services_and_rules_name_ports_and_labels_of_the_pods() -> None:
    labels = BASE["StatefulSet", "dejaq"]["spec"]["template"]["metadata"]["labels"]
    for (kind, _), one in BASE.items():
        spec = one["spec"]
        if kind == "Service":
            assert spec["selector"].items() <= labels.items()
            for port in spec["ports"]:
                assert (port["name"], port["port"]) == (port["targetPort"], PORTS[port["name"]])
        elif kind == "NetworkPolicy":
            assert spec["podSelector"]["matchLabels"].items() <= labels.items()
            named = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
            assert sorted(named) == sorted(PORTS)
        else:
            assert spec["selector"]["matchLabels"].items() <= labels.items()
    # dejaq+srv:// asks for _dejaq._tcp.
    assert BASE["Service", "dejaq"]["spec"]["ports"][0]["name"] == "dejaq"


def test_a_pod_has_no_rights_that_it_does_not_need() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] == 10_001
    assert POD["automountServiceAccountToken"] is False
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def guide_documents() -> Iterator[Yaml]:
    for block in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
        yield from yaml.safe_load_all(block)


def test_the_scaler_asks_for_a_number_that_is_answered() -> None:
    [scaler] = [one for one in guide_documents() if one.get("kind") == "ScaledObject"]
    [trigger] = scaler["spec"]["triggers"]
    url = re.fullmatch(
        r"http://(\S+?)\.default\.svc:(\d+)(/v1/topics/)(\w+)(/due)\?within=(\w+)",
        trigger["metadata"]["url"],
    )
    assert url is not None
    assert BASE["Service", url[1]]["spec"]["ports"][0]["port"] == int(url[2])
    assert ("GET", f"{url[3]}{{topic}}{url[5]}") in RULES
    assert parse_span_ms(url[6]) == 60_000
    assert trigger["metadata"]["valueLocation"] in shapes.DueCount.model_fields
    names = {one["metadata"]["name"] for one in guide_documents() if "metadata" in one}
    assert trigger["authenticationRef"]["name"] in names


@pytest.mark.may_skip
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
@pytest.mark.parametrize(("overlay", "replicas"), [("one", 1), ("three", 3)])
def test_kubectl_builds_the_overlays(overlay: str, replicas: int) -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / overlay)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    found = {one["kind"]: one for one in yaml.safe_load_all(built.stdout)}
    assert found["StatefulSet"]["spec"]["replicas"] == replicas
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    names = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert names == [found["ConfigMap"]["metadata"]["name"]]
    assert "DEJAQ_CLUSTER__ADVERTISE" in [one["name"] for one in pod["containers"][0]["env"]]


def dockerfile() -> dict[str, list[str]]:
    """The instructions of the last stage, by their word."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.rpartition("\nFROM ")[2].splitlines()[1:]:
        if line and not line.startswith("#"):
            word, _, rest = line.strip().partition(" ")
            found.setdefault(word, []).append(rest.strip())
    return found


def test_the_image_has_settings_and_ports_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    image = dockerfile()
    variables = dict(one.split("=", 1) for line in image["ENV"] for one in line.split())
    for name, value in variables.items():
        if name.startswith("DEJAQ_"):
            monkeypatch.setenv(name, value)
    settings = load(None).settings
    exposed = [int(port) for port in image["EXPOSE"][0].split()]
    assert exposed == [settings.server.port, settings.server.http_port]
    assert settings.journal.url == variables["HOME"] == image["VOLUME"][0]
    assert image["USER"] == [f"{POD['securityContext']['runAsUser']}:10001"]
    assert image["STOPSIGNAL"] == ["SIGTERM"]
    assert f"'{settings.server.http_port}'" in image["HEALTHCHECK"][0]
    assert "/readyz" in image["HEALTHCHECK"][0]
    assert (json.loads(image["ENTRYPOINT"][0]), json.loads(image["CMD"][0])) == (
        ["dejaq"],
        ["serve"],
    )


def test_the_image_is_built_from_files_that_it_is_sent() -> None:
    sent = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert all((ROOT / path).exists() for path in sent)
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"requirements/\w+\.txt", text)) <= sent


COMPOSE = ROOT / "deploy/compose"


@pytest.mark.parametrize(("name", "pods"), [("one", 1), ("three", 3)])
def test_compose_has_settings_ports_and_files_that_there_are(
    name: str, pods: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = yaml.safe_load((COMPOSE / f"{name}.yaml").read_text(encoding="utf-8"))
    brokers = {name: one for name, one in file["services"].items() if "build" in one}
    assert len(brokers) == pods
    assert set(file["volumes"]) == {one["volumes"][0].partition(":")[0] for one in brokers.values()}
    for service, one in brokers.items():
        for variable, value in one["environment"].items():
            monkeypatch.setenv(variable, value)
        settings = load(None).settings
        assert [port.rpartition(":")[2] for port in one["ports"]] == ["7464", "7465"]
        assert all(port.startswith("127.0.0.1:") for port in one["ports"])
        assert service in settings.server.http_names.split(",")
        assert one["read_only"]
        assert (ROOT / "deploy/compose" / one["build"] / "Dockerfile").exists()
        if pods > 1:
            assert settings.cluster.node == settings.cluster.advertise == service
            nodes = nodes_of(settings.cluster.nodes)
            assert [node.host for node in nodes] == [node.name for node in nodes] == list(brokers)
            assert f"./secret:{settings.cluster.secret_file}:ro" in one["volumes"]
    producer = file["services"]["producer"]
    assert producer["image"] == "dejaq"
    assert producer["depends_on"] == list(brokers)
    assert producer["environment"]["DEJAQ_URL"] == f"dejaq://{','.join(brokers)}"
    assert producer["volumes"] == [f"./producer.py:{producer['entrypoint'][1]}:ro"]
    others = [one for one in file["services"].values() if "build" not in one]
    for mount in [mount for one in others for mount in one["volumes"]]:
        assert (COMPOSE / mount.partition(":")[0]).exists(), mount


def test_the_demo_producer_sends_and_takes__and_ends_when_told(tmp_path: Path) -> None:
    served = Serve("--data", "memory:", "--port", "0", "--json", cwd=tmp_path)
    url = served.where()["url"]
    producer = subprocess.Popen(
        [sys.executable, "-W", "error", str(COMPOSE / "producer.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "DEJAQ_URL": url, "DEMO_RATE": "1000"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with dejaqueue.Client(url) as client:

            def has(name: str) -> bool:
                topics = [topic.name for topic in client.topics()]
                return "reminders" in topics and getattr(client.stats("reminders"), name) > 0

            for name in ("acked", "moved", "cancelled"):
                until(lambda name=name: has(name), f"reminders are {name}")  # type: ignore[misc]
        producer.send_signal(signal.SIGTERM)
        said, _ = producer.communicate(timeout=PATIENCE_SECONDS)
    finally:
        producer.kill()
        producer.wait()
        served.end(signal.SIGTERM)
    assert producer.returncode == 0
    assert "reminders taken" in said


def test_prometheus_and_grafana_find_what_they_are_to_show() -> None:
    prometheus = yaml.safe_load((COMPOSE / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = prometheus["scrape_configs"]
    [found] = job["dns_sd_configs"]
    assert job["job_name"] == "dejaq", "alerts name it"
    assert found["port"] == BrokerSettings().server.http_port
    services = [
        set(yaml.safe_load((COMPOSE / f"{name}.yaml").read_text(encoding="utf-8"))["services"])
        for name in ("one", "three")
    ]
    assert set(found["names"]) == set.union(*services) - {"prometheus", "grafana", "producer"}
    source = yaml.safe_load((COMPOSE / "datasource.yaml").read_text(encoding="utf-8"))
    host = re.match(r"http://(\w+):", source["datasources"][0]["url"])
    assert host is not None
    assert all(host[1] in names for names in services)
    provider = yaml.safe_load((COMPOSE / "dashboards.yaml").read_text(encoding="utf-8"))
    mounted = provider["providers"][0]["options"]["path"]
    assert f"../grafana:{mounted}:ro" in (COMPOSE / "one.yaml").read_text(encoding="utf-8")

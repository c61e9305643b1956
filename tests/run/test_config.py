"""Settings: which source wins, and that each mistake is named."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from scheduler_service import presets
from scheduler_service.commands.main import main
from scheduler_service.config import Config, ConfigError, load, without_password
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.engine_settings import settings_of, stages_of, vc_policy_of
from scheduler_service.recording import parameters

DATABASE = {"database": "postgresql://ebb:hunter2@localhost/ebb"}
VCS = {**DATABASE, "virtual_clusters": True}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("heartbeat: 1\nsilent_after: 31\nlease: 11\n")
    monkeypatch.setenv("EBB_SCHEDULER_SILENT_AFTER", "32")
    monkeypatch.setenv("EBB_SCHEDULER_LEASE", "12")
    config = load(file, {**DATABASE, "lease": 13})
    assert (config.heartbeat, config.silent_after, config.lease, config.default_grace) == (1, 32, 13, 30)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "either database"),
        ({**DATABASE, "embedded": "/x"}, "either database"),
        ({"database": "mysql://x"}, "postgresql://"),
        (
            {**DATABASE, "listen": "0.0.0.0:7737"},
            r"TLS and tokens\. Set TLS \(tls_cert.* and tokens \(auth: token\), or",
        ),
        ({**DATABASE, "listen": "sched.example:7737", "auth": "token"}, r"needs TLS and tokens\. Set TLS \(.*tls_key\), or"),
        ({**DATABASE, "tls_certificate": "x.pem"}, "tls_certificate and tls_key go together"),
        ({**DATABASE, "tls_client_ca": "x.pem"}, "tls_client_ca needs TLS"),
        ({**DATABASE, "auth": "password"}, "'none' or 'token'"),
        ({**DATABASE, "listen": ":7737"}, "HOST:PORT"),
        ({**DATABASE, "listen": "nowhere"}, "HOST:PORT"),
        ({**DATABASE, "listen": "127.0.0.1:99999"}, "HOST:PORT"),
        ({**DATABASE, "advertise": "nowhere"}, "HOST:PORT, such as"),
        ({**DATABASE, "advertise": "ebb-1:0"}, "HOST:PORT, such as"),
        ({**DATABASE, "advertise": "a:1,b:2"}, "HOST:PORT, such as"),
        ({**DATABASE, "advertise": "[::]:7737"}, "nobody can connect to"),
        ({**DATABASE, "heartbeat": 9, "silent_after": 10}, "twice heartbeat"),
        ({**DATABASE, "policy": "random"}, "policy"),
        ({**DATABASE, "lease": 0}, "lease"),
        ({**DATABASE, "exchange": "auction"}, "exchange is for a site with virtual clusters"),
        ({**VCS, "exchange": "lottery"}, "Input should be 'balanced', 'auction' or 'none'"),
        ({**DATABASE, "pools": [{"name": "a", "nodes": ["n1"]}]}, "set `virtual_clusters: true`"),
        ({**VCS, "pools": [{"name": "a", "nodes": ["n1"]}, {"name": "b", "nodes": ["n1"]}]}, "node n1 is there twice"),
        ({**VCS, "pools": [{"name": "a", "nodes": ["n1"]}, {"name": "a", "nodes": ["n2"]}]}, "pool a is there twice"),
        ({**VCS, "pools": [{"name": "a", "nodes": []}]}, r"pools\.0\.nodes"),
        ({**VCS, "pools": [{"name": "a", "nodes": ["n1"], "levels": [{"name": "rack", "of": 2}]}]}, "do not make whole cells"),
        ({**VCS, "pools": [{"name": "a", "nodes": [["n1"], ["n2", "n3"]], "levels": ["rack"]}]}, "must be equal"),
        ({**VCS, "pools": [{"name": "a", "nodes": [["n1"], ["n2"]]}]}, r"grouped 1 deep, so `levels` must have 1 names"),
        ({**VCS, "pools": [{"name": "a", "nodes": ["n1"], "levels": [{"name": "node", "of": 1}]}]}, "another level already"),
        ({**DATABASE, "lease": float("inf")}, "lease"),
        ({**DATABASE, "lease": 1e300}, "lease: Input should be less"),
        ({**DATABASE, "lease": 61}, "lease: Input should be less than or equal to 60"),
        ({**DATABASE, "default_grace": 86401}, "default_grace: Input should be less than or equal to 86400"),
        ({**DATABASE, "min_run": 1e9}, "min_run: Input should be less than or equal to 100000000"),
        ({"embedded": ""}, "embedded: it is empty"),
        ({**DATABASE, "record": ""}, "record: it is empty"),
        ({**DATABASE, "heartbeat": True}, "heartbeat: it is true, and must not be a truth value"),
        ({**DATABASE, "host_percent": False}, "host_percent: it is false, and must not be a truth value"),
        (
            {**DATABASE, "fitgpp_cap": 10**22},
            r"fitgpp_cap: Input should be less than or equal to 1000000; is '10000000000000000000000'",
        ),
        ({**DATABASE, "blame_nodes": 10**22}, "blame_nodes: Input should be less than or equal to 1000000"),
        ({**DATABASE, "lease": "soon"}, "lease: Input should be a valid number, .*; is 'soon'"),
        ({**DATABASE, "listen": "::1:53501"}, r"'::1:53501' has an address of IPv6 without brackets: write \[::1\]:53501"),
        ({**DATABASE, "advertise": "::1:53501"}, r"'::1:53501' has an address of IPv6 without brackets: write \[::1\]:53501"),
        (
            {"database": ["postgresql://u:secret@h/db"]},
            r"database: Input should be a valid string; is .*postgresql://u:\*\*\*@h/db",
        ),
        ({"database": "postgresql://u:sec@ret@h/db"}, r"postgresql://u:\*\*\*@h/db has more than one @"),
    ],
)
def test_a_wrong_setting_is_named(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(None, flags)


@pytest.mark.parametrize("setting", ["record", "address_file"])
@pytest.mark.parametrize(
    ("folder", "said"), [("none", "there is no folder {folder} to write x in"), ("/proc", "x cannot be written in /proc: ")]
)
def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, setting: str, folder: str, said: str) -> None:
    path = tmp_path / folder / "x"
    flags = ["--record", str(path)] if setting == "record" else ["--address-file", str(path)]
    result = CliRunner().invoke(main, ["serve", "--database", DATABASE["database"], *flags])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"ebb-scheduler: {setting}: {said.format(folder=path.parent)}")


def test_a_file_that_is_not_there_or_not_yaml_or_has_an_unknown_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load(tmp_path / "none.yaml", DATABASE)
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load(broken, DATABASE)
    broken.write_text("- policy\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml has no lines such as `policy: fifo`"):
        load(broken, DATABASE)
    broken.write_text("policy: fifo\nmin_run: 60\npolicy: lrtp\n")
    with pytest.raises(ConfigError, match=r"'policy' is given twice\n.*broken\.yaml\", line 3"):
        load(broken, DATABASE)
    broken.write_text("polisy: fifo")
    with pytest.raises(ConfigError, match="polisy: there is no such setting"):
        load(broken, DATABASE)


def test_check_config_prints_what_would_hold_and_starts_nothing() -> None:
    result = CliRunner().invoke(main, ["serve", "--database", DATABASE["database"], "--policy", "fifo", "--check-config"])
    assert result.exit_code == 0
    assert "policy: fifo" in result.stdout
    assert "postgresql://ebb:***@localhost/ebb" in result.stdout
    assert "hunter2" not in result.stdout
    assert "listen: 127.0.0.1:7737" in result.stdout


def test_a_preset_sets_the_defaults_of_others_and_what_is_given_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, paper = load(None, DATABASE), load(None, {**DATABASE, "preset": "paper"})
    assert (site.preset, site.backfill, site.min_run, site.fault_retries, site.fitgpp_trials_in_flight) == (
        "site",
        True,
        60,
        2,
        None,
    )
    assert (paper.backfill, paper.min_run, paper.fault_retries, paper.fitgpp_trials_in_flight) == (False, 0, 0, 1)
    file = tmp_path / "scheduler.yaml"
    file.write_text("preset: paper\nmin_run: 7\n")
    monkeypatch.setenv("EBB_SCHEDULER_FAULT_RETRIES", "5")
    mixed = load(file, {**DATABASE, "fitgpp_trials_in_flight": 4})
    assert (mixed.backfill, mixed.min_run, mixed.fault_retries, mixed.fitgpp_trials_in_flight) == (False, 7, 5, 4)
    for wrong in ("papers", ["paper"]):
        with pytest.raises(ConfigError, match="preset: Input should be 'site' or 'paper'"):
            load(None, {**DATABASE, "preset": wrong})


@pytest.mark.parametrize("preset", presets.SERVICE)
def test_a_preset_is_of_settings_that_there_are_and_the_site_is_the_default(preset: str) -> None:
    assert set(presets.SERVICE[preset]) == set(presets.SERVICE["site"]) <= set(Config.model_fields)
    assert {name: Config.model_fields[name].default for name in presets.SERVICE["site"]} == presets.SERVICE["site"]


def test_check_config_says_where_a_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("preset: paper\nembedded: x\nmin_run: 7\nlease: 9\n")
    monkeypatch.setenv("EBB_SCHEDULER_LEASE", "8")
    shown = CliRunner().invoke(main, ["serve", "--config", str(file), "--policy", "lrtp", "--check-config"]).output
    for name, value, whence in (
        ("preset", "paper", "file"),
        ("policy", "lrtp", "flag"),
        ("lease", "8.0", "environment"),
        ("min_run", "7.0", "file"),
        ("backfill", "False", "preset"),
        ("fitgpp_trials_in_flight", "1", "preset"),
    ):
        assert re.search(rf"^{name}: {value} +# {whence}$", shown, re.MULTILINE), name
    assert re.search(r"^heartbeat: 2\.0$", shown, re.MULTILINE)


def test_what_is_misspelt_in_the_environment_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_SCHEDULER_POLCY", "fifo")
    monkeypatch.setenv("EBB_SCHEDULER_SERVICE_HOST", "10.0.0.1")
    shown = CliRunner().invoke(main, ["serve", "--embedded", "x", "--check-config"])
    assert shown.exit_code == 0
    assert shown.stderr == "ebb-scheduler: EBB_SCHEDULER_POLCY in the environment is no setting; EBB_SCHEDULER_POLICY is\n"


@pytest.mark.parametrize("flag", ["address-file", "record"])
def test_files_are_written_in_folders_that_are_there(tmp_path: Path, flag: str) -> None:
    """Looked at by who serves: another command does not write them."""
    name, missing = flag.replace("-", "_"), tmp_path / "none" / "it"
    assert getattr(load(None, {**DATABASE, name: missing}), name) == missing
    said = f"ebb-scheduler: {name}: there is no folder {tmp_path}/none to write it in\n"
    arguments = ["serve", "--database", DATABASE["database"], f"--{flag}", str(missing)]
    for more, status in (([], 2), (["--check-config"], 0)):
        done = CliRunner().invoke(main, [*arguments, *more])
        assert (done.exit_code, done.stderr) == (status, said)


def test_no_password_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_SCHEDULER_DATABASE", "postgresql://localhost/ebb?user=ebb&password=hunter2&sslmode=require")
    shown = CliRunner().invoke(main, ["serve", "--check-config"])
    assert "database: postgresql://localhost/ebb?user=ebb&password=***&sslmode=require" in shown.output
    monkeypatch.setenv("EBB_SCHEDULER_DATABASE", "postgresql://ebb:hunter2@localhost:none/ebb")
    wrong = CliRunner().invoke(main, ["serve", "--check-config"])
    assert wrong.exit_code == 2
    assert "database: postgresql://ebb:***@localhost:none/ebb is not postgresql://USER@HOST:PORT/NAME" in wrong.stderr
    assert "hunter2" not in shown.output + wrong.output


def test_a_wrong_setting_ends_the_command_with_status_2() -> None:
    result = CliRunner().invoke(main, ["serve", "--listen", "10.0.0.1:1", "--database", "postgresql://x/y"])
    assert result.exit_code == 2
    assert "loopback" in result.stderr


def test_pools_are_said_flat_or_in_groups(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        """
database: postgresql://localhost/ebb
virtual_clusters: true
pools:
  - name: a100
    nodes: [[[n1, n2], [n3, n4], [n5, n6]], [[n7, n8], [n9, n10], [n11, n12]]]
    levels: [rack, pod]
  - name: v100
    nodes: [m1, m2, m3, m4]
    levels: [{name: rack, of: 2}]
  - name: spare
    nodes: [x1]
"""
    )
    settings = settings_of(load(file, {}))
    assert settings.pools == (
        PoolPlan("a100", tuple(f"n{i}" for i in range(1, 13)), (("rack", 2), ("pod", 3))),
        PoolPlan("v100", ("m1", "m2", "m3", "m4"), (("rack", 2),)),
        PoolPlan("spare", ("x1",)),
    )
    shown = CliRunner().invoke(main, ["serve", "--config", str(file), "--check-config"])
    assert shown.exit_code == 0
    assert "virtual_clusters: True" in shown.output
    assert "{'name': 'a100', 'nodes': ['n1', 'n2'" in shown.output


def test_without_virtual_clusters_there_are_no_pools() -> None:
    assert settings_of(load(None, DATABASE)).pools is None
    assert settings_of(load(None, VCS)).pools == ()


def test_the_sites_policy_is_that_of_virtual_clusters_that_name_none() -> None:
    config = load(None, {**VCS, "policy": "lrtp", "fitgpp_cap": 2, "backfill": True})
    assert vc_policy_of(config) == VcPolicy("lrtp", 4.0, 2, None)
    assert stages_of(config).victims is None, "they are the virtual clusters' own"


def test_the_recording_knows_the_exchange_arbiter() -> None:
    """A policy is made from exactly the settings that a recording holds."""
    assert parameters(load(None, VCS), stages_of) == {"virtual_clusters": True, "exchange": "balanced"}
    assert "exchange: balanced" in CliRunner().invoke(main, ["serve", "--embedded", "x", "--check-config"]).output


def test_a_variable_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_SCHEDULER_POOLS", "[{")
    with pytest.raises(ConfigError, match="EBB_SCHEDULER_POOLS in the environment is not JSON"):
        load(None, DATABASE)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:se@cret@h/db",
        "postgresql://u:secret@h:5432/db?sslmode=require",
        "postgresql://u@h/db?password=secret&x=1",
    ],
)
def test_no_part_of_a_password_is_shown(url: str) -> None:
    shown = without_password(url)
    assert "***" in shown
    assert "se" not in shown.replace("postgresql", "").replace("sslmode=require", "")


def test_what_serve_refuses_check_config_refuses(tmp_path: Path) -> None:
    """A file that is a folder, or a folder that is a file."""
    file = tmp_path / "file"
    file.touch()
    db = ["--embedded", str(tmp_path / "db")]
    for flags in ([*db, "--record", str(tmp_path)], [*db, "--address-file", str(tmp_path)], ["--embedded", str(file)]):
        for more in ([], ["--check-config"]):
            done = CliRunner().invoke(main, ["serve", *flags, *more])
            assert done.exit_code == 2, done.output
            assert "is a f" in done.output

"""`ebb-sim` as its users meet it: real processes, their output and their status."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import psutil
import pytest
from click.testing import CliRunner

from scheduler_service.sim.cli import METRICS, main
from scheduler_service.sim.experiments.config import Metrics, load
from scheduler_service.sim.experiments.kept_results import load as load_results
from scheduler_service.sim.experiments.tables import SHAPES
from tests import preloaded
from tests.sim.conftest import environment

EXAMPLES = Path(__file__).parents[2] / "examples" / "sim"
LIMIT = 60
SMALL = """
cluster: {nodes: 2, cpus: 32, memory_gib: 256, gpus: 8}
workload: {kind: fitgpp, jobs: 120}
policies: [{name: fifo, label: fifo, preset: paper}, {name: fitgpp, label: ours, preset: paper}]
seeds: 1-2
decide_every: 60
"""


def ebb_sim(*args: str, cwd: Path, columns: int = 100, status: int = 0) -> subprocess.CompletedProcess[str]:
    told = {**environment(), "COLUMNS": str(columns)}
    done = preloaded.run(["scheduler_service.sim", *args], cwd, told, LIMIT)
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a small sweep was run, and what that printed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "site.yaml").write_text(SMALL)
    done = ebb_sim("run", "site.yaml", "-j", "2", "--csv", cwd=folder)
    (folder / "stdout").write_text(done.stdout)
    (folder / "stderr").write_text(done.stderr)
    return folder


def test_a_run_shows_tables_and_leaves_results(site: Path) -> None:
    shown, noted = (site / "stdout").read_text(), (site / "stderr").read_text()
    assert "Slowdown: trials" in shown
    assert re.search(r"^fifo +\d+\.\d\d ± \d+\.\d\d", shown, re.MULTILINE)
    assert re.search(r"^ours +\d+\.\d\d ± \d+\.\d\d", shown, re.MULTILINE)
    assert "means over 2 seeds ± their 95 % interval" in shown
    assert "4 simulations to do, 2 at a time" in noted
    assert not re.search(r"traceback|warning", noted, re.IGNORECASE)
    results = site / "results" / "site"
    cases = [path for path in results.iterdir() if (path / "case.json").exists()]
    assert len(cases) == 4
    assert all((case / name).exists() for case in cases for name in ("jobs.parquet", "runs.parquet", "jobs.csv", "runs.csv"))
    figures = {path.name for path in (results / "figures").iterdir()}
    assert figures == {
        f"{name}.{kind}" for name in ("slowdown", "queue", "utilisation", "preemptions", "cost") for kind in ("png", "svg")
    }
    summary = json.loads((results / "summary.json").read_text())
    assert [policy["label"] for policy in summary["policies"]] == ["fifo", "ours"]
    assert summary["policies"][0]["metrics"]["trial.slowdown.p95"]["mean"] > 1


def test_the_same_again_simulates_nothing(site: Path) -> None:
    done = ebb_sim("run", "site.yaml", "--no-figures", cwd=site)
    assert "4 of 4 simulations are there already" in done.stderr
    assert "to do" not in done.stderr
    assert done.stdout == (site / "stdout").read_text()


def test_json_is_all_that_is_printed(site: Path) -> None:
    told = json.loads(ebb_sim("run", "site.yaml", "--no-figures", "--json", cwd=site).stdout)
    assert told == json.loads((site / "results" / "site" / "summary.json").read_text())
    compared = json.loads(ebb_sim("compare", "results/site", "--against", "fifo", "--json", cwd=site).stdout)
    change = compared["policies"][1]["metrics"]["trial.slowdown.mean"]
    means = [policy["metrics"]["trial.slowdown.mean"]["mean"] for policy in told["policies"]]
    assert compared["against"] == "fifo"
    assert change["mean"] == pytest.approx(means[1] / means[0] - 1)
    assert change["interval"] > 0


def test_comparisons_are_in_per_cent_of_another(site: Path) -> None:
    shown = ebb_sim("compare", "results/site", "--against", "fifo", "--metrics", "slowdown,cost", cwd=site).stdout
    assert "Slowdown: trials: against fifo" in shown
    assert re.search(r"^ours +-\d+\.\d ± \d+\.\d %", shown, re.MULTILINE)
    assert not re.search(r"^fifo ", shown, re.MULTILINE)
    assert "Jobs in the queue" not in shown


def test_results_of_several_runs_side_by_side(site: Path) -> None:
    (site / "larger.yaml").write_text(SMALL.replace("nodes: 2", "nodes: 3"))
    ebb_sim("run", "larger.yaml", "--keep", "summary", "--no-figures", cwd=site)
    done = ebb_sim("compare", "results/site", "results/larger", "--figures", "both", cwd=site)
    assert {"site: fifo", "site: ours", "larger: fifo", "larger: ours"} <= set(
        re.findall(r"^\w+: \w+", done.stdout, re.MULTILINE)
    )
    assert "these are of different jobs or clusters" in done.stdout
    assert (site / "both" / "slowdown.svg").stat().st_size > 1000


def test_jobs_of_files_that_are_called_the_same_are_of_different_jobs(tmp_path: Path) -> None:
    told = SMALL.replace("{kind: fitgpp, jobs: 120}", "{kind: csv, file: jobs.csv}")
    rows = "submit_s,work_s,gpus\n0,100,8\n50,100,{}\n"
    for name, gpus in (("one", 8), ("other", 4), ("alike", 8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "site.yaml").write_text(told)
        (tmp_path / name / "jobs.csv").write_text(rows.format(gpus))
        ebb_sim("run", f"{name}/site.yaml", "-o", f"results/{name}", "--keep", "summary", "--no-figures", cwd=tmp_path)
    different = "these are of different jobs or clusters"
    assert different in ebb_sim("compare", "results/one", "results/other", cwd=tmp_path).stdout
    assert different not in ebb_sim("compare", "results/one", "results/alike", cwd=tmp_path).stdout


def test_what_is_missing_of_a_sweep_is_told(site: Path) -> None:
    ebb_sim("run", "site.yaml", "-o", "partly", "--keep", "summary", "--no-figures", cwd=site)
    first = load_results(site / "partly").complete[0].folder
    shutil.rmtree(first)
    done = ebb_sim("compare", "partly", cwd=site)
    assert done.stderr.splitlines() == ["partly: 1 of 4 simulations are missing; the same run makes them"]
    ebb_sim("run", "site.yaml", "-o", "partly", "--keep", "summary", "--no-figures", cwd=site)
    assert ebb_sim("compare", "partly", cwd=site).stderr == ""


def test_who_has_seen_enough_has_the_figures_all_the_same(site: Path) -> None:
    """As `| head` does: what is shown cannot be written any more. The results are there already."""
    shutil.copytree(site / "results" / "site", site / "cut")
    for command, drawn in (
        (["run", "site.yaml", "-o", "cut"], site / "cut" / "figures"),
        (["compare", "results/site", "--figures", "of-both"], site / "of-both"),
    ):
        reads, writes = os.pipe()
        os.close(reads)
        with os.fdopen(writes, "w") as closed:
            done = subprocess.run(
                [sys.executable, "-m", "scheduler_service.sim", *command],
                cwd=site, env=environment(), stdout=closed, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
            )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert (drawn / "cost.svg").exists(), done.stderr


def numbers(shown: str) -> list[str]:
    return sorted(re.findall(r"[-\d][\d.,]*(?: ± [\d.]+)?", re.sub(r"p\d+|\d times|95 % interval|\d seeds|1 where", "", shown)))


@pytest.mark.parametrize("columns", [20, 44, 300])
def test_a_narrow_terminal_cuts_no_number_off(site: Path, columns: int) -> None:
    shown = ebb_sim("compare", "results/site", cwd=site, columns=columns).stdout
    assert "…" not in shown
    assert numbers(shown) == numbers(ebb_sim("compare", "results/site", cwd=site).stdout)


def test_a_wrong_configuration_is_told_in_words(site: Path) -> None:
    (site / "wrong.yaml").write_text(SMALL.replace("seeds", "seed").replace("fitgpp, jobs: 120", "fitgpp, jobs: none"))
    for flags in ([], ["--check"]):
        done = ebb_sim("run", "wrong.yaml", *flags, cwd=site, status=2)
        assert done.stderr.splitlines() == [
            "ebb-sim: workload.jobs: Input should be a valid integer, unable to parse string as an integer",
            "ebb-sim: seed: there is no such setting; did you mean seeds?",
        ]
        assert done.stdout == ""
    assert not (site / "results" / "wrong").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2", "is not YAML"),
        ("just words", "must have lines such as `workload: ...`"),
        (SMALL.replace("{kind: fitgpp, jobs: 120}", "{kind: csv, file: none.csv}"), "none.csv cannot be read: No such file"),
        (
            SMALL.replace("{kind: fitgpp, jobs: 120}", "{kind: csv, file: site.yaml}"),
            "site.yaml, line 1, column submit_s: is not",
        ),
        (SMALL.replace("256", "0.5"), "the workload has no job for this cluster\nebb-sim: 120 skipped: would not fit"),
        (SMALL + "failures: {file: site.yaml}", "site.yaml: line 1: it must name the columns node, at_s and back_s"),
        (SMALL.replace("1-2", "-1"), "seeds.0: Input should be greater than or equal to 0"),
        (SMALL.replace("jobs: 120", "jobs: 120, times_from: fife"), "workload.times_from: there is no policy 'fife'"),
        (
            SMALL.replace("jobs: 120", "jobs: 120, times_from: cells"),
            "workload.times_from: the policy cells is for virtual clusters",
        ),
        (SMALL + "pools: [{name: a, tree: {8: 2}}]", "'8' is no name here; one that looks like a number"),
    ],
)
def test_a_file_that_is_no_configuration_is_told(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "site.yaml").write_text(content)
    for flags in ([], ["--check"]):
        assert told in ebb_sim("run", "site.yaml", *flags, cwd=tmp_path, status=2).stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["run", "absent.yaml"], "absent.yaml cannot be read: No such file or directory"),
        (["run", "site.yaml", "--on", "nowhere"], "'nowhere' is no place to run: take local, local[N], or a Dask scheduler's"),
        (["run", "site.yaml", "--on", "local[2]", "-j", "2"], "-j is for this machine"),
        (["compare", "."], ". holds no results of `ebb-sim run`: there is no sweep.json in it"),
        (["compare", "results/site", "--against", "best"], "there is no 'best' to compare with; there are 'fifo', 'ours'"),
        (["compare", "results/site", "--metrics", "speed"], "there is no 'speed'; there are slowdown, wait"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_a_wrong_call_is_told(site: Path, args: list[str], told: str) -> None:
    done = ebb_sim(*args, cwd=site, status=2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_simulation_that_fails_is_told_and_the_others_are_shown(site: Path) -> None:
    slow = "delays: {start: {kind: choice, values: [0, 1e12], weights: [1, 99]}}"  # too much together, as may be seen later
    drawn = SMALL.replace("{kind: fitgpp, jobs: 120}", "{kind: generated, jobs: 30, kinds: [{work_s: 1, gpus: 8}]}")
    (site / "broken.yaml").write_text(drawn.replace("1-2", "1") + slow)
    done = ebb_sim("run", "broken.yaml", "-j", "1", cwd=site, status=1)
    assert "FAILED fifo, seed 1: it lasts for more than 9.22e+12 s, and times cannot be counted further" in done.stderr
    assert "2 of 2 simulations failed" in done.stderr


def test_what_cannot_be_written_is_told(site: Path) -> None:
    """A folder, and then what is shown."""
    (site / "taken").write_text("")
    done = ebb_sim("run", "site.yaml", "-o", "taken/here", cwd=site, status=1)
    assert done.stderr.splitlines()[-1].startswith("ebb-sim: no results can be written to taken/here: Not a directory.")
    done = ebb_sim("compare", "results/site", "--figures", "taken/here", cwd=site, status=1)
    assert done.stderr == "ebb-sim: taken/here: Not a directory\n"


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    """As a terminal sends it: to the whole group of processes, workers included."""
    (tmp_path / "many.yaml").write_text(SMALL.replace("1-2", "1-200"))
    process = subprocess.Popen(
        [sys.executable, "-m", "scheduler_service.sim", "run", "many.yaml", "-j", "2", "--keep", "summary"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + LIMIT
    while len(list((tmp_path / "results" / "many").glob("[!.]*/"))) < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    shown, noted = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    complete = len(list((tmp_path / "results" / "many").glob("[!.]*/summary.json")))
    assert f"ebb-sim: stopped; {complete} of 400 simulations are complete in results/many." in noted
    assert "Run the same command to continue." in noted
    assert "Traceback" not in noted, noted
    assert shown == ""
    while left := working(process.pid):
        assert time.monotonic() < until, left
        time.sleep(0.01)


def working(group: int) -> list[psutil.Process]:
    """The processes of a group, but for those that are dead and were not yet buried."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_the_example_of_init_is_right_and_so_are_all_others(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["init"]).stdout
    (tmp_path / "site.yaml").write_text(printed)
    parsed = load(tmp_path / "site.yaml")
    assert len(parsed.policies) == 3
    (tmp_path / "full.yaml").write_text(re.sub(r"^( *)# ( *(?:- )?[\w{]+.*[:}].*)$", uncommented, printed, flags=re.MULTILINE))
    full = load(tmp_path / "full.yaml")
    assert full.failures is not None
    assert full.delays.checkpoint_every == 1800
    assert [policy.repeats for policy in full.policies] == [1, 1, 1, 4]
    found = list(EXAMPLES.glob("*.yaml"))
    assert len(found) > 1
    for example in found:
        load(example)


def uncommented(line: re.Match[str]) -> str:
    """Only settings: what is prose begins with a capital, or names this file."""
    said = line[2].lstrip()
    return line[0] if said[0].isupper() or "workload:" in said or "%" in said else line[1] + line[2]


def test_check_says_what_would_be_done(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SMALL)
    told = ebb_sim("run", "site.yaml", "--check", cwd=tmp_path).stdout
    assert told.startswith(
        "site.yaml is right: 2 policies x 2 seeds, 4 simulations of a fitgpp workload\non 2 nodes with 16 GPUs"
    )
    assert told.endswith("\n120 jobs in the first\n")
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ("[{name: a, owns: {gpu-8: {node: 3}}}]", "pool gpu-8 has 1 cells of the level node too few"),
        ("[{name: a, owns: {rest: {node: 1}}}]", "there is no pool 'rest'; there are: gpu-8"),
        ("[{name: a}, {name: a}]", "there is a virtual cluster a already"),
    ],
)
def test_virtual_clusters_that_cannot_be_are_told_before_anything_is_simulated(tmp_path: Path, tenants: str, said: str) -> None:
    small = re.sub("policies:.*", "policies: [cells]", SMALL)
    (tmp_path / "site.yaml").write_text(f"{small}\nvirtual_clusters: {tenants}\n")
    for options in (["--check"], []):
        done = ebb_sim("run", "site.yaml", *options, cwd=tmp_path, status=2)
        assert done.stderr.startswith("ebb-sim: virtual_clusters: ")
        assert said in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


@pytest.mark.parametrize(
    ("vc", "said"),
    [("research", "names the virtual cluster 'research'; there are a, b"), ("", "names no virtual cluster; there are a, b")],
)
def test_jobs_of_virtual_clusters_that_are_not_there_are_told_before_anything_is_simulated(
    tmp_path: Path, vc: str, said: str
) -> None:
    (tmp_path / "jobs.csv").write_text(f"submit_s,work_s,user,vc,gpus\n5,60,ann,a,1\n7,60,ann,b,1\n14.5,60,bob,{vc},1\n")
    (tmp_path / "site.yaml").write_text(
        "cluster: {nodes: 1, gpus: 8}\nworkload: {kind: csv, file: jobs.csv}\npolicies: [cells]\n"
        "virtual_clusters: [{name: a, owns: {gpu-8: {node: 1}}}, {name: b}]\n"
    )
    for flags in ([], ["--check"]):
        done = CliRunner().invoke(main, ["run", str(tmp_path / "site.yaml"), *flags])
        assert (done.exit_code, done.stderr) == (
            2,
            f"ebb-sim: virtual_clusters: job 3 of the workload, of bob at 9.5 s, {said}\n",
        )


IN_CELLS = (
    "cluster: {nodes: 1, gpus: 8}\npolicies: [cells]\nvirtual_clusters: [{name: a, owns: {gpu-8: {node: 1}}}, {name: b}]\n"
)


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ("[{name: ann, vc: a, weight: 1000000}, {name: bob, vc: c}]", "bob names the virtual cluster 'c'; there are a, b"),
        ("[{name: ann, vc: a, weight: 1000000}, {name: bob}]", "bob names no virtual cluster; there are a, b"),
    ],
)
def test_a_user_whom_only_another_seed_draws_is_told_before_anything_is_simulated(
    tmp_path: Path, users: str, said: str
) -> None:
    kinds = f"[{{work_s: 60, gpus: 1, users: [{{name: eve, vc: b}}]}}, {{work_s: 60, users: {users}}}]"
    (tmp_path / "site.yaml").write_text(f"{IN_CELLS}workload: {{kind: generated, jobs: 3, kinds: {kinds}}}\n")
    done = CliRunner().invoke(main, ["run", str(tmp_path / "site.yaml")])
    assert (done.exit_code, done.stderr) == (2, f"ebb-sim: virtual_clusters: workload.kinds.1.users: {said}\n")


def test_a_user_who_submits_nothing_may_be_of_any_virtual_cluster(tmp_path: Path) -> None:
    kinds = "[{work_s: 60, gpus: 1, users: [{name: eve, vc: b}, {name: bob, vc: c, weight: 0}]}]"
    (tmp_path / "site.yaml").write_text(f"{IN_CELLS}workload: {{kind: generated, jobs: 3, kinds: {kinds}}}\n")
    assert CliRunner().invoke(main, ["run", str(tmp_path / "site.yaml"), "--check"]).exit_code == 0


def test_jobs_of_a_trace_that_only_another_seed_draws_are_told_too(tmp_path: Path) -> None:
    lines = [*(f"{n},60,ann,a,1" for n in range(500)), "500,60,bob,c,1"]
    (tmp_path / "jobs.csv").write_text("\n".join(["submit_s,work_s,user,vc,gpus", *lines]))
    (tmp_path / "site.yaml").write_text(
        f"{IN_CELLS}workload: {{kind: csv, file: jobs.csv, jobs: 2, resample: true, arrivals: {{kind: closed_loop}}}}\n"
    )
    done = CliRunner().invoke(main, ["run", str(tmp_path / "site.yaml")])
    told = "job 501 of the workload, of bob at 500 s, names the virtual cluster 'c'; there are a, b"
    assert (done.exit_code, done.stderr) == (2, f"ebb-sim: virtual_clusters: {told}\n")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("policies: [cells]", "the policy cells is for virtual clusters: give virtual_clusters, too"),
        ("policies: [quota]", "the policy quota is for virtual clusters"),
        ("policies: [fifo]\nvirtual_clusters: [{name: a}]", "the policy fifo knows no virtual clusters"),
        ("policies: [fifo]\nseeds: 1-99999999", "more than 10,000 seeds"),
    ],
)
def test_what_could_never_end_well_is_told_at_once(tmp_path: Path, told: str, said: str) -> None:
    (tmp_path / "site.yaml").write_text(f"cluster: {{nodes: 2, gpus: 8}}\nworkload: {{kind: fitgpp, jobs: 9}}\n{told}\n")
    done = CliRunner().invoke(main, ["run", str(tmp_path / "site.yaml"), "--check"])
    assert done.exit_code == 2
    assert said in done.stderr


LONG = (
    "a simulation ends at 4.61e+12 s at most: look for times that are too long (also delays and decide_every), and for "
    "arrivals that are too slow"
)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "workload: {kind: csv, file: jobs.csv}",
            "{folder}/jobs.csv, line 6, column work_s: with it the jobs so far work for 5e+12 s, and a simulation ends at "
            "4.61e+12 s at most",
        ),
        (
            "workload: {kind: csv, file: late.csv, arrivals: {kind: recorded, speed: 0.1}}",
            f"workload: with job 2 (of user, at 1e+13 s, for 1 s) the jobs may last until 1e+13 s, and {LONG}",
        ),
        (
            "workload: {kind: generated, jobs: 9, kinds: [{work_s: 1.0e+12}]}",
            f"workload: with job 5 (of user, for 1e+12 s) the jobs may last until 5e+12 s, and {LONG}",
        ),
        (
            "workload: {kind: generated, jobs: 9, kinds: [{work_s: 1}], arrivals: {kind: batches, gap_s: 1.0e+12, size: 1}}",
            f"workload: with job 6 (of user, at 5e+12 s, for 1 s) the jobs may last until 5e+12 s, and {LONG}",
        ),
        (
            "workload: {kind: generated, jobs: 9, kinds: [{work_s: 1}]}\ndelays: {start: 1.0e+12, end: 1.0e+12}",
            f"workload: with job 3 (of user, for 1 s) the jobs may last until 6e+12 s, and {LONG}",
        ),
    ],
)
def test_times_that_are_too_long_together_are_told_before_anything_is_simulated(tmp_path: Path, told: str, said: str) -> None:
    jobs = "".join(f"{n},1000000000000,bob,1\n" for n in range(9))
    (tmp_path / "jobs.csv").write_text(f"submit_s,work_s,user,gpus\n{jobs}")
    (tmp_path / "late.csv").write_text("submit_s,work_s\n0,1\n1000000000000,1\n")
    (tmp_path / "site.yaml").write_text(f"cluster: {{nodes: 1, gpus: 8}}\npolicies: [fifo]\n{told}\n")
    for flags in (["-o", str(tmp_path / "out")], ["--check"]):
        done = CliRunner().invoke(main, ["run", str(tmp_path / "site.yaml"), *flags])
        assert (done.exit_code, done.stderr) == (2, f"ebb-sim: {said.replace('{folder}', str(tmp_path))}\n")


def test_results_that_were_cut_off_are_made_again(tmp_path: Path) -> None:
    """Each file of a result, in another seed."""
    cut_off = {
        "summary.json": b"{}",
        "curves.json": b"{",
        "jobs.parquet": b"PA",
        "runs.parquet": b"",
        "times.parquet": b"PAR1 P",
    }
    (tmp_path / "site.yaml").write_text(SMALL.replace("jobs: 120", "jobs: 20").replace("1-2", "1-10"))
    command = ["run", str(tmp_path / "site.yaml"), "-o", str(tmp_path / "out"), "-j", "1", "--no-figures"]
    assert CliRunner().invoke(main, command).exit_code == 0
    results = [result.folder for result in load_results(tmp_path / "out").complete][:10]  # of fifo, whose times are recorded

    def hold() -> list[dict[str, bytes]]:
        """Without what they took, which differs."""
        return [{file.name: file.read_bytes() for file in each.iterdir() if file.name != "summary.json"} for each in results]

    whole = hold()
    for (name, content), gone, cut in zip(cut_off.items(), results[:5], results[5:], strict=True):
        (gone / name).unlink()
        (cut / name).write_bytes(content)
    compared = CliRunner().invoke(main, ["compare", str(tmp_path / "out")])
    told = (
        f"ebb-sim: {tmp_path}/out holds no results of `ebb-sim run`: {results[1]}/curves.json cannot be read: No such file or"
    )
    assert (compared.exit_code, compared.stderr[: len(told)]) == (2, told)
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 0, again.stderr
    assert "10 simulations to do" in again.stderr
    assert hold() == whole


def test_ctrl_c_before_anything_began_is_told_too() -> None:
    @main.command("wait-for-it")
    def wait_for_it() -> None:
        raise KeyboardInterrupt

    try:
        done = CliRunner().invoke(main, ["wait-for-it"])
    finally:
        del main.commands["wait-for-it"]
    assert (done.exit_code, done.stderr) == (130, "ebb-sim: stopped\n")


@pytest.mark.parametrize("command", [[], ["run"], ["compare"], ["init"]])
def test_help_has_examples_and_loads_little(command: list[str], tmp_path: Path) -> None:
    code = f"""
import sys
from scheduler_service.sim.cli import main
main({[*command, "--help"]!r}, standalone_mode=False)
heavy = sorted({{"matplotlib", "pyarrow", "distributed", "numpy", "pydantic", "rich"}} & set(sys.modules))
sys.exit(f"imported {{heavy}}" if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ebb-sim" in done.stdout or "Usage" in done.stdout
    if command in (["run"], ["compare"], ["init"]):
        assert "Example" in done.stdout


def test_names_that_stand_in_two_places_agree() -> None:
    """The command line knows them without importing what they name."""
    assert set(METRICS) == set(get_args(Metrics)) == {*SHAPES, "vcs"}


def test_a_folder_with_results_of_another_run_is_refused(site: Path) -> None:
    """What it listed and showed would be overwritten. Other policies and seeds of the same site go on there."""
    folder = site / "mine"
    (site / "more.yaml").write_text(SMALL.replace("name: fitgpp, label: ours", "name: lrtp"))
    (site / "larger.yaml").write_text(SMALL.replace("nodes: 2", "nodes: 3"))
    shutil.copytree(site / "results" / "site", folder)
    before = {name: (folder / name).read_bytes() for name in ("sweep.json", "summary.json")}
    said = ebb_sim("run", "larger.yaml", "-o", "mine", "--no-figures", cwd=site, status=2)
    assert said.stdout == ""
    assert "ebb-sim: mine has the results of another run: cluster differs." in said.stderr
    assert "another folder with -o, or replace these results with --fresh" in " ".join(said.stderr.split())
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert "2 of 4" in ebb_sim("run", "more.yaml", "-o", "mine", "--no-figures", cwd=site).stderr
    ebb_sim("run", "larger.yaml", "-o", "mine", "--no-figures", "--fresh", "--keep", "summary", cwd=site)
    assert len(load_results(folder).complete) == 4
    (folder / "sweep.json").write_text("garbage")
    assert "cannot be read" in ebb_sim("run", "larger.yaml", "-o", "mine", cwd=site, status=2).stderr


def test_a_trace_that_is_another_now_is_another_run(tmp_path: Path) -> None:
    header, configuration = "submit_s,work_s,gpus\n", "workload: {kind: csv, file: jobs.csv}"
    (tmp_path / "site.yaml").write_text(SMALL.replace("workload: {kind: fitgpp, jobs: 120}", configuration))
    (tmp_path / "jobs.csv").write_text(header + "0,60,1\n")
    ebb_sim("run", "site.yaml", "--no-figures", cwd=tmp_path)
    (tmp_path / "jobs.csv").write_text(header + "0,90,1\n")
    said = ebb_sim("run", "site.yaml", "--no-figures", cwd=tmp_path, status=2)
    assert "what a file holds differs" in said.stderr

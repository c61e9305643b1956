"""`ebb-sim reproduce hived`, on the beginning of the two months."""

from pathlib import Path

from click.testing import CliRunner

from scheduler_service.sim.cli import main
from scheduler_service.sim.reproduce.hived_cases import Study, cases
from scheduler_service.sim.reproduce.hived_plan import Setting
from scheduler_service.sim.workloads import hived

DOCUMENT = """# Sharing
<!-- begin: hived-sharing -->
<!-- end: hived-sharing -->
<!-- begin: hived-claims -->
<!-- end: hived-claims -->
<!-- begin: hived-figure-7b -->
<!-- end: hived-figure-7b -->
"""


def test_tables_and_figures_come_out_of_one_command(tmp_path: Path) -> None:
    document = tmp_path / "sharing.md"
    document.write_text(DOCUMENT)
    asked = ["reproduce", "hived", "--part", "figure-7b", "--share", "0.002", "--on", "local[1]"]
    told = CliRunner().invoke(main, [*asked, "-o", str(tmp_path / "results"), "--document", str(document)])
    assert told.exit_code == 0, told.output
    text = document.read_text()
    for title in ("private clusters", "shared by quota", "HiveD"):
        assert f"| 200 nodes, {title} |" in text
    assert "regular jobs delayed above their private cluster under HiveD" in text
    assert (tmp_path / "sharing" / "hived-figure-7b.svg").exists()


def test_whoever_owns_what_is_the_same_number_of_gpus_however_it_is_cut() -> None:
    quotas = hived.quotas(hived.NODES)
    for setting in (Setting(), Setting(assignment="levels"), Setting(scheme="static"), Setting(scheme="quota")):
        (case,) = cases(setting, Study(share=0.01))
        sizes = {"node": 8, "socket": 4, "switch": 2, "device": 1}
        owned = {
            tenant.name: sum(sizes[level] * count for _, levels in tenant.owns for level, count in levels)
            for tenant in case.virtual_clusters
        }
        assert owned == {name: 8 * nodes for name, nodes in quotas.items()}


def test_private_clusters_are_as_large_as_the_quotas() -> None:
    quotas = hived.quotas(200)
    private = cases(Setting(200, "private"), Study(share=0.01))
    assert {case.virtual_clusters[0].name: case.cluster[0].nodes for case in private} == quotas

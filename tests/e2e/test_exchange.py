"""Two tenants on two machines exchange cells, and the scheduler is killed in between: real processes and commands."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from client_sdk import ExchangeState, JobEventKind, JobReason, JobState
from client_sdk.cli import ebb as main
from tests.harness import LIMIT, Site, run
from tests.store.waiting import wait_for

CONFIGURATION = """
virtual_clusters: true
exchange: balanced
reclaim_grace: 5
pools:
  - name: a100
    nodes: [n1, n2]
"""
NODE = "a100/node=1"


@pytest.mark.long
def test_cells_change_hands_for_a_window_over_the_death_of_the_scheduler(folder: Path) -> None:
    file, recording = folder / "scheduler.yaml", folder / "recording.jsonl"
    file.write_text(f"{CONFIGURATION}record: {recording}\n")
    with Site(folder / "site", ["--config", str(file)]) as site:
        market = site.client.exchange

        def ebb(*words: str) -> str:
            done = CliRunner().invoke(main, words, env={"EBB_ADDRESS": site.cluster.address})
            assert done.exit_code == 0, done.output
            return done.output

        def whole_node(vc: str) -> int:
            return int(ebb("submit", "-q", "--cwd", "/", "--vc", vc, "--devices", "8", "--", "sleep", "1000"))

        def runs(job: int) -> bool:
            return site.client.get(job).state is JobState.RUNNING

        def kept() -> list[Any]:
            """What a restart must bring back."""
            exchange = ("list", "--all"), ("board", "--all"), ("ledger",), ("ledger", "--entries")
            asked = [("vc", "list"), ("cells",), *(("exchange", *words) for words in exchange)]
            return [json.loads(ebb(*words, "-o", "json")) for words in asked]

        def owns(vc: str) -> tuple[int, int, int]:
            (use,) = site.client.virtual_cluster(vc).cells
            return use.owned, use.taken, use.given

        # Each has a machine; speech has work for two.
        for vc in ("vision", "speech"):
            ebb("vc", "create", vc, "--quota", NODE)
        first, second = whole_node("speech"), whole_node("speech")
        wait_for(lambda: runs(first), LIMIT)
        assert site.client.get(second).reason is JobReason.BEYOND_QUOTA

        # An offer and a request meet. The window is to open in a moment.
        offer = market.offer("vision", "a100", "node", duration="45s", request_id="the-offer")
        assert offer.lot.end is not None
        ends = offer.lot.end.isoformat()
        request = int(ebb("exchange", "request", "speech", NODE, "--from", "+2s", "--to", ends, "--request-id", "ask", "-q"))
        (agreed,) = market.exchanges()
        assert (agreed.offer_posting_id, agreed.request_posting_id, agreed.state) == (offer.id, request, ExchangeState.MATCHED)
        assert site.client.get(second).state is JobState.QUEUED, "it has not begun"
        wait_for(lambda: runs(second), LIMIT)
        assert site.client.get(second).guaranteed
        assert (owns("vision"), owns("speech")) == ((0, 0, 1), (2, 1, 0))
        waits = whole_node("vision")
        assert site.client.get(waits).reason is JobReason.BEYOND_QUOTA, "its cell is lent, and comes back"

        # In the middle of it the scheduler dies.
        before, nodes = kept(), site.client.nodes()
        site.cluster.kill("scheduler", signal.SIGKILL)
        site.restart_scheduler()
        site.wait_connected(since=nodes)
        for was, there in zip(before, kept(), strict=True):
            assert json.dumps(there, indent=1).splitlines() == json.dumps(was, indent=1).splitlines()
        assert all(site.client.get(job).guaranteed and runs(job) for job in (first, second))
        assert market.offer("vision", "a100", "node", end=offer.lot.end, request_id="the-offer").id == offer.id

        # The window ends: the cells are vision's, and what speech has running there is a guest, which leaves for their owner.
        wait_for(lambda: next(market.exchanges(states=[ExchangeState.RETURNED]), None), 2 * LIMIT)
        assert (owns("vision"), owns("speech")) == ((1, 0, 0), (1, 0, 0))
        wait_for(lambda: runs(waits), LIMIT)
        assert site.client.get(waits).guaranteed
        (stays,) = (job for job in (first, second) if site.client.get(job).guaranteed)
        (guest,) = {first, second} - {stays}
        kinds = [line.kind for line in site.client.story(guest)]
        lost = kinds.index(JobEventKind.OPPORTUNISTIC)
        assert kinds.index(JobEventKind.RECLAIMED) > lost, "it lost its guarantee, and then its place"
        assert "exchange 1 is over" in site.client.story(guest)[lost].text

        # What was given and taken adds up, in the books and in the database.
        surpluses = {row.virtual_cluster: row.device_us for row in market.surpluses()}
        assert surpluses == {"vision": agreed.price_device_us, "speech": -agreed.price_device_us}
        assert agreed.price_device_us == agreed.lot.device_us > 0
        assert sum(entry.device_us for entry in market.ledger()) == 0
        (row,) = site.database.ask("SELECT sum(device_us) AS total, count(*) AS entries FROM exchange_ledger")
        assert (row["total"], row["entries"]) == (0, 2)
    replayed = run([sys.executable, "-m", "scheduler_service", "record", "replay", str(recording)])
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.startswith("the same: ")
    text = recording.read_text()
    assert text.count('["Section",') == 2
    assert '["PostRequested",' in text
    assert '["Exchange",' in text, "the second leadership began with a window that was open"

"""Cell exchange for programs and people: both clients and `ebb exchange`, against a scheduler with two virtual clusters."""

import inspect
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

import client_sdk as sdk
from client_sdk import AsyncClient, CellLot, Client, ExchangeState, PostingKind, PostingState, testing
from client_sdk._exchange import AsyncExchange, Exchange
from client_sdk.cli import ebb
from client_sdk.cli.cells import draw_pool
from client_sdk.cli.output.exchange_board import times
from client_sdk.units import parse_time
from tests.rpc.server import Server
from tests.rpc.test_virtual_clusters import POOL, node
from tests.store.fixtures import *  # noqa: F403

Run = Callable[..., Result]
NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
NODE = f"{POOL}/node=1"
HOUR = timedelta(hours=1)
PRICE = 2.5 / 8
"""Of an hour of eight, where nobody else bids: what is asked."""


@pytest.fixture
def site(database_url: str) -> Iterator[Server]:
    """A node of four devices each for vision and speech."""
    with (
        Server(database_url, virtual_clusters=True, exchange="auction") as made,
        node(made, "n1") as one,
        node(made, "n2") as two,
    ):
        one.connect()
        two.connect()
        with Client(made.address) as client:
            for name in ("vision", "speech"):
                client.create_virtual_cluster(name, quotas=[sdk.CellQuota(POOL, "node", 1)])
        yield made


@pytest.fixture
def client(site: Server) -> Iterator[Client]:
    with Client(site.address, timeout=10) as made:
        yield made


@pytest.fixture
def run(site: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("EBB_ADDRESS", site.address)

    def call(*words: str, status: int = 0) -> Any:
        done = CliRunner().invoke(ebb, ["exchange", *words], prog_name="ebb")
        assert done.exit_code == status, done.output
        return done.output

    return call


# ---- programs ----------------------------------------------------------------------------------------------------------


def test_an_offer_and_a_request_meet(client: Client) -> None:
    market, begin = client.exchange, datetime.now(UTC) + HOUR
    offer = market.offer("vision", POOL, "node", begin=begin, duration="8h", ask=2.5)
    assert (offer.kind, offer.state, offer.left, offer.bid_device_us) == (PostingKind.OFFER, PostingState.OPEN, 1, 9 * 10**9)
    assert (offer.lot.begin, offer.lot.end, offer.lot.gpu_hours) == (begin, begin + 8 * HOUR, 32)
    want = market.request("speech", POOL, "node", begin=begin, end=begin + HOUR)
    assert (want.kind, want.state) == (PostingKind.REQUEST, PostingState.MATCHED)
    (made,) = market.exchanges()
    assert (made.offer_posting_id, made.request_posting_id, made.giver, made.taker) == (offer.id, want.id, "vision", "speech")
    assert made.state is ExchangeState.MATCHED
    assert {row.virtual_cluster: row.gpu_hours for row in market.surpluses()} == {"vision": PRICE, "speech": -PRICE}
    assert [(entry.virtual_cluster, entry.gpu_hours, entry.exchange_id) for entry in market.ledger()] == [
        ("vision", PRICE, made.id),
        ("speech", -PRICE, made.id),
    ]
    assert [posting.id for posting in market.postings(states=[PostingState.MATCHED])] == [want.id]
    assert [posting.left for posting in market.postings(virtual_cluster="vision")] == [0]
    assert market.give_back(made, "vision").return_asked_by == "vision"
    assert market.give_back(made).state is ExchangeState.RETURNED
    assert [row.device_us for row in market.surpluses()] == [0, 0]
    assert market.withdraw(offer, "vision").state is PostingState.WITHDRAWN
    assert list(market.postings()) == []


def test_a_call_whose_answer_is_lost_is_sent_again_and_done_once(site: Server, client: Client) -> None:
    """By the request_id that was made up, or given."""
    offers = [client.exchange.offer("vision", POOL, "node", duration=60, request_id="mine") for _ in range(1)]
    end = offers[0].lot.end
    assert client.exchange.offer("vision", POOL, "node", end=end, request_id="mine").id == offers[0].id
    other = client.exchange.offer("speech", POOL, "node", end=end)
    assert other.id != offers[0].id
    taken = client.exchange.accept(offers[0], "speech", request_id="take")
    assert client.exchange.accept(offers[0], "speech", request_id="take") == taken


def test_what_cannot_be_agreed_on_has_a_reason(client: Client) -> None:
    market = client.exchange
    with pytest.raises(sdk.FailedPrecondition) as refused:
        market.offer("vision", POOL, "node", 2, duration="1h")
    assert (refused.value.reason, refused.value.metadata["owned"]) == ("NOT_OWNED", "1")
    with pytest.raises(sdk.NotFound, match="posting 7 is not on the board"):
        market.accept(7, "vision")
    with pytest.raises(sdk.InvalidArgument, match="say when the window ends"):
        market.offer("vision", POOL, "node")
    with pytest.raises(sdk.InvalidArgument, match="say when the window ends"):
        market.offer("vision", POOL, "node", end=NOW, duration=5)
    with pytest.raises(sdk.InvalidArgument, match="has no time zone"):
        market.offer("vision", POOL, "node", end=datetime(2099, 1, 1))  # which is the mistake


MOMENT = datetime(2099, 1, 1, 8, tzinfo=UTC)
NO_TIME = r"is not a time; give a datetime with a time zone, or text like 2025-01-31T08:00 \(UTC\), \+2h \(from now\) or now"


def test_times_may_be_said_as_on_the_command_line(client: Client) -> None:
    market, before = client.exchange, datetime.now(UTC)
    offer = market.offer("vision", POOL, "node", begin="2099-01-01T08:00", duration="8h", expires="2099-01-01T09:00")
    assert (offer.lot.begin, offer.lot.end, offer.expire_time) == (MOMENT, MOMENT + 8 * HOUR, MOMENT + HOUR)
    (made,) = market.accept(offer, "speech", begin="2099-01-01T10:00+01:00", end=MOMENT + 2 * HOUR)
    assert (made.lot.begin, made.lot.end) == (MOMENT + HOUR, MOMENT + 2 * HOUR)
    same = market.request("vision", POOL, "node", begin="+2h", end="+3h").lot
    assert same.begin is not None
    assert (same.begin.second, same.begin.microsecond) == (0, 0), "with the minute, as an offer that says the same"
    assert abs(same.begin - before - 2 * HOUR) < timedelta(minutes=2)


NOT_TIMES: list[tuple[dict[str, Any], str]] = [
    ({"begin": 1.5, "duration": 5}, rf"begin: 1\.5 {NO_TIME}"),
    ({"begin": NOW.date(), "duration": 5}, rf"begin: datetime\.date\(2025, 1, 1\) {NO_TIME}"),
    ({"begin": "soon", "duration": 5}, "begin: 'soon' is not a time; write it like 2025-01-31T08:00"),
    ({"begin": datetime(2099, 1, 1), "duration": 5}, "begin: 2099-01-01T00:00:00 has no time zone"),  # which is the mistake
    ({"begin": "+9999999d", "duration": 5}, "begin: 9999999 days after .* is too late for a time"),
    ({"begin": "9999-12-31", "duration": "2d"}, "2 days after 9999-12-31 is too late for a time"),
    ({"end": 7}, f"end: 7 {NO_TIME}"),
    ({"duration": 5, "expires": object()}, f"expires: <object .*> {NO_TIME}"),
    ({"duration": []}, r"\[\] is not a duration; give seconds, a timedelta, or text like 30s, 5m or 1h30m"),
    ({"duration": 5, "wants": CellLot("a", "b", 1, end="2099-01-01")}, "'2099-01-01' is not a datetime"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("said", "why"), NOT_TIMES)
async def test_what_is_no_time_is_refused_in_words(said: dict[str, Any], why: str) -> None:
    """Before anything is sent, by both clients."""
    with Client("127.0.0.1:1", timeout=1) as client, pytest.raises(sdk.InvalidArgument, match=why):
        client.exchange.offer("vision", POOL, "node", **said)
    async with AsyncClient("127.0.0.1:1", timeout=1) as waiting:
        with pytest.raises(sdk.InvalidArgument, match=why):
            await waiting.exchange.offer("vision", POOL, "node", **said)
        if "end" in said:
            with pytest.raises(sdk.InvalidArgument, match=why):
                await waiting.exchange.accept(1, "vision", **said)


async def test_the_same_awaited(site: Server) -> None:
    begin = datetime.now(UTC) + HOUR
    async with AsyncClient(site.address) as client:
        market = client.exchange
        swap = CellLot(POOL, "node", 1, begin + 2 * HOUR, begin + 4 * HOUR)
        offer = await market.offer("vision", POOL, "node", begin=begin, duration=HOUR, wants=swap)
        assert (offer.swap and offer.swap.gpu_hours, offer.bid_device_us) == (8, None)
        there, back = await market.accept(offer, "speech")
        assert (back.in_return_for, back.giver) == (there.id, "speech")
        assert [one.id async for one in market.exchanges()] == [back.id, there.id]
        assert [posting.id async for posting in market.postings()] == []
        assert [entry.exchange_id async for entry in market.ledger(virtual_cluster="vision")] == [back.id, there.id]
        assert (await market.surpluses(virtual_cluster="vision"))[0].gpu_hours == 4 - 8
        want = await market.request("speech", POOL, "node", begin=begin, duration=HOUR, bid=1, gives=None)
        assert (await market.withdraw(want, "speech")).state is PostingState.WITHDRAWN
        assert (await market.give_back(there)).state is ExchangeState.RETURNED


def test_both_clients_offer_the_same() -> None:
    def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
        public = {name: each for name, each in vars(kind).items() if not name.startswith("_")}
        return {name: list(inspect.signature(each).parameters.values()) for name, each in public.items()}

    assert methods(AsyncExchange) == methods(Exchange)


def test_the_fake_cluster_is_a_site_without_it() -> None:
    with testing.cluster() as fake, pytest.raises(sdk.FailedPrecondition) as refused:
        list(fake.client().exchange.postings())
    assert refused.value.reason == "NO_VIRTUAL_CLUSTERS"


# ---- people ------------------------------------------------------------------------------------------------------------


def test_the_commands_one_after_the_other(run: Run, client: Client) -> None:
    assert run("offer", "vision", NODE, "--from", "+1h", "--for", "8h", "--ask", "3.5").startswith(
        "offer 1 is on the board until"
    )
    assert run("request", "speech", NODE, "--from", "+2h", "--for", "2h", "--bid", "0.5", "-q") == "2\n"
    board = [line.split() for line in run("board", "--no-header").splitlines()]
    assert [(line[:4], line[-3:]) for line in board] == [
        (["2", "request", "speech", NODE], ["-", "0.50", "-"]),
        (["1", "offer", "vision", NODE], ["1", "3.50", "-"]),
    ]
    assert run("board", "-q", "--vc", "vision") == "1\n"
    assert "tenant" in run("board", "-o", "wide")
    shown = json.loads(run("board", "-o", "json"))
    assert (shown[1]["bid_device_us"], shown[1]["state"], shown[1]["lot"]["cells"]) == (12_600_000_000, "OPEN", 1)
    assert run("list") == "ID  GIVER  TAKER  CELLS  FROM  TO  GPU-HOURS  STATE\n"

    assert run("accept", "2", "--vc", "vision").startswith(f"exchange 1: speech has {NODE} of vision's from ")
    assert run("accept", "1", "--vc", "speech", "--from", "+5h", "--for", "1h", "-q") == "2\n"
    (second, first) = (line.split() for line in run("list", "--no-header").splitlines())
    assert (first[:4], first[-2:]) == (["1", "vision", "speech", NODE], ["0.50", "MATCHED"])
    assert second[-2:] == ["0.44", "MATCHED"], "its share of what was asked"
    assert " 1 " in run("list", "-o", "wide").splitlines()[1], "it met posting 1"
    assert run("ledger").split() == ["VC", "GPU-HOURS", "vision", "+0.94", "speech", "-0.94"]
    entries = [line.split()[:4] for line in run("ledger", "speech", "--entries", "--no-header").splitlines()]
    assert entries == [["speech", "2", "agreed", "-0.44"], ["speech", "1", "agreed", "-0.50"]]

    assert run("return", "1", "--vc", "speech") == "exchange 1 is over once vision asks for that, too\n"
    assert "speech would end it" in run("list", "-o", "wide")
    assert run("return", "1", "--vc", "vision") == f"exchange 1 is over: {NODE} is vision's again\n"
    assert run("return", "2", "--site", "-q") == "2\n"
    assert run("list", "-q") == ""
    assert run("list", "-q", "--all") == "2\n1\n"
    assert run("withdraw", "1", "--vc", "vision") == "offer 1 is off the board\n"
    done = CliRunner().invoke(ebb, ["exchange", "withdraw", "1", "99", "--site"])
    assert (done.exit_code, done.stdout) == (1, "offer 1 is off the board\n")
    assert "ebb: posting 99 is not on the board" in done.stderr
    assert [posting["state"] for posting in json.loads(run("board", "--all", "-o", "json"))] == ["MATCHED", "WITHDRAWN"]
    assert json.loads(run("ledger", "-o", "json")) == [{"virtual_cluster": vc, "device_us": 0} for vc in ("vision", "speech")]


def test_cells_for_cells(run: Run) -> None:
    window = ("--from", "+1h", "--for", "2h")
    run("offer", "vision", NODE, *window, "--wants", NODE, "--wants-from", "+4h")
    shown = json.loads(run("board", "-o", "json"))[0]
    assert shown["bid_device_us"] is None
    assert datetime.fromisoformat(shown["swap"]["end"]) - datetime.fromisoformat(shown["swap"]["begin"]) == 2 * HOUR
    assert run("board").splitlines()[1].split()[-4:-2] == ["-", NODE]
    assert run("accept", "1", "--vc", "speech", "-q") == "1\n2\n"
    assert "in return for 1" in run("list", "-o", "wide")


def test_a_part_of_an_offer_that_is_to_come_is_of_its_beginning(run: Run) -> None:
    run("offer", "vision", NODE, "--from", "+2h", "--for", "8h")
    begin = datetime.fromisoformat(json.loads(run("board", "-o", "json"))[0]["lot"]["begin"])
    run("accept", "1", "--vc", "speech", "--for", "10m")
    lot = json.loads(run("list", "-o", "json"))[0]["lot"]
    assert [datetime.fromisoformat(lot[end]) - begin for end in ("begin", "end")] == [timedelta(), timedelta(minutes=10)]


def test_a_request_that_says_the_same_times_as_an_offer_is_met_by_it(run: Run) -> None:
    """Whichever was posted first, if it was in the same minute, or before."""
    window = ("--from", "+1h", "--for", "1h")
    run("request", "speech", NODE, *window)
    run("offer", "vision", NODE, *window, "-q")
    wanted, offered = (json.loads(run("board", "--all", "-o", "json"))[at]["lot"] for at in (1, 0))
    for end in ("begin", "end"):
        times = [datetime.fromisoformat(lot[end]) for lot in (wanted, offered)]
        assert [(time.second, time.microsecond) for time in times] == [(0, 0), (0, 0)]
        assert timedelta() <= times[1] - times[0] <= timedelta(minutes=1)


def test_relative_times_of_seconds_are_as_they_are_said() -> None:
    now = NOW.replace(second=50, microsecond=7)
    assert times("+20s", "1h", None, now) == (now + timedelta(seconds=20), now + timedelta(hours=1, seconds=20))
    assert times("+90s", None, None, now)[0] == now + timedelta(seconds=90)
    assert times("+2m", None, None, now)[0] == now.replace(second=0, microsecond=0) + timedelta(minutes=2)


@pytest.mark.parametrize("hours", [float("nan"), float("inf"), -1.0, 1e12])
def test_what_is_no_amount_of_gpu_hours_is_refused(client: Client, hours: float) -> None:
    with pytest.raises(sdk.InvalidArgument, match="is not an amount of GPU-hours"):
        client.exchange.offer("vision", POOL, "node", duration="1h", ask=hours)


def test_a_request_that_is_met_says_so(run: Run) -> None:
    run("offer", "vision", NODE, "--for", "8h")
    assert run("request", "speech", NODE, "--for", "1h") == "request 2 is met: `ebb exchange list --vc speech` shows it\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"offer vision {NODE}", "say for how long, such as --for 8h, or until when: --to TIME"),
        (f"offer vision {NODE} --for 1h --to +2h", "--for and --to both say when it ends"),
        ("offer vision a100=2 --for 1h", "'a100=2' is not POOL/LEVEL=N, such as a100/node=2"),
        (
            f"offer vision {NODE} --from soon --for 1h",
            "'soon' is not a time; write it like 2025-01-31T08:00 (UTC), +2h (from now)",
        ),
        (f"offer vision {NODE} --for long", "'long' is not a duration"),
        (f"offer vision {POOL}/node=2 --for 1h", "owns 1 node cells of pool"),
        (f"offer nobody {NODE} --for 1h", "there is no virtual cluster 'nobody'; there are: speech, vision"),
        ("accept 1", "say for which virtual cluster: --vc NAME, or EBB_VC"),
        ("withdraw 1", "say for which virtual cluster"),
        ("return 9 --vc vision", "exchange 9 is over, or there never was one"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(run: Run, words: str, said: str) -> None:
    status = 2 if said.startswith(("say", "--for")) else 1
    assert said in run(*words.split(), status=status)


def test_times() -> None:
    assert parse_time("now", NOW) == NOW
    assert parse_time("+90m", NOW) == NOW + 1.5 * HOUR
    assert parse_time("2025-01-31", NOW) == datetime(2025, 1, 31, tzinfo=UTC)
    assert parse_time("2025-01-31T08:00+02:00", NOW) == datetime(2025, 1, 31, 6, tzinfo=UTC)


def test_proxies_and_what_is_taken_and_given_are_shown(run: Run, client: Client, site: Server) -> None:
    def vc(*words: str) -> str:
        done = CliRunner().invoke(ebb, ["vc", *words])
        assert done.exit_code == 0, done.output
        return done.output

    assert "proxy          off" in vc("show", "vision")
    told = vc("update", "vision", "--offer-idle-after", "2h", "--offer-idle-keep", "1")
    assert "offers cells that were idle for 2:00:00, for 2:00:00, but for 1" in told
    assert "for 8:00:00" in vc("update", "vision", "--offer-idle-for", "8h")
    policy = client.virtual_cluster("vision").policy
    assert (policy.proxy_after, policy.proxy_window, policy.proxy_keep) == (2 * HOUR, 8 * HOUR, 1)
    assert "proxy          off" in vc("update", "vision", "--offer-idle-after", "0")
    run("offer", "vision", NODE, "--for", "8h")
    run("accept", "1", "--vc", "speech")
    assert vc("show", "vision").splitlines()[-1].split() == [POOL, "node", *"000001"]
    assert vc("show", "speech").splitlines()[-1].split() == [POOL, "node", *"202010"]
    (pool,) = client.cells()
    lines = ["".join(part for part, _ in line) for line in draw_pool(pool)]
    (line,) = [line for line in lines if "speech has" in line]
    assert line.startswith("  speech has 1 node of vision's until ")
    assert line.endswith("(exchange 1)")


def test_a_job_may_leave_with_the_cells(client: Client) -> None:
    job = client.submit(["true"], vc="vision", devices=4, vacates=True)
    assert client.get(job.id).spec.cells.vacates
    done = CliRunner().invoke(ebb, ["--address", client.address, "show", str(job.id)])
    assert "vacates" in done.output

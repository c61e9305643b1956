"""ebb.v1.Exchange: postings, deals and the ledger, for tenants and for the site; and what is shown of it elsewhere."""

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ebb.v1 import exchange_pb2 as pb
from ebb.v1 import job_pb2
from ebb.v1 import virtual_clusters_pb2 as vc_pb
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import Engine

from scheduler_service.core.handlers.exchange import MOST_POSTINGS
from scheduler_service.core.model.tenants.exchange import Exchange, Lot, Posting, PostingKind, Surplus
from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc.convert.exchange import exchange_out, postings_out, surplus_out
from scheduler_service.run.token_cache import wall_clock
from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.rpc.test_access import Tokens, bearer
from tests.rpc.test_virtual_clusters import POOL, create, get, node, quota
from tests.store.waiting import wait_for

HOUR = 3600
OFFER, REQUEST = pb.POSTING_KIND_OFFER, pb.POSTING_KIND_REQUEST
OPEN, MATCHED, WITHDRAWN = pb.POSTING_STATE_OPEN, pb.POSTING_STATE_MATCHED, pb.POSTING_STATE_WITHDRAWN
ACTIVE, RETURNED = pb.EXCHANGE_STATE_ACTIVE, pb.EXCHANGE_STATE_RETURNED


@pytest.fixture
def site(database_url: str) -> Iterator[Server]:
    with Server(database_url, virtual_clusters=True, policy="fifo", exchange="none") as made:
        yield made


@pytest.fixture
def nodes(site: Server) -> Iterator[list[Agent]]:
    with node(site, "n1") as first, node(site, "n2") as second:
        first.connect()
        second.connect()
        create(site, "a", quota("node", 1))
        create(site, "b", quota("node", 1))
        yield [first, second]


NOW = time.time()


def at(hours: float) -> Timestamp:
    """The same moment whenever it is asked for, so that a request can be sent again."""
    return Timestamp(seconds=int(NOW + hours * HOUR))


def lot(cells: int = 1, begin: float | None = None, end: float = 8, level: str = "node", pool: str = POOL) -> Any:
    begins = None if begin is None else at(begin)
    return pb.CellLot(pool=pool, level=level, cells=cells, begin_time=begins, end_time=at(end))


def post(server: Server, vc: str, kind: Any = OFFER, what: Any = None, **more: Any) -> Any:
    request = pb.PostRequest(virtual_cluster=vc, kind=kind, lot=what or lot(), **more)
    return server.exchange.Post(request, timeout=LIMIT).posting


def accept(server: Server, vc: str, posting: int, **more: Any) -> list[Any]:
    request = pb.AcceptRequest(virtual_cluster=vc, posting_id=posting, **more)
    return list(server.exchange.Accept(request, timeout=LIMIT).exchanges)


def withdraw(server: Server, posting: int, vc: str = "") -> Any:
    return server.exchange.Withdraw(pb.WithdrawRequest(posting_id=posting, virtual_cluster=vc), timeout=LIMIT).posting


def give_back(server: Server, exchange: int, vc: str = "") -> Any:
    return server.exchange.ReturnCells(pb.ReturnCellsRequest(exchange_id=exchange, virtual_cluster=vc), timeout=LIMIT).exchange


def postings(server: Server, **asked: Any) -> list[Any]:
    return list(server.exchange.ListPostings(pb.ListPostingsRequest(**asked), timeout=LIMIT).postings)


def exchanges(server: Server, **asked: Any) -> list[Any]:
    return list(server.exchange.ListExchanges(pb.ListExchangesRequest(**asked), timeout=LIMIT).exchanges)


def ledger(server: Server, **asked: Any) -> Any:
    return server.exchange.GetLedger(pb.GetLedgerRequest(**asked), timeout=LIMIT)


def owned(server: Server, vc: str) -> tuple[int, int, int]:
    (use,) = get(server, vc).cells
    return use.owned, use.taken, use.given


def test_an_offer_is_taken_and_its_cells_are_the_takers(site: Server, nodes: list[Agent]) -> None:
    offer = post(site, "a", what=lot(end=8), bid_device_us=7)
    assert (offer.kind, offer.virtual_cluster, offer.state, offer.left, offer.bid_device_us) == (OFFER, "a", OPEN, 1, 7)
    assert postings(site) == [offer]
    (made,) = accept(site, "b", offer.posting_id)
    assert (made.giver, made.taker, made.state, made.offer_posting_id) == ("a", "b", ACTIVE, offer.posting_id)
    assert 0 < made.price_device_us <= 7
    assert made.lot.device_us == 4 * (made.lot.end_time.ToMicroseconds() - made.lot.begin_time.ToMicroseconds())
    (left,) = postings(site)
    assert (left.left, left.state) == (0, OPEN), "it stands, and there is nothing left of it"
    assert (owned(site, "a"), owned(site, "b")) == ((0, 0, 1), (2, 1, 0))
    jobs = [site.submit(virtual_cluster="b", devices=4, cpu_milli=4).id for _ in range(2)]
    assert [site.get(job).guaranteed for job in jobs] == [True, True]
    (pool,) = site.vcs.ListCells(vc_pb.ListCellsRequest(), timeout=LIMIT).pools
    (shown,) = pool.exchanged
    assert (shown.exchange_id, shown.level, shown.cells, shown.giver, shown.taker) == (made.exchange_id, "node", 1, "a", "b")
    assert exchanges(site) == exchanges(site, virtual_cluster="a") == [made]


def test_what_is_asked_again_with_its_request_id_is_the_same(site: Server, nodes: list[Agent]) -> None:
    """Also when it has left the board, its window is another's, and whoever posted it could not offer it any more."""
    offer = post(site, "a", request_id="x")
    assert post(site, "a", request_id="x") == offer
    want = post(site, "b", REQUEST, lot(begin=1, end=2), request_id="x")
    (made,) = accept(site, "b", offer.posting_id, request_id="take")
    assert accept(site, "b", offer.posting_id, request_id="take") == [made]
    assert accept(site, "b", offer.posting_id, request_id="take", cells=1, end_time=at(8)) == [made]
    for part in ({"cells": 2}, {"begin_time": at(1)}, {"end_time": at(7)}):
        another = failure(lambda part=part: accept(site, "b", offer.posting_id, request_id="take", **part))  # type: ignore[misc]
        assert (another.code, another.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    withdraw(site, offer.posting_id, "a")
    withdraw(site, want.posting_id, "b")
    again = post(site, "a", request_id="x")
    assert (again.posting_id, again.state) == (offer.posting_id, WITHDRAWN)
    assert post(site, "b", REQUEST, lot(begin=1, end=2), request_id="x").state == WITHDRAWN
    for other in (lambda: post(site, "a", what=lot(end=9), request_id="x"), lambda: post(site, "a", REQUEST, request_id="x")):
        refused = failure(other)
        assert (refused.code, refused.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    give_back(site, made.exchange_id)
    (over,) = accept(site, "b", offer.posting_id, request_id="take")
    assert (over.exchange_id, over.state) == (made.exchange_id, RETURNED)
    assert failure(lambda: accept(site, "b", want.posting_id, request_id="take")).reason == "REQUEST_ID_REUSED"
    assert [posting.posting_id for posting in postings(site, states=[WITHDRAWN])] == [2, 1]
    assert postings(site) == []


def test_withdrawing_and_returning_are_safe_to_repeat_and_are_their_owners(site: Server, nodes: list[Agent]) -> None:
    offer = post(site, "a")
    (made,) = accept(site, "b", offer.posting_id)
    assert failure(lambda: withdraw(site, offer.posting_id, "b")).reason == "NOT_YOURS"
    assert withdraw(site, offer.posting_id, "a").state == WITHDRAWN
    assert withdraw(site, offer.posting_id, "a").state == withdraw(site, offer.posting_id).state == WITHDRAWN
    for other in ("b", "nobody"):
        assert failure(lambda other=other: withdraw(site, offer.posting_id, other)).reason == "NO_OPEN_POSTING"
    assert failure(lambda: withdraw(site, 99)).reason == "NO_OPEN_POSTING"
    create(site, "c")
    assert failure(lambda: give_back(site, made.exchange_id, "c")).reason == "NOT_YOURS"
    for _ in range(2):
        asked = give_back(site, made.exchange_id, "b")
        assert (asked.return_asked_by, asked.state) == ("b", ACTIVE)
    assert give_back(site, made.exchange_id, "a").state == RETURNED
    assert give_back(site, made.exchange_id, "b").state == give_back(site, made.exchange_id).state == RETURNED
    assert failure(lambda: give_back(site, made.exchange_id, "c")).reason == "NO_LIVE_EXCHANGE"
    assert failure(lambda: give_back(site, 99)).reason == "NO_LIVE_EXCHANGE"
    assert (owned(site, "a"), owned(site, "b")) == ((1, 0, 0), (1, 0, 0))


def test_the_ledger_comes_to_nothing_and_outlives_its_virtual_clusters(site: Server, nodes: list[Agent]) -> None:
    offer = post(site, "a")
    made = [accept(site, "b", offer.posting_id, begin_time=at(h), end_time=at(h + 1))[0] for h in (1, 2, 3)]
    price = 4 * HOUR * 10**6
    assert [x.price_device_us for x in made] == [price] * 3
    found = ledger(site)
    assert {s.virtual_cluster: s.device_us for s in found.surpluses} == {"a": 3 * price, "b": -3 * price}
    assert [(e.exchange_id, e.virtual_cluster, e.device_us) for e in found.entries] == [
        (x, vc, sign * price) for x in (3, 2, 1) for vc, sign in (("a", 1), ("b", -1))
    ]
    first = ledger(site, page_size=2, virtual_cluster="b")
    assert ([e.exchange_id for e in first.entries], first.next_page_token) == ([3, 2], "2")
    rest = ledger(site, page_size=2, virtual_cluster="b", page_token=first.next_page_token)
    assert ([e.exchange_id for e in rest.entries], rest.next_page_token) == ([1], "")
    site.vcs.DeleteVirtualCluster(vc_pb.DeleteVirtualClusterRequest(name="b"), timeout=LIMIT)
    found = ledger(site)
    assert [(s.virtual_cluster, s.device_us) for s in found.surpluses] == [("a", 0), ("", 0)]
    assert sum(e.device_us for e in found.entries) == 0
    assert {e.kind for e in found.entries} == {pb.BOOKING_KIND_AGREED, pb.BOOKING_KIND_RETURNED}
    assert [x.taker for x in exchanges(site, states=[RETURNED])] == [""] * 3
    assert failure(lambda: ledger(site, virtual_cluster="b")).reason == "NO_SUCH_VC"


def test_lists_come_in_pages(site: Server, nodes: list[Agent]) -> None:
    for begin in range(1, 6):
        post(site, "a", what=lot(begin=begin, end=begin + 1))
    page = site.exchange.ListPostings(pb.ListPostingsRequest(page_size=3), timeout=LIMIT)
    assert ([o.posting_id for o in page.postings], page.next_page_token) == ([5, 4, 3], "3")
    assert [o.posting_id for o in postings(site, page_token="3")] == [2, 1]
    for posting in (1, 2, 3):
        accept(site, "b", posting)
    taken = site.exchange.ListExchanges(pb.ListExchangesRequest(page_size=2, virtual_cluster="b"), timeout=LIMIT)
    assert ([x.exchange_id for x in taken.exchanges], taken.next_page_token) == ([3, 2], "2")
    assert [x.exchange_id for x in exchanges(site, page_token="2")] == [1]
    assert postings(site, virtual_cluster="b") == []


def test_a_swap_makes_two_exchanges(site: Server, nodes: list[Agent]) -> None:
    now = post(site, "a", what=lot(begin=1, end=2), swap=lot(begin=3, end=5))
    assert not now.HasField("bid_device_us")
    first, second = accept(site, "b", now.posting_id, request_id="s")
    assert (first.giver, second.giver, second.in_return_for) == ("a", "b", first.exchange_id)
    assert accept(site, "b", now.posting_id, request_id="s") == [first, second]
    assert [o.state for o in postings(site, states=[MATCHED])] == [MATCHED]


def test_what_nobody_could_mean_or_meet_is_refused(site: Server, nodes: list[Agent]) -> None:
    for call, field in (
        (lambda: post(site, "a", what=lot(cells=0)), "lot.cells"),
        (lambda: post(site, "a", what=pb.CellLot(pool=POOL, level="node", cells=1)), "lot.end_time"),
        (lambda: post(site, "a", kind=pb.POSTING_KIND_UNSPECIFIED), "kind"),
        (lambda: post(site, "a", bid_device_us=-1), "bid_device_us"),
        (lambda: post(site, "a", what=lot(end=1e6)), "lot.end_time"),
        (lambda: post(site, "a", swap=lot(begin=-1e6)), "swap.begin_time"),
        (lambda: accept(site, "a", 0), "posting_id"),
        (lambda: postings(site, page_token="x"), "page_token"),
    ):
        refused = failure(call)
        assert (refused.code, refused.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    for call, reason in (
        (lambda: post(site, "z"), "NO_SUCH_VC"),
        (lambda: postings(site, virtual_cluster="z"), "NO_SUCH_VC"),
        (lambda: post(site, "a", what=lot(2)), "NOT_OWNED"),
        (lambda: post(site, "a", what=lot(begin=-2, end=-1)), "WINDOW_OVER"),
        (lambda: post(site, "a", what=lot(begin=2, end=1)), "EMPTY_LOT"),
        (lambda: post(site, "a", swap=lot(begin=3, end=4), bid_device_us=1), "BID_FOR_SWAP"),
        (lambda: post(site, "a", what=lot(level="rack")), "NO_SUCH_LEVEL"),
        (lambda: accept(site, "b", 99), "NO_OPEN_POSTING"),
        (lambda: accept(site, "a", post(site, "a").posting_id), "NO_DEAL"),
    ):
        assert failure(call).reason == reason


def test_what_is_more_than_can_be_counted_is_refused_and_sums_that_are_do_no_harm(site: Server, nodes: list[Agent]) -> None:
    far = 24 * 365 * 70
    for call in (
        lambda: post(site, "a", REQUEST, lot(1_000_000, end=far)),
        lambda: post(site, "a", REQUEST, lot(end=far), swap=lot(1_000_000, begin=1, end=far)),
    ):
        refused = failure(call)
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LOT_TOO_LARGE")
        assert int(refused.info.metadata["device_us"]) > int(refused.info.metadata["most"])
    assert postings(site) == []
    assert surplus_out(Surplus(1, -(10**30)), {1: "a"}).device_us == 1 - 2**63
    whole = Lot("p", "node", 1_000_000, 0, 10**15, 16)
    assert exchange_out(Exchange(1, 1, 0, 1, 2, whole, 10**20, 0), {}).price_device_us == 2**63 - 1
    (shown,) = postings_out([Posting(1, PostingKind.REQUEST, 1, whole, 0, 10**15)], (), {}, 0)
    assert (shown.left, shown.lot.device_us) == (1_000_000, 2**63 - 1)


def test_a_virtual_cluster_has_so_many_postings_on_the_board_and_no_more(site: Server, nodes: list[Agent]) -> None:
    asked = [post(site, "a", REQUEST, request_id=f"{number}").posting_id for number in range(MOST_POSTINGS)]
    refused = failure(lambda: post(site, "a", REQUEST))
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_POSTINGS")
    assert refused.info.metadata == {"vc": "a", "most": f"{MOST_POSTINGS}"}
    assert post(site, "a", REQUEST, request_id="7").posting_id == asked[7], "it is there, and no other"
    post(site, "b", REQUEST)
    withdraw(site, asked[7], "a")
    post(site, "a", REQUEST)


def test_whoever_speaks_for_the_site_is_an_operator(database_url: str, engine: Engine) -> None:
    Tokens(engine).add("ada", "ada")
    Tokens(engine).add("olga", "olga", Role.OPERATOR)
    user, operator = bearer("ada"), bearer("olga")
    with Server(database_url, virtual_clusters=True, auth="token") as site:
        for call, request in (
            (site.exchange.Withdraw, pb.WithdrawRequest(posting_id=1)),
            (site.exchange.ReturnCells, pb.ReturnCellsRequest(exchange_id=1)),
        ):
            refused = failure(lambda call=call, request=request: call(request, timeout=LIMIT, metadata=user))  # type: ignore[misc]
            assert (refused.code, refused.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE")
            found = failure(lambda call=call, request=request: call(request, timeout=LIMIT, metadata=operator))  # type: ignore[misc]
            assert found.code is grpc.StatusCode.NOT_FOUND
            request.virtual_cluster = "a"
            own = failure(lambda call=call, request=request: call(request, timeout=LIMIT, metadata=user))  # type: ignore[misc]
            assert own.code is grpc.StatusCode.NOT_FOUND


def test_the_log_says_who_moved_a_guarantee(database_url: str, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    Tokens(engine).add("ada", "ada")
    Tokens(engine).add("olga", "olga", Role.OPERATOR)
    Tokens(engine).add("agents", "agents", Role.AGENT)
    user, operator, agents = bearer("ada"), bearer("olga"), bearer("agents")
    with (
        Server(database_url, virtual_clusters=True, exchange="none", auth="token") as site,
        node(site, "n1", metadata=agents) as n1,
    ):
        n1.connect()
        for made in (
            vc_pb.CreateVirtualClusterRequest(name=vc, quotas=has) for vc, has in (("a", [quota("node", 1)]), ("b", []))
        ):
            site.vcs.CreateVirtualCluster(made, timeout=LIMIT, metadata=operator)
        post = pb.PostRequest(virtual_cluster="a", kind=OFFER, lot=lot())
        site.exchange.Post(post, timeout=LIMIT, metadata=user)
        site.exchange.Accept(pb.AcceptRequest(virtual_cluster="b", posting_id=1), timeout=LIMIT, metadata=user)
        site.exchange.ReturnCells(pb.ReturnCellsRequest(exchange_id=1), timeout=LIMIT, metadata=operator)
        site.exchange.Withdraw(pb.WithdrawRequest(virtual_cluster="a", posting_id=1), timeout=LIMIT, metadata=user)
        assert failure(lambda: site.exchange.Post(post, timeout=LIMIT)).code is grpc.StatusCode.UNAUTHENTICATED
    assert [r.getMessage() for r in caplog.records if r.name == "scheduler_service.rpc.services.exchange"] == [
        "ada posted offer 1 for virtual cluster a",
        "ada accepted posting 1, which is exchange 1, for virtual cluster b",
        "olga asked for the return of exchange 1 for the site",
        "ada withdrew posting 1 for virtual cluster a",
    ]


def test_a_proxy_is_a_setting_and_offers_what_is_idle(database_url: str) -> None:
    with Server(database_url, virtual_clusters=True, exchange="balanced") as site, node(site, "n1") as agent:
        agent.connect()
        proxy = vc_pb.VirtualClusterPolicy(proxy_after=Duration(nanos=50_000_000), proxy_window=Duration(seconds=99))
        made = create(site, "a", quota("node", 1), policy=proxy)
        assert (made.policy.proxy_after, made.policy.proxy_window) == (proxy.proxy_after, proxy.proxy_window)
        assert create(site, "a", quota("node", 1), policy=proxy) == made
        wait_for(lambda: postings(site), LIMIT)
        (offer,) = postings(site)
        assert (offer.by_proxy, offer.virtual_cluster) == (True, "a")
        create(site, "b")
        want = post(site, "b", REQUEST, pb.CellLot(pool=POOL, level="node", cells=1, end_time=_micros(offer.lot.end_time, -1)))
        assert want.state == MATCHED, "the arbiter met it at once"
        update = vc_pb.UpdateVirtualClusterRequest(name="a", policy=vc_pb.VirtualClusterPolicy(proxy_after=Duration()))
        off = site.vcs.UpdateVirtualCluster(update, timeout=LIMIT).virtual_cluster.policy
        assert (off.proxy_after, off.proxy_window) == (Duration(), proxy.proxy_window), "what is not named stays"
        assert postings(site) == []


@pytest.mark.parametrize(
    ("after_ns", "window_ns", "field"), [(1_000, 0, "proxy_after"), (50_000_000, 999_999_000, "proxy_window")]
)
def test_a_proxy_that_would_post_an_offer_each_moment_is_refused(
    database_url: str, after_ns: int, window_ns: int, field: str
) -> None:
    with Server(database_url, virtual_clusters=True) as site, node(site, "n1") as agent:
        agent.connect()
        proxy = vc_pb.VirtualClusterPolicy(proxy_after=Duration(nanos=after_ns), proxy_window=Duration(nanos=window_ns))
        refused = failure(lambda: create(site, "a", quota("node", 1), policy=proxy))
        assert (refused.code, refused.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, f"policy.{field}")


def test_a_virtual_cluster_goes_with_its_proxy_and_all_that_it_has_on_the_board(database_url: str) -> None:
    with Server(database_url, virtual_clusters=True) as site, node(site, "n1") as agent:
        agent.connect()
        proxy = vc_pb.VirtualClusterPolicy(proxy_after=Duration(nanos=1_000_000), proxy_window=Duration(seconds=99))
        create(site, "a", quota("node", 1), policy=proxy)
        post(site, "a", REQUEST, lot(begin=1, end=2))
        wait_for(lambda: len(postings(site)) == 2, LIMIT)
        site.vcs.DeleteVirtualCluster(vc_pb.DeleteVirtualClusterRequest(name="a"), timeout=LIMIT)
        assert postings(site) == []
        assert [(o.state, o.virtual_cluster) for o in postings(site, states=[WITHDRAWN])] == [(WITHDRAWN, "")] * 2
        create(site, "a", quota("node", 1))
        assert post(site, "a", request_id="x").posting_id == 3
        assert [o.virtual_cluster for o in postings(site)] == ["a"]


def _micros(time: Timestamp, more: int) -> Timestamp:
    found = Timestamp()
    found.FromMicroseconds(time.ToMicroseconds() + more)
    return found


def test_a_job_may_say_that_it_leaves_with_the_cells(site: Server, nodes: list[Agent]) -> None:
    """Its virtual cluster owns fewer cells now: it is told to leave, and waits."""
    asked = job_pb2.CellRequest(vacates=True)
    job = site.submit(virtual_cluster="a", devices=4, cpu_milli=4, cells=asked)
    assert site.get(job.id).spec.cells == asked
    offer = post(site, "a")
    accept(site, "b", offer.posting_id)
    assert site.get(job.id).reason == job_pb2.JOB_REASON_RECLAIMED


def test_after_a_restart_all_is_as_it_was(database_url: str) -> None:
    settings = {"virtual_clusters": True, "exchange": "none"}
    with Server(database_url, **settings) as first, node(first, "n1") as one, node(first, "n2") as two:
        one.connect()
        two.connect()
        create(first, "a", quota("node", 1))
        create(first, "b", quota("node", 1))
        accept(first, "b", post(first, "a", request_id="x").posting_id, request_id="y", end_time=at(4))
        post(first, "b", what=lot(begin=6, end=7))
        before = postings(first), exchanges(first), ledger(first), owned(first, "a"), owned(first, "b")
    with Server(database_url, **settings) as second:
        assert (postings(second), exchanges(second), ledger(second), owned(second, "a"), owned(second, "b")) == before
        assert post(second, "a", request_id="x").posting_id == 1
        assert accept(second, "b", 1, request_id="y") == before[1]
        assert failure(lambda: accept(second, "b", 1)).reason == "NO_DEAL", "there is nothing left of it until then"
        assert wall_clock() < before[1][0].lot.end_time.ToMicroseconds()


def test_a_site_without_virtual_clusters_says_so(server: Server) -> None:
    for call in (
        lambda: post(server, "a"),
        lambda: withdraw(server, 1),
        lambda: accept(server, "a", 1),
        lambda: give_back(server, 1),
        lambda: postings(server),
        lambda: exchanges(server),
        lambda: ledger(server),
    ):
        refused = failure(call)
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_VIRTUAL_CLUSTERS")

"""What is expected of share groups: their devices are free once the last of the members that use them has ended."""

from scheduler_service.core.messages import Place, Share, Spot
from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.queueing.backfill import reserve
from tests.core.sharing_desk import HALF, Sharing, key, row


def job(devices: int, seconds: int) -> JobSpec:
    return JobSpec(("true",), Vector(1000, 1024, devices), estimate_us=seconds * SECOND)


def test_the_head_is_expected_to_start_once_the_last_member_has_ended() -> None:
    d = Sharing()
    one, two, three = d.submit(job(4, 100)), d.submit(job(4, 500)), d.submit(job(4, 300))
    d.place(one, 1, 0, 1, 2, 3)
    d.do(Place(two, (Spot(1, (0, 1, 2, 3)),), share=Share((row(one, two),), ((key(one), HALF), (key(two), HALF)))))
    d.place(three, 1, 4, 5, 6, 7)
    d.start(one, two, three)
    for devices, seconds in ((4, 300), (5, 500), (8, 500)):
        found = reserve(d.state, d.job(d.submit(devices=devices)))
        assert found is not None
        assert found.at == d.now + seconds * SECOND


def test_nobody_knows_when_a_group_ends_of_which_one_member_is_unknown() -> None:
    d = Sharing()
    one, two = d.submit(job(8, 100)), d.submit(devices=1)
    d.place(one, 1, *range(8))
    d.do(Place(two, (Spot(1, (0,)),), share=Share((row(one, two),), ((key(one), HALF), (key(two), HALF)))))
    d.start(one, two)
    assert reserve(d.state, d.job(d.submit(devices=8))) is None


def test_the_devices_of_a_group_are_counted_once() -> None:
    d = Sharing()
    one, two, unknown = d.submit(job(4, 100)), d.submit(job(4, 500)), d.submit(devices=4)
    d.place(one, 1, 0, 1, 2, 3)
    d.do(Place(two, (Spot(1, (0, 1, 2, 3)),), share=Share((row(one, two),), ((key(one), HALF), (key(two), HALF)))))
    d.place(unknown, 1, 4, 5, 6, 7)
    d.start(one, two, unknown)
    assert reserve(d.state, d.job(d.submit(devices=8))) is None

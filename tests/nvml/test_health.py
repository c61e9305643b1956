"""Which of the driver's errors make a GPU unfit, and until when."""

import pytest

from node_agent.devices.health import JOBS_FAULT, UNFIT, Standing

HEALTHY = (0, False, False, 0)
SILENT = (None, None, None, None)
"""A driver that cannot say."""


def test_what_jobs_do_to_themselves_is_no_fault_of_the_gpu() -> None:
    assert {13, 31, 43, 45, 68, 109} == JOBS_FAULT
    assert not JOBS_FAULT & set(UNFIT)
    standing = Standing()
    for xid in sorted(JOBS_FAULT):
        standing.note_xid(xid)
    assert (standing.xid, standing.fault) == (0, "")


@pytest.mark.parametrize("xid", [48, 62, 64, 74, 79, 95, 119, 120])
def test_what_only_a_reset_cures_is_a_fault_until_then(xid: int) -> None:
    standing = Standing()
    standing.note_xid(xid)
    assert standing.fault == f"XID {xid}: {UNFIT[xid]}"
    for said in (SILENT, HEALTHY):  # most drivers say nothing of it afterwards
        standing.note_poll(*said)
        assert standing.xid == xid


def test_a_fault_reads_as_a_person_would_say_it() -> None:
    standing = Standing()
    standing.note_xid(79)
    assert standing.fault == "XID 79: the GPU has fallen off the bus"


@pytest.mark.parametrize("xid", [63, 92, 94, 121, 154, 9999])
def test_what_is_not_known_to_need_a_reset_is_the_drivers_to_judge(xid: int) -> None:
    standing = Standing()
    standing.note_xid(xid)
    assert standing.fault == ""


def test_the_first_error_is_told_and_not_what_follows_from_it() -> None:
    standing = Standing()
    for xid in (31, 74, 79, 45):
        standing.note_xid(xid)
    assert standing.xid == 74


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ((1, False, False, 0), "the driver asks for a reset of the GPU"),
        ((2, False, False, 0), "the driver asks for a reboot of the node"),
        ((77, False, False, 0), "the driver asks for recovery action 77"),
        ((0, True, False, 0), "bad memory waits for a reset to be taken out of use"),
        ((0, False, True, 0), "bad memory could not be taken out of use"),
        ((0, False, False, 3), "uncorrectable memory errors since the last reset: 3"),
        (
            (4, True, False, 1),
            "the driver asks for a reset of the GPU once its jobs have ended; bad memory waits for a reset to be taken out of"
            " use; uncorrectable memory errors since the last reset: 1",
        ),
    ],
)
def test_what_the_driver_says_goes_as_it_came(said: tuple[int, bool, bool, int], fault: str) -> None:
    standing = Standing()
    standing.note_poll(*said)
    assert standing.fault == fault
    standing.note_poll(*HEALTHY)
    assert standing.fault == ""


def test_an_xid_is_over_when_the_remedy_that_the_driver_asked_for_was_applied() -> None:
    standing = Standing()
    standing.note_xid(48)
    standing.note_poll(4, False, False, 1)
    assert standing.fault.startswith("XID 48: an uncorrectable memory error; the driver asks for a reset")
    standing.note_poll(*SILENT)  # it could not be asked: that is no answer
    standing.note_poll(*HEALTHY)
    assert standing.xid == 48
    standing.note_poll(4, False, False, 1)
    standing.note_poll(*HEALTHY)
    assert (standing.xid, standing.fault) == (0, "")

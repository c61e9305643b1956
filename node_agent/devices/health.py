"""Decides when a GPU is unfit. The driver reports its error numbers (XIDs) as they happen, and the rest when asked."""

from collections.abc import Mapping

JOBS_FAULT = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program causes by itself: an illegal access, an endless kernel, being killed. Its GPU is healthy."""

# After NVIDIA's catalogue of XIDs: those whose remedy is a reset of the GPU or of the machine, on every kind of data-center
# GPU that has them. Nothing runs well until then: the next job fails as the last one did, or hangs. Any other XID is no
# fault by itself; but it makes the agent ask the driver about the GPU immediately, and newer drivers know best (a contained
# memory error, 94, costs one program and may ask for a reset; a newer NVLink error, 144 to 150, may be nothing at all).
UNFIT: Mapping[int, str] = {
    46: "the GPU has stopped processing",
    48: "an uncorrectable memory error",
    62: "the GPU's micro-controller has halted",
    64: "bad memory could not be taken out of use",
    74: "an NVLink has failed",
    79: "the GPU has fallen off the bus",
    95: "a memory error that was not contained",
    110: "a security fault",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor has failed",
    136: "an NVLink could not be trained",
    140: "a memory error that was not recovered",
    143: "the GPU could not be initialised",
    158: "the GPU has timed out for good",
}

_NONE = 0
# NVML_GPU_RECOVERY_ACTION_*
_RECOVERY: Mapping[int, str] = {
    1: "the driver asks for a reset of the GPU",
    2: "the driver asks for a reboot of the node",
    3: "the driver asks to end what its peers do over NVLink",
    4: "the driver asks for a reset of the GPU once its jobs have ended",
    5: "the driver asks to recover the IMEX domain",
    6: "the driver asks for a reset of the GPU's bus",
    7: "the driver asks for a reboot of the system",
}


class Standing:
    """The health of one GPU."""

    def __init__(self) -> None:
        self.xid = 0
        """The first XID that made the GPU unfit; 0: none did."""
        self._asked = False
        """Whether the driver has asked for a remedy."""
        self._polled: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        xid = (f"XID {self.xid}: {UNFIT.get(self.xid, 'unfit')}",) if self.xid else ()
        return "; ".join(xid + self._polled)

    def note_xid(self, xid: int) -> None:
        if not self.xid and xid in UNFIT:
            self.xid = xid

    def note_poll(
        self, recovery: int | None, remap_pending: bool | None, remap_failed: bool | None, errors: int | None
    ) -> None:
        """Record what the driver says now, which holds immediately, whether better or worse.

        An XID stays, since most drivers know nothing of it afterwards, unless the driver asked for a remedy and no longer
        does: it was applied.
        """
        if self._asked and recovery == _NONE:
            self.xid = 0
        self._asked = bool(recovery)
        told = (
            (recovery, _RECOVERY.get(recovery or _NONE, f"the driver asks for recovery action {recovery}")),
            (remap_failed, "bad memory could not be taken out of use"),
            (remap_pending, "bad memory waits for a reset to be taken out of use"),
            (errors, f"uncorrectable memory errors since the last reset: {errors}"),
        )
        self._polled = tuple(text for wrong, text in told if wrong)

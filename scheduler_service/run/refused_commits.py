"""Recovery from a commit that a constraint refuses: find the cause and do everything else, so that the leader keeps leading.

A step whose commit is refused is undone. Then its work is tried in parts. Each event is tried alone, and the caller of the one
at fault gets the error. Deadlines that have passed, resumes and the policy's plans are tried in ever smaller groups, until one
is refused alone: it answers no caller, and so its job is set aside. What has no job, or cannot even be set aside, is skipped
for a while.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

from scheduler_service.core.messages import (
    EVENTS_ONLY,
    WHOLE,
    Accepted,
    Event,
    Part,
    Report,
    ReportRefused,
    Request,
    SetAside,
    Step,
    beneficiaries,
)
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.queue_keys import DUE, Deadline
from scheduler_service.core.state.state import State
from scheduler_service.run.engine_queue import Waiting
from scheduler_service.run.ports import CommitRefused

FIRST_PAUSE_US = SECOND
LONGEST_PAUSE_US = 600 * SECOND
"""How long what was refused is left alone: at first, and at most; each time twice as long as before."""
REPORTED = 3
"""How often a report is refused before it is skipped."""
MOST = 100
"""Causes that are looked for in one go; after that, the policy is left alone."""
_POLICY = "the policy"
T = TypeVar("T")

log = logging.getLogger(__name__)


class Tried(NamedTuple):
    step: Step
    refusal: CommitRefused | None
    """None: what the step did is durable, and its callers are answered. Else nothing of it is done, and nobody is told."""


Try = Callable[[Sequence[Waiting], Part, Sequence[Event]], Tried]
"""Takes a step of what callers wait for, and of events that nobody waits for."""


class RefusedCommits:
    """For the engine's thread, which owns the state."""

    def __init__(
        self, state: State, attempt: Try, tell: Callable[[Waiting, CommitRefused], None], now: Callable[[], Micros]
    ) -> None:
        self._state = state
        self._attempt = attempt
        self._tell = tell
        self._now = now
        self._left_alone: dict[Hashable, tuple[Micros, Micros]] = {}
        """Work that is skipped -> until when, and for how long in all."""
        self._looked: Micros = 0
        """The time at which due and skipped work was last determined."""
        self._reports: dict[str, tuple[tuple[str, int], int]] = {}
        """Node -> its boot and the number of the report that was refused last, and how often it was."""

    # ---- what is left alone --------------------------------------------------------------------------------------------

    def part(self) -> Part:
        """Return the part of the work that a step is to do now."""
        if not self._left_alone:
            return WHOLE
        self._looked = self._now()
        return Part(tuple(self._due_work()), tuple(self._waiting()), 0 if self._is_left_alone(_POLICY) else None)

    def soonest_us(self) -> Micros | None:
        """Return the time of the next work that no event triggers."""
        deadlines = self._state.deadlines
        if not self._left_alone:
            return deadlines[0][0] if deadlines else None
        self._looked = now = self._now()
        times = [until for until, _ in self._left_alone.values()]
        times += [next((at for at, *which in deadlines if at > now or not self._is_left_alone(tuple(which))), times[0])]
        return min(times)

    def note_done(self) -> None:
        """Note that all work that was due when last determined has been done."""
        if self._left_alone:
            self._left_alone = {what: until for what, until in self._left_alone.items() if until[0] > self._looked}

    def _is_left_alone(self, what: Hashable) -> bool:
        return what in self._left_alone and self._left_alone[what][0] > self._looked

    def _leave_alone(self, what: Hashable) -> float:
        """Skip this work for a while, and return for how many seconds."""
        pause = min(2 * self._left_alone.get(what, (0, FIRST_PAUSE_US // 2))[1], LONGEST_PAUSE_US)
        self._left_alone[what] = self._now() + pause, pause
        return pause / SECOND

    def _due_work(self) -> list[tuple[Micros, Deadline, tuple[int | str, ...]]]:
        return [due for due in self._state.deadlines if due[0] <= self._looked and not self._is_left_alone(due[1:])]

    def _waiting(self) -> list[int]:
        return [number for number in sorted(self._state.waiting_operations) if not self._is_left_alone(number)]

    # ---- the search ----------------------------------------------------------------------------------------------------

    def serve_apart(self, batch: Sequence[Waiting]) -> None:
        """Does what can be done of a step whose commit was refused. All of the batch are answered."""
        self._looked = self._now()
        for waiting in batch:
            self._serve_alone(waiting)
        self._try_ever_fewer(self._due_work(), lambda some: Part(tuple(some), (), 0), self._blame_deadline)
        self._try_ever_fewer(self._waiting(), lambda some: Part((), tuple(some), 0), self._blame_resume)
        self._serve_plans()
        self.note_done()

    def _serve_alone(self, waiting: Waiting) -> None:
        """A request that cannot be done is refused, also if what the policy would do for its job cannot. For what else the
        policy would do, nobody who asked for something is to blame."""
        event = waiting.event
        if isinstance(event, Request) and not self._is_left_alone(_POLICY):
            tried = self._attempt([waiting], Part((), ()), ())
            if tried.refusal is None:
                return
            reply = tried.step.replies[0]
            job_id = reply.job_id if isinstance(reply, Accepted) else 0
            if any(job_id in beneficiaries(plan) for plan in tried.step.enacted):
                self._refuse(waiting, tried.refusal)
                return
        refusal = self._attempt([waiting], EVENTS_ONLY, ()).refusal
        if refusal is not None and not (isinstance(event, Report) and self._skip(waiting, event, refusal)):
            self._refuse(waiting, refusal)

    def _skip(self, waiting: Waiting, report: Report, refusal: CommitRefused) -> bool:
        """An agent sends a report that was refused again, and the others after it. If it is refused whenever it comes, it is
        skipped, so that these are taken. Returns whether it is."""
        at = report.boot_id, report.sequence
        known, times = self._reports.get(report.node, (at, 0))
        times = times + 1 if known == at else 1
        self._reports[report.node] = at, times
        if times < REPORTED:
            return False
        why = _why_refused(f"what its node reported ({type(report).__name__})", refusal)
        skipped = self._attempt([Waiting(ReportRefused(report, why), waiting.outcome)], EVENTS_ONLY, ()).refusal is None
        if skipped:
            log.error(
                "commit refused, reference %s: %s; report %d of node %s is skipped, and job %d is set aside: %s",
                *(refusal.reference, refusal, report.sequence, report.node, report.key.job_id, report),
            )
        return skipped

    def _refuse(self, waiting: Waiting, refusal: CommitRefused) -> None:
        log.error(
            "commit refused, reference %s: %s; %s", refusal.reference, refusal, f"refused {_describe_event(waiting.event)}"
        )
        self._tell(waiting, refusal)

    def _try_ever_fewer(
        self, things: Sequence[T], part_of: Callable[[Sequence[T]], Part], blame: Callable[[T, CommitRefused], None]
    ) -> None:
        at, size = 0, len(things)
        while some := things[at : at + size]:
            refusal = self._attempt((), part_of(some), ()).refusal
            if refusal is None:
                at, size = at + size, 2 * size
            elif size > 1:
                size = max(1, len(some) // 2)
            else:
                blame(some[0], refusal)
                at += 1

    def _serve_plans(self) -> None:
        """Find the plan at fault. The policy proposes plans again in each step, so a plan is known by how many precede it."""
        most: int | None = None
        for _ in range(MOST):
            while not self._is_left_alone(_POLICY):
                step, refusal = self._attempt((), Part((), (), most), ())
                enacted = step.enacted
                if refusal is not None and len(enacted) > 1:
                    most = len(enacted) // 2
                elif refusal is not None:
                    jobs = beneficiaries(enacted[0]) if enacted else ()
                    if not self._set_aside(jobs, "a plan of the policy", refusal):
                        self._leave_policy_alone(refusal)
                    break
                elif most is None or len(enacted) < most:
                    return
                else:
                    most *= 2
            else:
                return
        self._leave_policy_alone(None)

    def _leave_policy_alone(self, refusal: CommitRefused | None) -> None:
        pause = self._leave_alone(_POLICY)
        why = "too many plans of the policy" if refusal is None else f"reference {refusal.reference}: {refusal}"
        log.error("commit refused, %s; no job is started or moved for %g s", why, pause)

    # ---- what is nobody's request --------------------------------------------------------------------------------------

    def _blame_deadline(self, due: tuple[Micros, Deadline, tuple[int | str, ...]], refusal: CommitRefused) -> None:
        _, kind, key = due
        what = f"the deadline {kind.name} of {key}"
        self._set_aside(self._jobs_of(kind, key), what, refusal)
        if due in self._state.deadlines:
            pause = self._leave_alone(due[1:])
            log.error("commit refused, reference %s: %s; %s is left alone for %g s", refusal.reference, refusal, what, pause)

    def _blame_resume(self, number: int, refusal: CommitRefused) -> None:
        operation = self._state.operations.rows.get(number)
        self._set_aside((operation.job_id,) if operation else (), "the resume of its parked run", refusal)
        self._leave_alone(number)

    def _jobs_of(self, kind: Deadline, key: Any) -> Collection[int]:
        state = self._state
        if kind in DUE or kind in (Deadline.GUARD, Deadline.STOP_OVERDUE):
            return (key[0],)
        match kind:
            case Deadline.EARMARK if row := state.earmarks.rows.get(key[0]):
                return (row.job_id,)
            case Deadline.OPERATION if operation := state.operations.rows.get(key[0]):
                return (operation.job_id,)
            case Deadline.MEMO if memo := state.memos.rows.get(key):
                return (memo.job_id,) if memo.job_id else ()
        return ()

    def _set_aside(self, jobs: Collection[int], what: str, refusal: CommitRefused) -> bool:
        """Whether a job is set aside now that was not."""
        rows, reference, found = self._state.jobs.rows, refusal.reference, False
        for job_id in jobs:
            if job_id not in rows or rows[job_id].set_aside:
                continue
            if self._attempt((), EVENTS_ONLY, (SetAside(job_id, _why_refused(what, refusal)),)).refusal is None:
                said = f"job {job_id} is set aside, since {what} cannot be stored; ebb release {job_id} has it tried again"
                log.error("commit refused, reference %s: %s; %s", reference, refusal, said)
                found = True
        return found


def _why_refused(what: str, refusal: CommitRefused) -> str:
    rule = f" ({refusal.constraint})" if refusal.constraint else ""
    return f"the database refused {what}{rule}; it is {refusal.reference} in the scheduler's log"


def _describe_event(event: Event) -> str:
    """The event, for people; without what may be secret."""
    about = {name: getattr(event, name) for name in ("user", "job_id", "node", "name", "key") if hasattr(event, name)}
    return type(event).__name__ + "".join(f" {name}={value}" for name, value in about.items())

"""What `Client` and `AsyncClient` change of jobs that are submitted."""

from collections.abc import Sequence

from client_sdk._base import Asking, AskingAsync
from client_sdk._requests import jobs
from client_sdk._values.job_options import Time
from client_sdk._values.options import job_id
from client_sdk._values.parts import Sharing
from client_sdk.models import Dependency, Job, JobAtRisk


class JobChanges(Asking):
    def cancel(self, job: Job | int) -> Job:
        """Asks for a job's end. A queued job ends at once, a running one gets its grace period. Safe to repeat.

        Raises NotFound where there is no such job.
        """
        return self._ask(jobs.OfJob("Cancel", job_id(job)))

    def suspend(self, job: Job | int, *, park: bool = False, park_only: bool = False) -> Job:
        """Has a running job save its work and leave until it is resumed; its devices become free.

        `park` has its run leave its devices and stay in the memory of its node: it resumes there in a moment, without a
        checkpoint, as soon as its devices are idle. A run that cannot be parked saves its work and leaves. With `park_only` it
        goes on instead; FailedPrecondition (CANNOT_PARK) says at once that it cannot be parked, if that is known.

        Safe to repeat. This, `resume`, `hold`, `release` and `requeue` raise NotFound where there is no such job, and
        FailedPrecondition where its state forbids it (WRONG_STATE), or where it has ended (JOB_ENDED).
        """
        return self._ask(jobs.Suspend(job_id(job), park, park_only))

    def resume(self, job: Job | int) -> Job:
        """Puts a suspended job back into its queue; it goes on from its checkpoint. One that is parked goes on where it is, as
        soon as its devices are idle."""
        return self._ask(jobs.OfJob("Resume", job_id(job)))

    def hold(self, job: Job | int) -> Job:
        """Keeps a queued job from starting until it is released."""
        return self._ask(jobs.OfJob("Hold", job_id(job)))

    def release(self, job: Job | int) -> Job:
        """Lets a held job stand in its queue again."""
        return self._ask(jobs.OfJob("Release", job_id(job)))

    def requeue(self, job: Job | int) -> Job:
        """Has a running job save its work, leave and queue again; one that waits for its next retry is tried at once."""
        return self._ask(jobs.Requeue(job_id(job), self._ask(jobs.OfJob("Get", job_id(job))).run))

    def resize(self, job: Job | int, tasks: int) -> Job:
        """Changes the number of tasks of an elastic job. One that runs saves its work, leaves, and starts again with that many
        tasks when these fit; `resize` to the old number takes it back.

        Safe to repeat. Raises NotFound where there is no such job, and FailedPrecondition where the job is not elastic
        (NOT_ELASTIC), the number is out of its bounds (TASKS_OUT_OF_BOUNDS) or could never run, or the job is ending.
        """
        return self._ask(jobs.Resize(job_id(job), tasks))

    def migrate(self, job: Job | int, *nodes: str, devices: Sequence[Sequence[int]] = ()) -> Job:
        """Has a running job go on at another node: at one for all of its tasks, or at one for each, in the order of ranks. The
        node makes itself ready; then the job saves its work, stops, and begins there. `devices` names those of each node.

        Safe to repeat. Raises InvalidArgument for no node, or for devices of another number of nodes; NotFound where there is
        no such job or node; and FailedPrecondition where the job does not run, the node has no room (NO_ROOM_THERE), or the job
        cannot go there (CANNOT_MIGRATE).
        """
        return self._ask(jobs.migrate(job_id(job), nodes, devices))

    def lost_by_suspend(self, job: Job | int, *, park: bool = False, park_only: bool = False) -> tuple[JobAtRisk, ...]:
        """The job, if `suspend` would lose what it has done, because nothing saves it. Changes nothing, and raises what
        `suspend` raises. It may take some seconds until it is sure that a job is at risk; so do the two that follow."""
        return self._ask(jobs.Risks(jobs.Suspend(job_id(job), park, park_only)))

    def lost_by_requeue(self, job: Job | int) -> tuple[JobAtRisk, ...]:
        """As `lost_by_suspend`, for `requeue`."""
        return self._ask(jobs.Risks(jobs.Requeue(job_id(job), 0)))

    def lost_by_migrate(self, job: Job | int, *nodes: str, devices: Sequence[Sequence[int]] = ()) -> tuple[JobAtRisk, ...]:
        """As `lost_by_suspend`, for `migrate`."""
        return self._ask(jobs.Risks(jobs.migrate(job_id(job), nodes, devices)))

    def update(
        self,
        job: Job | int,
        *,
        priority: int | None = None,
        time_limit: Time | None = None,
        dependencies: Sequence[Dependency] | None = None,
        grace: Time | None = None,
        skip_steps: int | None = None,
        share: Sharing = None,
    ) -> Job:
        """Changes a live job; what is left out stays. A time limit of 0 takes it away.

        `grace` counts for every stop from then on; with "auto", the scheduler takes it from how long the job's saves last.

        `skip_steps` has the next launches count so many steps, from the first one of the job on, without taking them; 0 takes
        it back. What is skipped is not trained: it is for a job that is replayed.

        `share` is how a job that asks for a part of a device holds it: "exclusive", "packed" or "sliced". It counts from the
        next run on; a job that shares its device with nobody has it alone at once.

        `dependencies` take the place of all that there were, for a job that has never started. Raises InvalidArgument for
        what is no priority, time or dependency, NotFound for a job that is not there, and FailedPrecondition where the job's
        state forbids it, or where the dependencies could never hold or wait for each other.
        """
        return self._ask(jobs.update(job, priority, time_limit, dependencies, grace, skip_steps, share))


class AsyncJobChanges(AskingAsync):
    async def cancel(self, job: Job | int) -> Job:
        """As `Client.cancel`."""
        return await self._ask(jobs.OfJob("Cancel", job_id(job)))

    async def suspend(self, job: Job | int, *, park: bool = False, park_only: bool = False) -> Job:
        """As `Client.suspend`."""
        return await self._ask(jobs.Suspend(job_id(job), park, park_only))

    async def resume(self, job: Job | int) -> Job:
        """As `Client.resume`."""
        return await self._ask(jobs.OfJob("Resume", job_id(job)))

    async def hold(self, job: Job | int) -> Job:
        """As `Client.hold`."""
        return await self._ask(jobs.OfJob("Hold", job_id(job)))

    async def release(self, job: Job | int) -> Job:
        """As `Client.release`."""
        return await self._ask(jobs.OfJob("Release", job_id(job)))

    async def requeue(self, job: Job | int) -> Job:
        """As `Client.requeue`."""
        return await self._ask(jobs.Requeue(job_id(job), (await self._ask(jobs.OfJob("Get", job_id(job)))).run))

    async def resize(self, job: Job | int, tasks: int) -> Job:
        """As `Client.resize`."""
        return await self._ask(jobs.Resize(job_id(job), tasks))

    async def migrate(self, job: Job | int, *nodes: str, devices: Sequence[Sequence[int]] = ()) -> Job:
        """As `Client.migrate`."""
        return await self._ask(jobs.migrate(job_id(job), nodes, devices))

    async def lost_by_suspend(self, job: Job | int, *, park: bool = False, park_only: bool = False) -> tuple[JobAtRisk, ...]:
        """As `Client.lost_by_suspend`."""
        return await self._ask(jobs.Risks(jobs.Suspend(job_id(job), park, park_only)))

    async def lost_by_requeue(self, job: Job | int) -> tuple[JobAtRisk, ...]:
        """As `Client.lost_by_requeue`."""
        return await self._ask(jobs.Risks(jobs.Requeue(job_id(job), 0)))

    async def lost_by_migrate(
        self, job: Job | int, *nodes: str, devices: Sequence[Sequence[int]] = ()
    ) -> tuple[JobAtRisk, ...]:
        """As `Client.lost_by_migrate`."""
        return await self._ask(jobs.Risks(jobs.migrate(job_id(job), nodes, devices)))

    async def update(
        self,
        job: Job | int,
        *,
        priority: int | None = None,
        time_limit: Time | None = None,
        dependencies: Sequence[Dependency] | None = None,
        grace: Time | None = None,
        skip_steps: int | None = None,
        share: Sharing = None,
    ) -> Job:
        """As `Client.update`."""
        return await self._ask(jobs.update(job, priority, time_limit, dependencies, grace, skip_steps, share))

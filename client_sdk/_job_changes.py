"""The calls of `Client` and `AsyncClient` that change submitted jobs."""

from collections.abc import Sequence

from client_sdk._base import Asking, AskingAsync
from client_sdk._requests import jobs
from client_sdk._values.device_parts import Sharing
from client_sdk._values.job_options import Time
from client_sdk._values.options import job_id
from client_sdk.models import Dependency, Job, JobAtRisk


class JobChanges(Asking):
    def cancel(self, job: Job | int) -> Job:
        """Cancels a job. A queued job ends immediately, a running one gets its grace period. Safe to repeat.

        Raises NotFound if the job does not exist.
        """
        return self._ask(jobs.OfJob("Cancel", job_id(job)))

    def suspend(self, job: Job | int, *, park: bool = False, park_only: bool = False) -> Job:
        """Suspends a running job: it saves its work and stops until it is resumed; its devices become free.

        With `park`, its run releases its devices and stays in the memory of its node: it resumes there within moments, without
        a checkpoint, as soon as its devices are idle. A run that cannot be parked saves its work and stops, or with `park_only`
        continues; FailedPrecondition (CANNOT_PARK) is raised immediately if it is already known that it cannot be parked.

        Safe to repeat. This, `resume`, `hold`, `release` and `requeue` raise NotFound if the job does not exist, and
        FailedPrecondition if its state does not allow the call (WRONG_STATE) or if it has ended (JOB_ENDED).
        """
        return self._ask(jobs.Suspend(job_id(job), park, park_only))

    def resume(self, job: Job | int) -> Job:
        """Puts a suspended job back into its queue; it continues from its checkpoint. A parked job resumes in place as soon as
        its devices are idle."""
        return self._ask(jobs.OfJob("Resume", job_id(job)))

    def hold(self, job: Job | int) -> Job:
        """Keeps a queued job from starting until it is released."""
        return self._ask(jobs.OfJob("Hold", job_id(job)))

    def release(self, job: Job | int) -> Job:
        """Puts a held job back into its queue."""
        return self._ask(jobs.OfJob("Release", job_id(job)))

    def requeue(self, job: Job | int) -> Job:
        """Requeues a running job after it saves its work and stops. A job that waits for a retry is retried immediately."""
        return self._ask(jobs.Requeue(job_id(job), self._ask(jobs.OfJob("Get", job_id(job))).run))

    def resize(self, job: Job | int, tasks: int) -> Job:
        """Changes the number of tasks of an elastic job. A running job saves its work, stops, and starts again with this number
        of tasks once they fit; `resize` to the old number undoes the change.

        Safe to repeat. Raises NotFound if the job does not exist, and FailedPrecondition if the job is not elastic
        (NOT_ELASTIC), the number is out of its bounds (TASKS_OUT_OF_BOUNDS) or could never run, or the job is ending.
        """
        return self._ask(jobs.Resize(job_id(job), tasks))

    def migrate(self, job: Job | int, *nodes: str, devices: Sequence[Sequence[int]] = ()) -> Job:
        """Moves a running job to another node: one for all of its tasks, or one for each, in the order of ranks. The node
        prepares; then the job saves its work, stops, and starts there. `devices` lists the devices to use on each node.

        Safe to repeat. Raises InvalidArgument without a node, or if `devices` and `nodes` differ in length; NotFound if the job
        or a node does not exist; and FailedPrecondition if the job is not running, the node has no room (NO_ROOM_THERE), or the
        job cannot move there (CANNOT_MIGRATE).
        """
        return self._ask(jobs.migrate(job_id(job), nodes, devices))

    def lost_by_suspend(self, job: Job | int, *, park: bool = False, park_only: bool = False) -> tuple[JobAtRisk, ...]:
        """The job, if `suspend` would lose its work because nothing saves it. Changes nothing, and raises what `suspend`
        raises. Like the next two calls, it may take some seconds to determine that a job is at risk."""
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
        """Changes a live job; omitted arguments change nothing. A time limit of 0 removes the limit.

        `grace` applies to every later stop; with "auto", the scheduler derives it from how long the job's saves take.

        With `skip_steps`, the next launches count this number of steps, from the job's first one, without executing them; 0
        cancels the skip. Skipped steps are not trained: this is for a job that is replayed.

        `share` is how a job that requests a part of a device shares it: "exclusive", "packed" or "sliced". It applies from the
        next run on; with "exclusive", a job that is alone on its device gets it exclusively immediately.

        `dependencies` replace all existing dependencies, for a job that has never started. Raises InvalidArgument for an
        invalid value, NotFound for a job that does not exist, and FailedPrecondition if the job's state does not allow the
        change, or if the dependencies could never be met or form a cycle.
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

"""This job, for its training script: what to save is registered once, and a loop over the data does the rest."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from client_sdk.training._data import random_state, torch_loader
from client_sdk.training._data.elastic import ElasticPass, Share, scale_rates, share_in
from client_sdk.training._data.position import Pass
from client_sdk.training._parked import WhileParked
from client_sdk.training._saving import OWN, Options, Saving
from client_sdk.training._storing.object_states import Access, access, put_back
from client_sdk.training._storing.periodic_saves import OnSaveError
from client_sdk.training._storing.sharded import is_sharded
from client_sdk.training._storing.sharded import load as load_shards
from client_sdk.training.step_counter import steps, steps_to_skip

T = TypeVar("T")
_log = logging.getLogger("client_sdk.training")


class Job:
    """Saves what a training script registers when the scheduler preempts the job, and restores it in the next run.

        from client_sdk.training import job

        job.checkpointable(model=model, optimizer=optimizer, every_steps=1000)
        for epoch in job.epochs(10):
            for batch in job.steps(loader):
                ...

    A process has one, `client_sdk.training.job`. Its methods belong to the main thread.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._saving: Saving | None = None
        self._registered: dict[str, Access] = {}
        self._saved: dict[str, Any] = {}
        """Parts of the checkpoint from which this run resumes that are not registered yet."""
        self._resumed = False
        self._complete = False
        self._resume: dict[str, Any] | None = None
        """The place in the data at which this run resumes, until the loop begins."""
        self._pass: Pass | ElasticPass | None = None
        self._total_epochs: int | None = None
        """Inside `epochs`: the number of epochs."""
        self._epoch = 0
        self._step = 0
        self._share: Share | None = None
        """This task's share of each step, for an elastic job."""
        self._seed = 0
        self._things: dict[str, Any] = {}
        """Registered parts of which each rank writes its shards."""
        self._grown = 1.0
        """The size of a step relative to that of the checkpoint from which this run resumes."""
        self._ends_step = True

    def checkpointable(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 2,
        keep_every: int | None = None,
        background: bool = True,
        directory: str | os.PathLike[str] | None = None,
        ranks: Iterable[int] | None = None,
        elastic: bool | None = None,
        micro_batches: int | None = None,
        keep_batch: bool = True,
        seed: int = 0,
        sharded: bool = False,
        on_save_error: OnSaveError = "warn",
        **parts: Any,
    ) -> None:
        """Registers what to save by name, and restores it from the newest checkpoint if there is one.

        Each part is an object with `state_dict` and `load_state_dict` (a model, an optimizer, a scheduler, a gradient
        scaler), a tensor, an array, a random generator, a dict, a list, another object that `pickle` can save, or a pair of
        callables (get, put). The global random generators and the position in the data are always saved. A DataLoader may be
        named but has no state to save: `steps` tracks the position in it.

        Checkpoints are written when a stop is requested, and every `every_steps` steps or `every_seconds` seconds. With
        `background`, the latter are copied in host memory, which must hold one copy, and a thread writes them. The last `keep`
        checkpoints are kept, and so are the folders of steps that are a multiple of `keep_every`. `directory` and `ranks` are
        as for `Checkpointer`.

        With `elastic`, another number of tasks may resume: the parts are the same in all tasks, rank 0 writes them, and `steps`
        distributes the data. By default a job is elastic if it was submitted with --max-tasks. A step has `micro_batches`
        batches of the loader, over all tasks together: by default the job's maximum number of tasks. With `keep_batch=False`
        it has `micro_batches` for each task (by default 1), so that a step grows with the number of tasks. The order of the
        data follows from `seed`.

        If a periodic save fails, for example because the disk is full, a warning is logged, training continues, and the save is
        retried after the next step. With `on_save_error="raise"`, training ends.

        With `sharded`, a job is elastic, and each rank writes and reads its own shards of modules and optimizers with
        torch.distributed.checkpoint, in the foreground. The process group must be initialized before.

        A later call registers more parts and takes no options. Raises TypeError for a part that cannot be restored in place,
        ValueError for an invalid option or name, and CheckpointError if checkpoints exist but none can be used.
        """
        chosen = None if ranks is None else tuple(ranks)
        shares = elastic, micro_batches, keep_batch, seed, sharded, on_save_error
        options = Options(every_steps, every_seconds, keep, keep_every, background, directory, chosen, *shares)
        if self._complete:
            self._require_saving()
        if self._saving is not None and options != Options():
            raise ValueError("the options of job.checkpointable belong to its first call; later calls register more parts")
        if OWN in parts:
            raise ValueError(f"{OWN}= names the part that keeps the place in the data: choose another name")
        if twice := [name for name in parts if name in self._registered]:
            raise ValueError(f"{twice[0]}= is registered already: choose another name for the second object")
        found = {name: access(name, part) for name, part in parts.items() if not torch_loader.is_loader(part)}
        if self._saving is None:
            self._open(options)
        self._registered |= found
        assert self._saving is not None
        if self._saving.sharded:
            self._load_shards({name: part for name, part in parts.items() if is_sharded(part)})
            found = {name: one for name, one in found.items() if name not in self._things}
        for name, one in found.items():
            if name in self._saved:
                self._restore(name, one)
            elif self._resumed:
                _log.warning("the checkpoint has no part %r: it begins with its initial value", name)
        if self._resume is not None and self._share is None:  # what was built above may have drawn from the generators
            random_state.restore(self._resume["random"])

    def _load_shards(self, things: dict[str, Any]) -> None:
        """Registers modules and optimizers of which each rank has shards, and restores them."""
        assert self._saving is not None
        self._things |= things
        if things and self._saving.folder is not None:
            load_shards(self._saving.folder, things, self._things)

    def _restore(self, name: str, part: Access) -> None:
        state = self._saved.pop(name)
        put_back(name, part, state, self._step)

    def _open(self, options: Options) -> None:
        environment = os.environ if self._environment is None else self._environment
        self._saving = Saving(options, environment)
        own: dict[str, Any] = {}
        if (saved := self._saving.load()) is not None:
            own = saved.pop(OWN)
            self._saved, self._resumed = saved, True
            self._step, self._epoch, self._resume = own["step"], own["epoch"], own["pass"]
        if self._saving.elastic:
            self._seed = own.get("seed", options.seed)
            self._share = share_in(environment, options.micro_batches, options.keep_batch, own.get("micro_batches"))
            self._grown = self._share.micro_batches / own.get("micro_batches", self._share.micro_batches)

    @property
    def step(self) -> int:
        """Steps that are done, over all runs."""
        return self._step

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or that comes next, from 0."""
        return self._epoch

    @property
    def batch(self) -> int:
        """Batches of this epoch that are done, over all runs."""
        if self._pass is not None:
            return self._pass.consumed
        return 0 if self._resume is None else int(self._resume["consumed"])

    @property
    def world_size(self) -> int:
        """The number of tasks of this run."""
        return int((os.environ if self._environment is None else self._environment).get("WORLD_SIZE") or 1)

    @property
    def accumulate(self) -> int:
        """The number of this task's batches in each step of an elastic job. Otherwise 1."""
        return 1 if self._share is None else self._share.accumulate

    @property
    def ends_step(self) -> bool:
        """Whether the current batch is this task's last one of its step, after which the loop calls `optimizer.step`."""
        return self._ends_step

    @property
    def loss_scale(self) -> float:
        """The factor for the mean loss of each batch before `backward`, in an elastic job: the gradient, which
        DistributedDataParallel averages over the tasks, is then that of the mean loss over the step. Otherwise 1."""
        return 1.0 if self._share is None else self._share.loss_scale

    def scale_lr(self, *things: Any, rule: str = "linear") -> float:
        """Scales the learning rates of optimizers, and of schedulers with `base_lrs`, to the change in the size of a step since
        the checkpoint (`keep_batch=False`). Call it once, after they are registered. Returns the factor.

        `rule` is "linear" (Goyal et al., 2017) or "sqrt", the square root. Raises ValueError for another.
        """
        if rule not in ("linear", "sqrt"):
            raise ValueError(f'rule={rule!r} is unknown; it is "linear" or "sqrt"')
        factor = self._grown if rule == "linear" else self._grown**0.5
        scale_rates(things, factor)
        return factor

    def epochs(self, n: int) -> Iterator[int]:
        """Yields the epochs that are not complete, up to `n` of them over all runs. After the last one, the job is complete."""
        self._require_saving()
        self._total_epochs = n
        try:
            while self._epoch < n:
                yield self._epoch
                self._drop_unregistered()
                self._epoch, self._pass, self._resume = self._epoch + 1, None, None
        finally:
            self._total_epochs = None
        self.finish()

    def steps(self, loader: Iterable[T], total: int | None = None, *, accumulate: int = 1) -> Iterator[T]:
        """Yields the batches of one epoch that are not done. Each is a step, and ends when the loop asks for the next one.

        Between two steps the program saves, if a save is due, and stops, if a stop is asked for: it saves, tells the scheduler,
        and exits with OBEYED. With `accumulate` it does so only when a multiple of that many batches of the epoch is done: say
        over how many batches the loop accumulates gradients, because gradients are not saved. `total` is the number of steps
        of the whole job; by default it follows from `epochs`.

        In an elastic job, it yields this task's batches, and a step is complete with the last one that `ends_step`.

        Without `epochs`, each call is an epoch. Raises RuntimeError for a second loop in an epoch.
        """
        saving = self._require_saving()
        self._drop_unregistered()
        if accumulate < 1:
            raise ValueError(f"accumulate={accumulate!r} must be at least 1")
        in_epochs = self._total_epochs is not None
        if in_epochs and self._pass is not None:
            raise RuntimeError("an epoch has one loop over job.steps: use a plain loop for other data, as for a validation")
        share, resume, self._resume = self._share, self._resume, None
        current: Pass | ElasticPass
        batches: Iterator[tuple[T, bool]]
        if share is None:
            current = Pass(loader, self._epoch, resume)
            batches, length, of_step = ((batch, True) for batch in current), torch_loader.length(loader), 1
        else:
            current = ElasticPass(loader, self._epoch, self._seed, share, 0 if resume is None else resume["consumed"])
            batches, length, of_step = iter(current), current.steps, share.micro_batches
        self._pass = current
        if total is None and self._total_epochs is not None and length is not None:
            total = self._total_epochs * length
        counter = steps(total, done=self._step)
        counter._new_loop()
        saving.begin_loop()
        parked = WhileParked(saving, lambda: self._step, self._parts)
        skip = steps_to_skip()
        try:
            for batch, self._ends_step in batches:
                if self._step >= skip:
                    yield batch
                if not self._ends_step:
                    continue
                current.consumed += of_step
                self._step += 1
                complete = current.consumed % accumulate == 0
                parked.can_save(complete)
                counter.advance()
                if complete:
                    saving.at_boundary(self._step, self._parts)
                parked.can_save(False)
        finally:
            parked.can_save(False)
            if not in_epochs:
                self._epoch, self._pass = self._epoch + 1, None

    def finish(self) -> None:
        """Says that the work is complete: a stop that comes later has nothing to save. `epochs` calls it at its end.

        With `on_save_error="raise"` it raises CheckpointError if the last save has failed.
        """
        if not self._complete:
            self._require_saving().finish()
            self._complete = True

    def _require_saving(self) -> Saving:
        if self._complete:
            raise RuntimeError(
                "the job is complete, and a script has one: loop over the epochs of all its phases in one job.epochs(n), or "
                "run each training in a script of its own"
            )
        if self._saving is None:
            raise RuntimeError("call job.checkpointable(...) first: it says what is saved")
        return self._saving

    def _drop_unregistered(self) -> None:
        for name in self._saved:
            _log.warning("the checkpoint has a part %r that this program does not register: it is dropped", name)
        self._saved = {}

    def _parts(self) -> dict[str, Any]:
        """Return the parts to save, without copying them."""
        at = None if self._pass is None else self._pass.state()
        own = {"step": self._step, "epoch": self._epoch, "pass": at}
        if self._share is not None:
            own |= {"micro_batches": self._share.micro_batches, "seed": self._seed}
        states = {name: one.get() for name, one in self._registered.items() if name not in self._things}
        return {OWN: own} | states | self._things


job = Job()
"""This job."""

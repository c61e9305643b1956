"""The workload of HiveD's experiment on a small cluster (section 5.2.1): a random sample of the jobs, with models assigned.

The draws for a tenant's jobs do not depend on the other tenants.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from random import Random

from scheduler_service.sim.jobs import SimJob

MODELS: dict[str, tuple[float, tuple[str, ...]]] = {
    "nlp": (0.6, ("bi-att-flow", "language-model", "gnmt", "transformer")),
    "speech": (0.3, ("wavenet", "deepspeech")),
    "cv": (0.1, ("inception-v3", "resnet-50", "alexnet", "vgg16", "vgg16")),
}
"""Table 3 by the names of `sharing.kinds`, with each domain's share (6:3:1). VGG19 is VGG16: neither paper prints its speed."""


def sample_jobs(jobs: Iterable[SimJob], part: float, owned: Mapping[str, int], seed: int) -> Iterator[SimJob]:
    """Yield this part of the jobs, without those that are wider than the GPUs that their tenant owns."""
    draw = _for_each_tenant(seed, "sample")
    for job in jobs:
        if draw(job.vc).random() < part and job.spec.demand.devices <= owned.get(job.vc, 0):
            yield job


def of_models(jobs: Iterable[SimJob], seed: int) -> Iterator[SimJob]:
    """Yield the jobs with models, equally likely within a domain."""
    draw = _for_each_tenant(seed, "models")
    domains, shares = tuple(MODELS), tuple(share for share, _ in MODELS.values())
    for job in jobs:
        (domain,) = draw(job.vc).choices(domains, shares)
        yield job._replace(kind=draw(job.vc).choice(MODELS[domain][1]))


def _for_each_tenant(seed: int, what: str) -> Callable[[str], Random]:
    return cache(lambda name: Random(f"{seed}:{name}:{what}"))

"""Who has which share of the cluster, where the policy goes by usage. The engine's thread answers, between two steps."""

from ebb.v1 import scheduler_pb2 as pb

from scheduler_service.core.engine import Policy
from scheduler_service.core.errors import FailedPrecondition, no_such_vc, no_virtual_clusters
from scheduler_service.core.messages import Rng
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.shares import Share, Shares
from scheduler_service.policies.stages import Stages
from scheduler_service.rpc.backend import Leading
from scheduler_service.rpc.convert.values import duration_out, message_of, time_out

MOST_SHARES = 5000
"""In an answer: with names of the greatest lengths these are 2 MB."""


async def shares(leading: Leading, vc: str) -> pb.SharesResponse:
    """Raises NotFound for a virtual cluster that does not exist, and FailedPrecondition if there is nothing to be told."""
    stages = leading.stages

    def question(state: State, now: Micros, _rng: Rng, _policy: Policy) -> Shares:
        return _shares(state, vc, now, stages)

    return _shares_out(await leading.service.ask(question))


def _shares(state: State, vc: str, now: Micros, site: Stages) -> Shares:
    if vc and state.pools is None:
        raise no_virtual_clusters()
    if vc and vc not in state.vc_ids:
        raise no_such_vc(vc, state.vc_ids)
    if not vc and state.pools is not None:
        known = ", ".join(sorted(state.vc_ids)) or "none yet"
        raise FailedPrecondition("NO_VC", f"say of which virtual cluster (--vc, or EBB_VC); there are: {known}")
    policy = state.vcs.rows[state.vc_ids[vc]].policy if vc else None
    stages = site if policy is None else stages_within(policy)
    if stages.shares is None:
        raise _no_shares("" if policy is None else f"of {vc}, {policy.name},", vc)
    return stages.shares(state, vc, now)


def _no_shares(policy: str, vc: str) -> FailedPrecondition:
    remedy = f"`ebb vc update {vc} --policy fair`" if vc else "`policy: fair` in the scheduler's configuration"
    said = " ".join(filter(None, ("the policy", policy, "does not go by usage")))
    return FailedPrecondition("NO_SHARES", f"{said}, so that there are no shares; {remedy} makes it fair")


def _shares_out(found: Shares) -> pb.SharesResponse:
    shown = found.shares[:MOST_SHARES]
    return pb.SharesResponse(
        time=time_out(found.at_us),
        half_life=duration_out(found.half_life_us),
        shares=[_share_out(share) for share in shown],
        more_shares=len(found.shares) - len(shown),
        queued=found.queued,
        next_job_ids=found.next_jobs,
    )


def _share_out(share: Share) -> pb.Share:
    return message_of(pb.Share, share, device_hours=share.device_seconds / 3600)

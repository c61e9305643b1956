"""Jobs, their tasks, how close to each other their devices are, and their stories, from what readers see to ebb.v1."""

from collections.abc import Iterator, Mapping

from ebb.v1 import job_pb2 as pb

from scheduler_service.core.cells.closeness import NODE, closeness, device_tree
from scheduler_service.core.model import CandidateScore, Decision, Job, JobEvent, Node, NodeDevice, Run
from scheduler_service.core.model.launch_time import execution_time_parts
from scheduler_service.core.model.profiles import Profile
from scheduler_service.core.model.values import WHOLE, Mask, mask_of
from scheduler_service.core.operations.estimators import combine_estimates
from scheduler_service.core.state.queue_keys import ACTIVE
from scheduler_service.rpc.convert.runs import operation_out, save_out
from scheduler_service.rpc.convert.specs import spec_out
from scheduler_service.rpc.convert.values import Nodes, duration_out, message_of, name_of, time_out, vector_out
from scheduler_service.rpc.redaction import Sight
from scheduler_service.run.read_model import JobView, View


def job_out(view: JobView, nodes: Nodes, sight: Sight) -> pb.Job:
    """Return the job as a caller with this sight may see it."""
    job, runs, operation = view
    spec = spec_out(job.spec)
    sight.redact(spec, job)
    out = pb.Job(  # every answer to a user has one: spelt out, it takes two thirds of the time that `message_of` would
        id=job.id,
        spec=spec,
        user=job.user,
        state=int(job.state),  # type: ignore[arg-type]
        reason=int(job.reason),  # type: ignore[arg-type]
        reason_detail=job.detail,
        cause_job_id=job.cause_job,
        run=job.run,
        submit_time=time_out(job.submitted_us),
        start_time=time_out(job.started_us),
        end_time=time_out(job.ended_us),
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        preempted_for_trial=job.preempted_for_trial,
        cancel_requested=job.cancel_requested,
        priority=job.priority,
        time_limit=duration_out(job.time_limit_us) if job.time_limit_us else None,
        run_time=duration_out(job.ran_us) if job.ran_us else None,
        held=job.held,
        set_aside=job.set_aside,
        suspend_requested=job.suspend_requested,
        retries=job.retries,
        eligible_time=time_out(job.eligible_us),
        array_job_id=job.array_job,
        array_index=job.array_index,
        configuration=job.configuration,
        resize_to=job.resize_to,
        sampling=job.sampling is not None,
        grace_follows=job.grace_follows,
        skip_steps=job.skip_steps,
        grace_wanted=duration_out(job.grace_wanted_us) if job.grace_wanted_us else None,
    )
    if job.elements is None:
        executed_us, since_us, part_ppm = execution_time_parts(runs)
        out.executed_time.CopyFrom(duration_out(job.ran_us + executed_us))
        if (since := time_out(since_us)) is not None:
            out.executing_since.CopyFrom(since)
            out.executing_part_ppm = part_ppm % WHOLE
    if job.last_save is not None:
        out.last_save.CopyFrom(save_out(job.last_save.worst))
    if job.share_next is not None:
        out.share_next = int(job.share_next)  # type: ignore[assignment]
    if job.profile is not None:
        out.profile.CopyFrom(profile_out(job.profile))
    if operation is not None:
        out.operation.CopyFrom(operation_out(operation))
    if job.estimates:
        out.estimates.extend(estimates_out(job))
    if runs:
        out.node = name_of(nodes, runs[0].node)
        out.devices.extend(runs[0].given)
        out.log_path = runs[0].log_path
        out.guaranteed = runs[0].guaranteed
        out.parked = runs[0].is_parked
        out.tasks.extend(task_out(run, nodes) for run in runs)
    if job.elements is not None and job.spec.array is not None:
        size, e = job.spec.array.size, job.elements
        pending = 0 if job.ended_us is not None else size - e.begun
        status = pb.ArrayStatus(size=size, pending=pending, live=e.live, succeeded=e.succeeded, failed=e.failed)
        out.array.CopyFrom(status)
    return out


def profile_out(profile: Profile) -> pb.Profile:
    out = pb.Profile(
        mini_batch_time=duration_out(profile.mini_batch_us),
        best_mini_batch_time=duration_out(profile.best_us),
        memory_mib=profile.memory_mib,
        devices=profile.devices,
        model=profile.model,
    )
    if profile.utilisation_ppm >= 0:
        out.utilization_ppm = profile.utilisation_ppm
    return out


def estimates_out(job: Job) -> Iterator[pb.ConfigurationEstimate]:
    """Yield the estimate of each configuration of a job about which something is known."""
    for number, spec in enumerate(job.spec.in_each_configuration()):
        parts = [part for part in job.estimates if part.configuration == number]
        of, impossible = combine_estimates(parts), any(part.impossible for part in parts)
        out = pb.ConfigurationEstimate(configuration=number, impossible=impossible)
        if of.time_us:
            out.time.CopyFrom(duration_out(of.time_us))
            out.error.CopyFrom(duration_out(of.error_us))
            out.sources.extend(source.value for source in of.sources)  # type: ignore[misc]  # the same numbers
            out.memory_mib = max(part.memory_mib for part in parts)
        elif spec.estimate_us and not impossible:
            out.time.CopyFrom(duration_out(spec.estimate_us))
            out.sources.append(pb.ESTIMATE_SOURCE_USER)
        elif parts:
            out.detail = parts[-1].detail
        else:
            continue
        yield out


def task_out(run: Run, nodes: Nodes) -> pb.Task:
    return pb.Task(
        rank=run.task,
        node=name_of(nodes, run.node),
        devices=run.given,
        resources=vector_out(run.asked),
        log_path=run.log_path,
        guaranteed=run.guaranteed,
        program=run.program,
    )


def event_out(event: JobEvent, commit_no: int, nodes: Nodes) -> pb.JobEvent:
    return message_of(
        pb.JobEvent,
        event,
        time=time_out(event.at_us),
        node=name_of(nodes, event.node),
        cause_job_id=event.cause_job,
        decision=None if event.decision is None else decision_out(event.decision, nodes),
        commit_no=commit_no,
    )


def decision_out(decision: Decision, nodes: Nodes) -> pb.PreemptionDecision:
    return message_of(
        pb.PreemptionDecision,
        decision,
        trial_job_id=decision.trial,
        node=name_of(nodes, decision.node),
        demand=vector_out(decision.demand),
        max_grace_period=duration_out(decision.max_grace_us),
        candidates=[_candidate_out(candidate, nodes) for candidate in decision.candidates],
    )


def _candidate_out(candidate: CandidateScore, nodes: Nodes) -> pb.Candidate:
    return message_of(
        pb.Candidate,
        candidate,
        job_id=candidate.key.job_id,
        run=candidate.key.run,
        node=name_of(nodes, candidate.node),
        demand=vector_out(candidate.demand),
        node_free=vector_out(candidate.node_free),
        grace_period=duration_out(candidate.grace_us),
    )


def add_closeness(out: pb.Job, found: JobView, view: View) -> None:
    """Add how close to each other the devices of a job are, if it holds two or more."""
    held: dict[int, Mask] = {}
    for run in found.runs if found.job.state in ACTIVE else ():
        held[run.node] = held.get(run.node, 0) | mask_of(run.given)
    held = {node: mask for node, mask in held.items() if mask and view.devices.get(node)}
    count = sum(mask.bit_count() for mask in held.values())
    if count < 2:
        return
    parts = [_part_of(view.nodes[node], view.devices[node], mask) for node, mask in held.items()]
    _, within, _ = min(parts)
    close = pb.Closeness(devices=count, nodes=len(held), within=within, nvlink=all(linked for *_, linked in parts))
    out.closeness.CopyFrom(close)


def _part_of(node: Node, devices: Mapping[int, NodeDevice], mask: Mask) -> tuple[int, str, bool]:
    """The smallest part of the node that has these devices: its depth and its name; and whether one NVLink domain has them."""
    rows = [devices[index] for index in sorted(devices)]
    tree = device_tree(node.levels, tuple(row.path for row in rows), tuple(row.link_domain for row in rows))
    name, linked = closeness(tree, mask)
    depths = {NODE: 0, **{level: depth for depth, level in enumerate(node.levels, 1)}}
    return depths.get(name, len(depths)), name, linked

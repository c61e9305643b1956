"""Requests as they are sent, and how their answers are read. Both transports stand on this.

Every call of the API is safe to send again (Submit by its request_id), so all of them are retried alike.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.message import Message

from client_sdk import errors, models
from client_sdk._protobuf import (
    calls_exchange,
    calls_files,
    calls_virtual_clusters,
    convert,
    convert_explanations,
    convert_nodes,
    reading,
)
from client_sdk._protobuf.call import Call, why_not
from client_sdk._requests.jobs import (
    DeleteNode,
    Drain,
    Explain,
    ListNodes,
    ListPage,
    ListRuns,
    ListShares,
    Migrate,
    NodePage,
    OfJob,
    OfNode,
    Request,
    Requeue,
    Resize,
    Risks,
    Story,
    Submit,
    Suspend,
    TryOut,
    Update,
)
from client_sdk._watch_cursor import LogCourse, LogPiece, WatchCursor

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_NODES_OF_A_PAGE = 1000
LARGEST_SPEC = 1 << 20
"""Bytes of the spec of a job. The scheduler takes no larger one."""
WATCH = "Scheduler/Watch"
LOGS = "Scheduler/Logs"

_OF_JOB: dict[str, tuple[type[Message], type[Message]]] = {
    "Get": (scheduler_pb2.GetRequest, scheduler_pb2.GetResponse),
    "Cancel": (scheduler_pb2.CancelRequest, scheduler_pb2.CancelResponse),
    "Resume": (scheduler_pb2.ResumeRequest, scheduler_pb2.ResumeResponse),
    "Hold": (scheduler_pb2.HoldRequest, scheduler_pb2.HoldResponse),
    "Release": (scheduler_pb2.ReleaseRequest, scheduler_pb2.ReleaseResponse),
}
_OF_NODE: dict[str, tuple[type[Message], type[Message]]] = {
    "GetNode": (cluster_pb2.GetNodeRequest, cluster_pb2.GetNodeResponse),
    "Undrain": (cluster_pb2.UndrainRequest, cluster_pb2.UndrainResponse),
    "Fence": (cluster_pb2.FenceRequest, cluster_pb2.FenceResponse),
}


def encode(request: Request[T]) -> Call[T]:
    """Raises InvalidArgument for what no message can hold."""
    call: Call[Any]
    match request:
        case Submit(spec, request_id):
            call = Call("Scheduler/Submit", _submit(spec, request_id), scheduler_pb2.SubmitResponse, _job)
        case TryOut(spec):
            tried = scheduler_pb2.SubmitRequest(spec=_spec(spec), validate_only=True)
            call = Call("Scheduler/Submit", tried, scheduler_pb2.SubmitResponse, convert_explanations.preview)
        case OfJob(verb, job_id):
            asked, answered = _OF_JOB[verb]
            call = Call(f"Scheduler/{verb}", _job_request(job_id, asked), answered, _job)
        case Suspend(job_id, park, park_only):
            suspend = _job_request(job_id, scheduler_pb2.SuspendRequest, park=park, park_only=park_only)
            call = Call("Scheduler/Suspend", suspend, scheduler_pb2.SuspendResponse, _job)
        case ListRuns(job_id, token):
            runs = _job_request(job_id, scheduler_pb2.ListRunsRequest)
            runs.page_token = token
            call = Call("Scheduler/ListRuns", runs, scheduler_pb2.ListRunsResponse, _runs)
        case Requeue(job_id, run):
            requeue = _job_request(job_id, scheduler_pb2.RequeueRequest)
            requeue.run = run
            call = Call("Scheduler/Requeue", requeue, scheduler_pb2.RequeueResponse, _job)
        case Resize(job_id, tasks):
            resize = _job_request(job_id, scheduler_pb2.ResizeRequest)
            resize.tasks = tasks
            call = Call("Scheduler/Resize", resize, scheduler_pb2.ResizeResponse, _job)
        case Migrate(job_id, nodes, devices):
            migrate = _job_request(job_id, scheduler_pb2.MigrateRequest)
            for node, of_node in zip(nodes, devices or ((),) * len(nodes), strict=True):
                migrate.destinations.add(node=node, devices=of_node)
            call = Call("Scheduler/Migrate", migrate, scheduler_pb2.MigrateResponse, _job)
        case Risks(change):
            made: Call[Any] = encode(change)
            asked_only: Any = made.message
            asked_only.validate_only = True
            call = Call(made.method, asked_only, made.response, _risks)
        case Update():
            call = Call("Scheduler/Update", _update(request), scheduler_pb2.UpdateResponse, _job)
        case ListPage():
            call = Call("Scheduler/List", _list(request), scheduler_pb2.ListResponse, _page)
        case Story(job_id):
            call = Call(
                "Scheduler/Story", _job_request(job_id, scheduler_pb2.StoryRequest), scheduler_pb2.StoryResponse, _events
            )
        case Explain(job_id):
            about = _job_request(job_id, scheduler_pb2.ExplainRequest)
            call = Call("Scheduler/Explain", about, scheduler_pb2.ExplainResponse, convert_explanations.explanation)
        case ListShares(vc):
            call = Call("Scheduler/Shares", _shares(vc), scheduler_pb2.SharesResponse, convert_explanations.shares)
        case ListNodes(token):
            nodes = cluster_pb2.ListNodesRequest(page_size=_NODES_OF_A_PAGE, page_token=token)
            call = Call("Cluster/ListNodes", nodes, cluster_pb2.ListNodesResponse, _nodes)
        case OfNode(verb, name):
            asked, answered = _OF_NODE[verb]
            call = Call(
                f"Cluster/{verb}",
                _about_node(name, asked),
                answered,
                convert_nodes.node_with_observations if verb == "GetNode" else _node,
            )
        case DeleteNode(name):
            gone = _about_node(name, cluster_pb2.DeleteNodeRequest)
            call = Call("Cluster/DeleteNode", gone, cluster_pb2.DeleteNodeResponse, lambda _: None)
        case Drain(name, reason, evict):
            drain = _about_node(name, cluster_pb2.DrainRequest, reason=reason, evict=evict)
            call = Call("Cluster/Drain", drain, cluster_pb2.DrainResponse, _node)
        case _:
            parts = calls_virtual_clusters, calls_exchange, calls_files
            found = next(filter(None, (part.encode(request) for part in parts)), None)
            if found is None:
                raise AssertionError(f"nobody knows how to send {request!r}")
            call = found
    return call


def _submit(spec: models.JobSpec, request_id: str) -> scheduler_pb2.SubmitRequest:
    message = _spec(spec)
    try:
        return scheduler_pb2.SubmitRequest(spec=message, request_id=request_id)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"{request_id!r} cannot be a request_id: {why_not(error)}") from error


def _spec(spec: models.JobSpec) -> job_pb2.JobSpec:
    """Raises InvalidArgument for one that no scheduler takes, before it is sent."""
    message = convert.spec_message(spec)
    if (size := message.ByteSize()) > LARGEST_SPEC:
        raise errors.InvalidArgument(
            f"the job's spec has {size} bytes, and may have {LARGEST_SPEC}: keep files and data out of its command and its "
            "environment, and send them by --snapshot (snapshot=True), or read them where the job runs"
        )
    return message


def _list(request: ListPage) -> scheduler_pb2.ListRequest:
    only = list(map(_state, request.states))
    vc, user, mine, name = request.only
    try:
        asked = scheduler_pb2.ListRequest(page_size=request.size, page_token=request.token, states=only)
        chosen = scheduler_pb2.ListRequest(virtual_cluster=vc, user=user, mine=mine, name=name, count_more=request.count)
        asked.MergeFrom(chosen)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"the list cannot be asked for: {why_not(error)}") from error
    return asked


def _shares(vc: str) -> scheduler_pb2.SharesRequest:
    try:
        return scheduler_pb2.SharesRequest(virtual_cluster=vc)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"{vc!r} cannot be the name of a virtual cluster: {why_not(error)}") from error


def _state(state: object) -> str:
    if not isinstance(state, models.JobState):
        raise errors.InvalidArgument(f"{state!r} is no state of a job; write such as client_sdk.JobState.RUNNING")
    return f"JOB_STATE_{state.name}"


def _job(answer: scheduler_pb2.GetResponse) -> models.Job:
    return convert.job(answer.job)


def _page(answer: scheduler_pb2.ListResponse) -> models.JobPage:
    jobs = tuple(map(convert.job, answer.jobs))
    return models.JobPage(jobs=jobs, next_page_token=answer.next_page_token, more=answer.more)


def _runs(answer: scheduler_pb2.ListRunsResponse) -> models.RunPage:
    return reading.read(models.RunPage, answer)


def _risks(answer: scheduler_pb2.SuspendResponse) -> tuple[models.JobAtRisk, ...]:
    return tuple(reading.read(models.JobAtRisk, each) for each in answer.jobs_at_risk)


def _events(answer: scheduler_pb2.StoryResponse) -> list[models.JobEvent]:
    return [convert.event(event) for event in answer.events]


def _nodes(answer: cluster_pb2.ListNodesResponse) -> NodePage:
    return NodePage(tuple(map(convert_nodes.node, answer.nodes)), answer.next_page_token)


def _node(answer: cluster_pb2.DrainResponse) -> models.Node:
    return convert_nodes.node(answer.node)


def _update(request: Update) -> scheduler_pb2.UpdateRequest:
    message = _job_request(request.job_id, scheduler_pb2.UpdateRequest)
    try:
        if request.priority is not None:
            message.priority = request.priority
        if request.time_limit is not None:
            message.time_limit.CopyFrom(convert.duration_message(request.time_limit))
        if request.grace == "auto":
            message.grace_follows = True
        elif request.grace is not None:
            message.grace_period.CopyFrom(convert.duration_message(request.grace))
        if request.skip_steps is not None:
            message.skip_steps = request.skip_steps
        if request.share is not None:
            message.MergeFrom(scheduler_pb2.UpdateRequest(share=f"SHARE_MODE_{request.share.name}"))
        if request.dependencies is not None:
            wanted = map(convert.dependency_message, request.dependencies)
            message.dependencies.CopyFrom(scheduler_pb2.Dependencies(dependencies=wanted))
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"the change cannot be sent: {why_not(error)}") from error
    return message


def watch_message(course: WatchCursor) -> scheduler_pb2.SchedulerWatchRequest:
    return _job_request(course.job_id, scheduler_pb2.SchedulerWatchRequest, after_commit=course.token)


def logs_message(course: LogCourse) -> scheduler_pb2.LogsRequest:
    fields = {"run": course.run, "task": course.task, "offset": course.offset, "follow": course.follow}
    return _job_request(course.job_id, scheduler_pb2.LogsRequest, **fields)


def log_piece(message: scheduler_pb2.LogsResponse) -> LogPiece:
    return LogPiece(message.run, message.offset, message.data)


def _job_request(job_id: int, request: Callable[..., M], **fields: int) -> M:
    """A request about one job."""
    try:
        return request(job_id=job_id, **fields)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"{job_id!r} cannot be the id of a job; ids are whole numbers from 1") from error


def _about_node(name: str, request: Callable[..., M], **fields: str | bool) -> M:
    try:
        return request(node=name, **fields)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(
            f"{name!r} cannot be the name of a node, or what is said of it be sent: {why_not(error)}"
        ) from error

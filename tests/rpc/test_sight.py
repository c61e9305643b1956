"""Of somebody else's job nobody but operators sees the environment or the arguments that the site calls secret, whichever
call is asked: the calls are those whose answers can hold a job, as the descriptors say."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ebb.v1 import cluster_pb2, exchange_pb2, job_pb2, scheduler_pb2, virtual_clusters_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor

from client_sdk import Client, InvalidArgument
from scheduler_service.config import Config
from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc.access import MAY, OPEN
from scheduler_service.secret_arguments import HIDDEN, SecretArguments, problem
from tests.rpc.server import LIMIT, Server, closing, failure, submit_request
from tests.rpc.test_access import Tokens, bearer

VALUE, INHERITED, ARGUMENT, OF_GROUP = "s3cret-value", "s3cret-path", "s3cret-argument", "s3cret-of-group"
OTHER_VALUE, OTHER_ARGUMENT, OF_SCRIPT = "s3cret-other-value", "s3cret-other-argument", "s3cret-of-script"
REDACTED = ["environment", "command", "task_groups[0].command", "alternatives[0].command", "checkpoint_command"]
SECRETS = [VALUE, INHERITED, ARGUMENT, OF_GROUP, OTHER_VALUE, OTHER_ARGUMENT, OF_SCRIPT]
NAMES = {Role.USER: "ada", Role.OPERATOR: "olga", Role.AGENT: "agents"}
FILES = (scheduler_pb2, cluster_pb2, virtual_clusters_pb2, exchange_pb2)
HOLDERS = {job_pb2.DESCRIPTOR.message_types_by_name[name].full_name for name in ("Job", "JobSpec", "JobEvent")}


def can_hold_a_job(message: Descriptor) -> bool:
    return message.full_name in HOLDERS or any(
        field.message_type is not None and can_hold_a_job(field.message_type) for field in message.fields
    )


CALLS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if can_hold_a_job(method.output_type)
}


def a_job(request_id: str = "", **fields: Any) -> Any:
    group = job_pb2.TaskGroup(count=1, resources={"cpu_milli": 1000, "memory_mib": 1}, command=["x", f"API_KEY={OF_GROUP}"])
    return submit_request(
        request_id,
        command=["python", "train.py", "--token", ARGUMENT, "--lr=0.1"],
        environment={"WANDB_API_KEY": VALUE},
        inherited_environment={"PATH": f"/home/{INHERITED}/bin"},
        task_groups=[group],
        checkpoint_command=f"./save.sh --token {OF_SCRIPT}",
        alternatives=[
            job_pb2.Configuration(
                resources={"cpu_milli": 2000, "memory_mib": 1},
                command=["x", "--token", OTHER_ARGUMENT],
                environment={"OTHER_KEY": OTHER_VALUE},
            )
        ],
        **fields,
    )


@pytest.fixture
def tokens(engine: Any) -> Tokens:
    made = Tokens(engine)
    for role, name in NAMES.items():
        made.add(name, name, role)
    made.add("bob", "bob")
    return made


@pytest.fixture
def server(database_url: str, tokens: Tokens) -> Iterator[Server]:
    with Server(database_url, auth="token", secret_arguments=["--token", "*_KEY=*"]) as made:
        yield made


def request_of(method: MethodDescriptor, job_id: int) -> Any:
    """About this job, as far as it can be: made of nothing that is known of the method but its fields."""
    request = getattr(scheduler_pb2, method.input_type.name)()
    if "job_id" in method.input_type.fields_by_name:
        request.job_id = job_id
    elif "spec" in method.input_type.fields_by_name:
        request.CopyFrom(a_job("once"))
    if "tasks" in method.input_type.fields_by_name:
        request.tasks = 1
    if "destinations" in method.input_type.fields_by_name:
        request.destinations.add(node="n1")
    return request


def answer(server: Server, method: MethodDescriptor, job_id: int, who: str) -> Any:
    """What the call answers first, or the error that it ends with."""
    name = f"/{method.containing_service.full_name}/{method.name}"
    make = server.channel.unary_stream if method.server_streaming else server.channel.unary_unary
    call = make(
        name,
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=getattr(scheduler_pb2, method.output_type.name).FromString,
    )
    request = request_of(method, job_id)
    try:
        if not method.server_streaming:
            return call(request, timeout=LIMIT, metadata=bearer(who))
        with closing(call(request, timeout=LIMIT, metadata=bearer(who))) as stream:
            return next(stream)
    except grpc.RpcError as error:
        return error


def specs_in(message: Any) -> Iterator[Any]:
    """Every spec that the message holds, however deep."""
    if isinstance(message, job_pb2.JobSpec):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from specs_in(each)


def seen_in(answered: Any) -> list[str]:
    said = str(answered) + str(getattr(answered, "trailing_metadata", str)())
    return [secret for secret in SECRETS if secret in said]


def test_every_call_that_can_answer_with_a_job_shows_its_secrets_to_its_owner_and_operators_alone(server: Server) -> None:
    assert {"Submit", "Get", "List", "Watch", "Explain", "Story", "Cancel"} <= {method.name for method in CALLS.values()}
    job_id = server.scheduler.Submit(a_job("once"), timeout=LIMIT, metadata=bearer("ada")).job.id
    for name, method in CALLS.items():
        rule = MAY[name]
        assert rule is not OPEN
        assert rule.roles == {Role.USER, Role.OPERATOR}, name
        if rule.own_job:
            answered = answer(server, method, job_id, "bob")
            assert answered.code() is grpc.StatusCode.PERMISSION_DENIED, name
            assert seen_in(answered) == [], name
            continue
        if method.name == "Submit":  # whoever submits is answered with a job of their own, also with somebody else's request_id
            assert answer(server, method, job_id, "ada").job.id == job_id
            continue
        for who in ("bob", "olga", "ada"):
            answered = answer(server, method, job_id, who)
            specs = list(specs_in(answered))
            assert specs or method.name == "Story", f"{name}: the test asks for no job by it"
            assert seen_in(answered) == ([] if who == "bob" or not specs else SECRETS), (name, who)
            assert all(list(spec.redacted) == (REDACTED if who == "bob" else []) for spec in specs), (name, who)


def test_it_is_the_same_for_a_job_that_has_ended(server: Server) -> None:
    """Which comes from the database, and not from what the leader holds."""
    job_id = server.scheduler.Submit(a_job("once"), timeout=LIMIT, metadata=bearer("ada")).job.id
    server.scheduler.Cancel(scheduler_pb2.CancelRequest(job_id=job_id), timeout=LIMIT, metadata=bearer("ada"))
    got = scheduler_pb2.GetRequest(job_id=job_id)
    assert seen_in(server.scheduler.Get(got, timeout=LIMIT, metadata=bearer("bob"))) == []
    (listed,) = server.scheduler.List(scheduler_pb2.ListRequest(), timeout=LIMIT, metadata=bearer("bob")).jobs
    assert seen_in(listed) == []
    assert listed.spec.command == ["python", "train.py", "--token", "(hidden)", "--lr=0.1"]
    assert listed.spec.task_groups[0].command == ["x", "API_KEY=(hidden)"]
    assert seen_in(server.scheduler.Get(got, timeout=LIMIT, metadata=bearer("ada"))) == SECRETS


def test_what_is_hidden_is_never_submitted_by_mistake(server: Server) -> None:
    job_id = server.scheduler.Submit(a_job(), timeout=LIMIT, metadata=bearer("ada")).job.id
    found = server.scheduler.Get(scheduler_pb2.GetRequest(job_id=job_id), timeout=LIMIT, metadata=bearer("bob")).job
    again = scheduler_pb2.SubmitRequest(spec=found.spec)
    refused = failure(lambda: server.scheduler.Submit(again, timeout=LIMIT, metadata=bearer("bob")))
    assert (refused.reason, refused.info.metadata["field"]) == ("INVALID_FIELD", "spec.redacted")
    with Client(server.address, token="bob") as bob, pytest.raises(InvalidArgument, match="environment"):
        bob.submit_spec(bob.get(job_id).spec)
    with Client(server.address, token="ada") as ada:
        assert ada.submit_spec(ada.get(job_id).spec).spec == ada.get(job_id).spec


def test_without_tokens_whoever_asks_is_an_operator(database_url: str) -> None:
    with Server(database_url, secret_arguments=["--token"]) as server:
        job = server.scheduler.Submit(a_job(), timeout=LIMIT).job
        assert seen_in(server.get(job.id)) == SECRETS


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("a --token s", "a --token (hidden)"),
        ("a --token=s b", "a --token=(hidden) b"),
        ("a --token", "a --token"),
        ("a --token --token s", "a --token (hidden) (hidden)"),
        ("a --tokens s", "a --tokens s"),
        ("env AWS_KEY=s AWS_REGION=eu", "env AWS_KEY=(hidden) AWS_REGION=eu"),
        ("a --set=AWS_KEY=s", "a --set=(hidden)"),
    ],
)
def test_which_arguments_are_secret(command: str, shown: str) -> None:
    secrets = SecretArguments(["--token", "*_KEY=*"])
    assert secrets.hide(command.split()) == tuple(shown.split())


@pytest.mark.parametrize(
    "script", ["train --token s", "train --token=s", "A_KEY='s' train", "x; A_KEY=s y", "x $(y --token s)"]
)
def test_of_a_script_with_a_secret_nothing_is_shown(script: str) -> None:
    assert (
        "s" not in SecretArguments(["--token", "*_KEY=*"]).hide(["sh", "-c", script])[2].removeprefix(HIDDEN).partition("=")[2]
    )


@pytest.mark.parametrize("pattern", ["", "*", "=*", "--token value", "--token*"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    assert problem(pattern)
    with pytest.raises(ValueError, match="secret_arguments"):
        Config(database="postgresql://h/d", secret_arguments=[pattern])

"""The contract, held by the fake and by the service, through either client."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from client_sdk import AsyncClient, Client, Job, NodeState, Resources, testing
from client_sdk.testing import Outcome
from tests.harness import quick_cluster
from tests.sdk import contract, contract_asked  # noqa: F401  (which adds to it)
from tests.sdk.contract import BEHAVIOURS, CPUS, LIMIT, Behaviour, World, awaited
from tests.sdk.fake import until
from tests.store.fixtures import short_dir


def script(job: Job) -> Outcome | None:
    """How the contract's commands end."""
    outcomes = {
        ("true",): Outcome(),
        contract.FAIL: Outcome(exit_code=3),
        contract.KILLED: Outcome(exit_signal=9),
        contract.HELLO: Outcome(output="hello\n"),
        contract.MISSING: Outcome(launch_error="/no/such/program: No such file or directory"),
        contract.SLEEP: None,
    }
    return outcomes[job.spec.command]


async def leave_it_to_the_policy(_victim: Job, _trial: Job) -> None:
    pass


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The address of a scheduler with one agent."""
    with short_dir() as folder, quick_cluster(folder) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")

        def connected() -> bool:
            assert cluster.processes["node-1"].poll() is None, cluster.tail("node-1")
            return [node.state for node in client.nodes()] == [NodeState.UP]

        with Client(cluster.address, timeout=LIMIT) as client:
            until(connected, LIMIT)
        yield cluster.address


@pytest.fixture(params=["fake-sync", "fake-async", "service-sync", "service-async"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    where, how = request.param.split("-")
    if where == "service":
        address = request.getfixturevalue("service")
        async with AsyncClient(address) as client:
            with Client(address) as blocking:
                yield World(client if how == "async" else awaited(blocking), leave_it_to_the_policy)
        return
    with testing.cluster({"node-1": Resources(cpus=CPUS, memory_mib=160 * 1024)}, script=script) as fake:

        async def preempt(victim: Job, trial: Job) -> None:
            await asyncio.to_thread(fake.preempt, victim, for_=trial)

        async with fake.async_client() as client:
            yield World(client if how == "async" else awaited(fake.client()), preempt)
            assert all(job.ended for job in fake.jobs)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
async def test_contract(world: World, behaviour: Behaviour) -> None:
    await behaviour(world)


def test_both_clients_offer_the_same() -> None:
    def methods(client: type) -> dict[str, list[inspect.Parameter]]:
        public = {name: each for name, each in vars(client).items() if not name.startswith("_") and name != "another"}
        return {name: list(inspect.signature(each).parameters.values()) for name, each in public.items()}

    assert methods(AsyncClient) == methods(Client)


def test_an_async_client_costs_nothing_until_it_is_used() -> None:
    code = "import sys, client_sdk as sdk; sdk.AsyncClient(); print({'grpc', 'google', 'asyncio'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"

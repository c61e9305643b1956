"""Every error of the agent that a person reads; the docstring of each class is its message."""

import inspect


class AgentError(Exception):
    """The agent cannot continue."""

    def __init__(self, **fields: object) -> None:
        super().__init__(inspect.cleandoc(type(self).__doc__ or "").format(**fields))


class StateInUse(AgentError):
    """The state directory {path} is in use by another agent (pid {pid}). Stop that one, or give this one its own --state."""


class NodeInUse(AgentError):
    """Another agent (pid {pid}) serves node {node} for the scheduler at {scheduler} on this machine, with another state
    directory. Stop that agent, or give this one a name of its own (--node)."""


class StateUnusable(AgentError):
    """The state directory {path} cannot be used: {why}."""


class FolderUnusable(AgentError):
    """{name}: {path} cannot be used as a folder: {why}. Name another one, or mend that."""


class SpoolDamaged(AgentError):
    """The spool {path} cannot be read: {why}. Move it away to start afresh: as after a reboot, nothing that was
    started before goes on, so jobs that still run here are killed then."""


class AsRoot(AgentError):
    """The agent was started as root (uid 0), and jobs run as the user of their agent: whoever may submit one would own this
    machine. Start the agent as a user without privileges. Where jobs are to run as root, as inside a container of its
    own, say so: --allow-root, EBB_AGENT_ALLOW_ROOT=true, or allow_root: true in the file."""


class ControlGroupsMissing(AgentError):
    """Runs cannot have control groups as they should (--control-groups require): {missing}. Mend that, or let the agent use
    what there is: --control-groups auto."""


class RunsLive(AgentError):
    """--forget-cluster: runs of cluster {cluster} are still alive on this node: {runs}. Nobody would know them afterwards.
    Cancel them, or stop the agent once with --stop-jobs-on-exit; then try again."""


class OtherNode(AgentError):
    """The state directory {path} is node {theirs}'s: {live} of its runs are not over, and of {untold} the scheduler has not
    acknowledged all reports. Start the agent as {theirs} (--node {theirs}) until there are none, or give node {ours} its own
    --state."""


class RunsElsewhere(AgentError):
    """Runs of node {node} live under another state directory: {where}. Start the agent with that --state, which takes them up,
    or end them: beside them, their jobs would run twice. Where that is another agent, give this one its own --node."""


class EnvironmentMissing(AgentError):
    """the environment of the job, {name}={path}, has no bin/python here. Create it on this node, or name one that all nodes
    see, such as one on shared storage"""


class UnknownProfile(AgentError):
    """There is no device profile {name!r}. Known: {known}."""


class UnknownDevice(AgentError):
    """This node has no device {index}; its devices are {known}."""


class NoDriver(AgentError):
    """The GPUs of this node cannot be used: {why}. {advice}."""


class DriverSilent(AgentError):
    """The NVIDIA driver did not answer within {limit:g} s. Does nvidia-smi answer on this node? What hangs in the kernel
    cannot be killed and ends with a reboot (dmesg may say more)."""


class DriverFailed(AgentError):
    """The GPUs of this node could not be read: {why}. The agent's standard error may say more."""


class DeviceTreeUnusable(AgentError):
    """The device tree file {file} cannot be used:
    {problems}"""


class NothingLeft(AgentError):
    """--reserve-cpus and --reserve-memory leave nothing for jobs: this machine has {cpus:g} CPUs and {memory:g} GiB."""


class LauncherFailed(AgentError):
    """The launcher did not start: {why}. Its output is in {log}."""


class ForeignCluster(AgentError):
    """The scheduler at {target} belongs to cluster {theirs}, and this agent to cluster {ours}. Nothing of it is obeyed.
    If the agent is to change clusters, stop its jobs and start it once with --forget-cluster."""


class Refused(AgentError):
    """The scheduler at {target} refuses this node: {why}."""

    def __init__(self, *, target: str, reason: str, why: str) -> None:
        super().__init__(target=target, why=why.rstrip("."))
        self.reason = reason


class StaleEpoch(AgentError):
    """The scheduler at {target} has epoch {theirs}, and this agent has obeyed epoch {ours}: it has been replaced."""


class Forgetful(AgentError):
    """The scheduler's database is older than what was done on this node: it knows the node's reports up to {theirs}, and had
    acknowledged those up to {ours}; a backup was restored, perhaps. Nobody can say any more what the runs here are. The
    node starts afresh, as after a reboot: they are killed, and their jobs go back to their queues."""


class StandsBy(AgentError):
    """The scheduler at {target} stands by: the one at {leader} leads."""

    def __init__(self, *, target: str, leader: str) -> None:
        super().__init__(target=target, leader=leader)
        self.leader = leader


class Disconnected(AgentError):
    """The scheduler at {target} {why}."""


class StoreUnusable(AgentError):
    """checkpoint_store {url} cannot be used: {why}"""

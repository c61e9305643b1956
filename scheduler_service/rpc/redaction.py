"""Redaction of jobs: owners see all of their own jobs, and operators all of every job. Other callers see neither a job's
environment nor the arguments that the site declares secret, and `redacted` names what was left out."""

from typing import NamedTuple

from ebb.v1 import job_pb2

from scheduler_service.core.model import Job
from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc.access import caller
from scheduler_service.secret_arguments import HIDDEN, SecretArguments


class Sight(NamedTuple):
    """How much one caller may see."""

    user: str
    everything: bool
    secrets: SecretArguments

    def redact(self, spec: job_pb2.JobSpec, job: Job) -> None:
        """Takes out of the job's spec what the caller may not see, and names it in `redacted`."""
        if self.everything or job.user == self.user:
            return
        configurations = {"": spec} | {f"alternatives[{at}].": one for at, one in enumerate(spec.alternatives)}
        if spec.inherited_environment or any(one.environment for one in configurations.values()):
            for one in configurations.values():
                one.ClearField("environment")
            spec.ClearField("inherited_environment")
            spec.redacted.append("environment")
        if self.secrets.none:
            return
        commands = {}
        for where, one in configurations.items():
            commands[f"{where}command"] = one.command
            commands |= {f"{where}task_groups[{at}].command": group.command for at, group in enumerate(one.task_groups)}
        for name, command in commands.items():
            if (shown := self.secrets.hide(command)) != tuple(command):
                command[:] = shown
                spec.redacted.append(name)
        script = f"{spec.checkpoint_command} ;"  # with a second word it is read as a script is
        if self.secrets.hide((script,)) != (script,):
            spec.checkpoint_command = HIDDEN
            spec.redacted.append("checkpoint_command")


def sight(secrets: SecretArguments) -> Sight:
    """Return the sight of the caller of the call being handled. Without tokens every caller is an operator (see `access`)."""
    who = caller()
    return Sight(who.subject, Role.OPERATOR in who.roles, secrets)

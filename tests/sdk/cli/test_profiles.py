"""What people read of how a job runs alone."""

from datetime import timedelta

from client_sdk.cli.output.steps import profile_text
from client_sdk.models import Profile

MS = timedelta(milliseconds=1)


def test_what_is_known_is_said_and_nothing_else() -> None:
    full = Profile(
        mini_batch_time=120 * MS,
        best_mini_batch_time=100 * MS,
        memory_mib=4096,
        utilization_ppm=350_000,
        devices=2,
        model="A100",
    )
    assert profile_text(full) == "120 ms a mini-batch (100 ms at best) on 2 A100, 4GiB of a device, utilisation 35 %"
    assert profile_text(Profile(mini_batch_time=5 * MS, best_mini_batch_time=5 * MS)) == "5 ms a mini-batch"

"""The text that shows how a job runs while no other job executes on its devices."""

from client_sdk.models import Profile
from client_sdk.units import format_memory


def said(known: Profile) -> str:
    """Such as "120 ms a mini-batch (100 ms at best) on 2 A100, 4 GiB, utilisation 35 %"."""
    now, best = known.mini_batch_time.total_seconds() * 1000, known.best_mini_batch_time.total_seconds() * 1000
    parts = [f"{now:.4g} ms a mini-batch" + (f" ({best:.4g} ms at best)" if best < now else "")]
    if known.devices:
        parts[0] += f" on {known.devices} {known.model or 'devices'}"
    if known.memory_mib:
        parts.append(f"{format_memory(known.memory_mib)} of a device")
    if known.utilization_ppm is not None:
        parts.append(f"utilisation {known.utilization_ppm / 10_000:.0f} %")
    return ", ".join(parts)

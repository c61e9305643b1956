"""Converts between seconds and protobuf's durations."""

from google.protobuf.duration_pb2 import Duration


def duration_out(seconds: float) -> Duration:
    whole, part = divmod(round(seconds * 1_000_000), 1_000_000)
    return Duration(seconds=whole, nanos=part * 1000)


def duration_in(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9

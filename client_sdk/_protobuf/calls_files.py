"""Requests about snapshots and results, as `calls` has those about jobs and nodes."""

from typing import Any

from ebb.v1 import snapshots_pb2 as pb

from client_sdk._protobuf.call import Call
from client_sdk._requests.files import FindSnapshot, GetResult, Piece, PutSnapshot, Stored
from client_sdk._requests.jobs import Request


def encode(request: Request[Any]) -> Call[Any] | None:
    """None: it is about something else."""
    match request:
        case FindSnapshot(digest):
            return Call("Snapshots/FindSnapshot", pb.FindSnapshotRequest(digest=digest), pb.FindSnapshotResponse, _read_stored)
        case PutSnapshot(digest, size, offset, data):
            piece = pb.PutSnapshotRequest(digest=digest, size=size, offset=offset, data=data)
            return Call("Snapshots/PutSnapshot", piece, pb.PutSnapshotResponse, _read_stored)
        case GetResult(job_id, offset):
            asked = pb.GetResultRequest(job_id=job_id, offset=offset)
            return Call("Snapshots/GetResult", asked, pb.GetResultResponse, _read_piece)
    return None


def _read_stored(answer: pb.FindSnapshotResponse | pb.PutSnapshotResponse) -> Stored:
    return Stored(answer.stored, answer.complete)


def _read_piece(answer: pb.GetResultResponse) -> Piece:
    return Piece(answer.data, answer.size)

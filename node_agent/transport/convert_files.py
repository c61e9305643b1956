"""Converts between the agent's types and ebb.agent.v1, for snapshots, results and jobs that have ended."""

from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent.transport.convert_durations import duration_out
from node_agent.transport.messages import EndedJobs, ResultPiece, SnapshotPiece

GET_SNAPSHOT = "/ebb.agent.v1.AgentLink/GetSnapshot"
PUT_RESULT = "/ebb.agent.v1.AgentLink/PutResult"
FIND_ENDED = "/ebb.agent.v1.AgentLink/FindEnded"


def encode_snapshot(asked: SnapshotPiece) -> bytes:
    return pb.GetSnapshotRequest(job_id=asked.job_id, digest=asked.digest, offset=asked.offset).SerializeToString()


def decode_snapshot(data: bytes) -> tuple[bytes, int]:
    """Return a piece, and the size of the whole."""
    answer = pb.GetSnapshotResponse.FromString(data)
    return answer.data, answer.size


def encode_result(piece: ResultPiece) -> bytes:
    job_id, run, _ = piece.key
    return pb.PutResultRequest(
        job_id=job_id, run=run, size=piece.size, offset=piece.offset, data=piece.data
    ).SerializeToString()


def decode_stored(data: bytes) -> int:
    """Return how many bytes of a result are stored."""
    return pb.PutResultResponse.FromString(data).stored


def encode_ended(asked: EndedJobs) -> bytes:
    return pb.FindEndedRequest(job_ids=asked.job_ids, after=duration_out(asked.days * 86400)).SerializeToString()


def decode_ended(data: bytes) -> list[int]:
    return list(pb.FindEndedResponse.FromString(data).job_ids)

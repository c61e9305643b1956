"""Between the agent's words and ebb.agent.v1, for snapshots and results."""

from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent.transport.messages import ResultPiece, SnapshotPiece

GET_SNAPSHOT = "/ebb.agent.v1.AgentLink/GetSnapshot"
PUT_RESULT = "/ebb.agent.v1.AgentLink/PutResult"


def encode_snapshot(asked: SnapshotPiece) -> bytes:
    return pb.GetSnapshotRequest(job_id=asked.job_id, digest=asked.digest, offset=asked.offset).SerializeToString()


def decode_snapshot(data: bytes) -> tuple[bytes, int]:
    """A piece, and the size of the whole."""
    answer = pb.GetSnapshotResponse.FromString(data)
    return answer.data, answer.size


def encode_result(piece: ResultPiece) -> bytes:
    job_id, run, _ = piece.key
    return pb.PutResultRequest(
        job_id=job_id, run=run, size=piece.size, offset=piece.offset, data=piece.data
    ).SerializeToString()


def decode_stored(data: bytes) -> int:
    """How many bytes of a result are stored."""
    return pb.PutResultResponse.FromString(data).stored

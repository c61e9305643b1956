"""Converts between the agent's types and ebb.agent.v1, for checkpoints that go from agent to agent."""

from ebb.agent.v1 import transfer_pb2 as pb

from node_agent.checkpoints.folders import Described, SavedFile
from node_agent.checkpoints.pieces import Piece

SERVICE = "ebb.agent.v1.CheckpointTransfer"
DESCRIBE = f"/{SERVICE}/Describe"
FETCH = f"/{SERVICE}/Fetch"


def encode_asked(cluster_id: str, job_id: int) -> bytes:
    return pb.DescribeRequest(cluster_id=cluster_id, job_id=job_id).SerializeToString()


def decode_asked(data: bytes) -> tuple[str, int]:
    asked = pb.DescribeRequest.FromString(data)
    return asked.cluster_id, asked.job_id


def encode_described(described: Described) -> bytes:
    files = map(_file_out, described.files)
    answer = pb.DescribeResponse(store=described.store, exists=described.exists, files=files, modules=described.modules)
    answer.machine, answer.folder, answer.would_dump = described.machine, described.folder, described.would_dump
    return answer.SerializeToString()


def decode_described(data: bytes) -> Described:
    said = pb.DescribeResponse.FromString(data)
    files, modules = tuple(map(_file_in, said.files)), tuple(said.modules)
    return Described(said.store, said.exists, files, modules, said.machine, said.folder, said.would_dump)


def encode_wanted(cluster_id: str, job_id: int, file: SavedFile, offset: int) -> bytes:
    return pb.FetchRequest(cluster_id=cluster_id, job_id=job_id, file=_file_out(file), offset=offset).SerializeToString()


def decode_wanted(data: bytes) -> tuple[str, int, SavedFile, int]:
    wanted = pb.FetchRequest.FromString(data)
    return wanted.cluster_id, wanted.job_id, _file_in(wanted.file), wanted.offset


def encode_piece(piece: Piece) -> bytes:
    return pb.FetchResponse(
        data=piece.data, crc32=piece.crc32, compressed=piece.compressed, sha256=piece.sha256
    ).SerializeToString()


def decode_piece(data: bytes) -> Piece:
    came = pb.FetchResponse.FromString(data)
    return Piece(came.data, came.crc32, came.compressed, came.sha256)


def _file_out(file: SavedFile) -> pb.CheckpointFile:
    return pb.CheckpointFile(path=file.path, size=file.size, modified_ns=file.modified_ns, mode=file.mode, link=file.link)


def _file_in(said: pb.CheckpointFile) -> SavedFile:
    return SavedFile(said.path, said.size, said.modified_ns, said.mode, said.link)

"""As much of grpcurl as the documentation uses, for machines without it: a client that has no .proto, only reflection.

grpcurl -plaintext [-max-time SECONDS] [-d JSON] HOST:PORT list | describe SYMBOL | SERVICE/METHOD
"""

import argparse
import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


class Said(NamedTuple):
    status: int
    output: str
    """JSON values, one after the other; or names."""


def run(command: str, address: str) -> Said:
    """Runs a documented command against this address; by grpcurl itself where there is one."""
    words = shlex.split(command)
    assert words[0] == "grpcurl"
    place = next(i for i, word in enumerate(words) if word.endswith(":7737"))
    words[place] = address
    if shutil.which("grpcurl"):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        # A stream is ended by the time that was given for it.
        ended = done.returncode == 0 or ("-max-time" in words and "DeadlineExceeded" in done.stderr)
        return Said(0 if ended else done.returncode, done.stdout or done.stderr)
    return _reflect(words[1:])


def _reflect(words: Sequence[str]) -> Said:
    parser = argparse.ArgumentParser()
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-max-time", type=float, default=20.0)
    parser.add_argument("-d", default="{}")
    parser.add_argument("address")
    parser.add_argument("what")
    parser.add_argument("symbol", nargs="?", default="")
    asked = parser.parse_args(words)
    with grpc.insecure_channel(asked.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        if asked.what == "list":
            return Said(0, "\n".join(sorted(database.get_services())))
        if asked.what == "describe":
            return Said(0, _describe(database, asked.symbol))
        return _call(channel, DescriptorPool(database), asked)


def _describe(database: ProtoReflectionDescriptorDatabase, symbol: str) -> str:
    found = database.FindFileContainingSymbol(symbol)
    pool = DescriptorPool(database)
    parent, _, name = symbol.rpartition(".")
    if name in {service.name for service in found.service}:
        return "\n".join(_method(method) for method in pool.FindServiceByName(symbol).methods)
    if parent.rpartition(".")[2] in {service.name for service in found.service}:
        return _method(pool.FindServiceByName(parent).FindMethodByName(name))
    return "\n".join(field.name for field in pool.FindMessageTypeByName(symbol).fields)


def _method(method: Any) -> str:
    return f"rpc {method.name} ( {method.input_type.full_name} )"


def _call(channel: grpc.Channel, pool: DescriptorPool, asked: Any) -> Said:
    service, _, name = asked.what.partition("/")
    method = pool.FindServiceByName(service).FindMethodByName(name)
    request = json_format.ParseDict(json.loads(asked.d), GetMessageClass(method.input_type)(), descriptor_pool=pool)
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = kind(
        f"/{asked.what}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    said: list[str] = []
    try:
        answered = call(request, timeout=asked.max_time)
        for answer in answered if method.server_streaming else [answered]:
            said.append(json_format.MessageToJson(answer, descriptor_pool=pool))
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and said:
            return Said(0, "\n".join(said))
        return Said(64 + error.code().value[0], f"ERROR:\n  Code: {error.code().name}\n  Message: {error.details()}")
    return Said(0, "\n".join(said))

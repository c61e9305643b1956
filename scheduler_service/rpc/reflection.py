"""gRPC reflection of the services, down to their methods."""

from typing import Any

from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection


def servicer(services: tuple[str, ...]) -> Any:
    """Answers reflection for these services and for itself."""
    return reflection.aio.ReflectionServicer([*services, reflection.SERVICE_NAME], pool=_Descriptors())


class _Descriptors:
    """The descriptors of all files, where methods are found too: protobuf's own knows nothing by a method's name, so that
    `grpcurl describe ebb.v1.Scheduler.Submit` found nothing."""

    def __init__(self) -> None:
        self._all: Any = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        try:
            return self._all.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._all.FindMethodByName(symbol).containing_service.file

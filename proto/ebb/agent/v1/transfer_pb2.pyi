from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ("cluster_id", "job_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    job_id: int
    def __init__(self, cluster_id: _Optional[str] = ..., job_id: _Optional[int] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("store", "exists", "files", "modules", "machine", "folder", "would_dump")
    STORE_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    WOULD_DUMP_FIELD_NUMBER: _ClassVar[int]
    store: str
    exists: bool
    files: _containers.RepeatedCompositeFieldContainer[CheckpointFile]
    modules: _containers.RepeatedScalarFieldContainer[str]
    machine: str
    folder: str
    would_dump: bool
    def __init__(self, store: _Optional[str] = ..., exists: bool = ..., files: _Optional[_Iterable[_Union[CheckpointFile, _Mapping]]] = ..., modules: _Optional[_Iterable[str]] = ..., machine: _Optional[str] = ..., folder: _Optional[str] = ..., would_dump: bool = ...) -> None: ...

class CheckpointFile(_message.Message):
    __slots__ = ("path", "size", "modified_ns", "mode", "link")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    modified_ns: int
    mode: int
    link: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., modified_ns: _Optional[int] = ..., mode: _Optional[int] = ..., link: _Optional[str] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("cluster_id", "job_id", "file", "offset")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    job_id: int
    file: CheckpointFile
    offset: int
    def __init__(self, cluster_id: _Optional[str] = ..., job_id: _Optional[int] = ..., file: _Optional[_Union[CheckpointFile, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("data", "crc32", "compressed", "sha256")
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    crc32: int
    compressed: bool
    sha256: bytes
    def __init__(self, data: _Optional[bytes] = ..., crc32: _Optional[int] = ..., compressed: bool = ..., sha256: _Optional[bytes] = ...) -> None: ...

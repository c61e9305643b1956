import datetime

from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PostingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POSTING_KIND_UNSPECIFIED: _ClassVar[PostingKind]
    POSTING_KIND_OFFER: _ClassVar[PostingKind]
    POSTING_KIND_REQUEST: _ClassVar[PostingKind]

class PostingState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POSTING_STATE_UNSPECIFIED: _ClassVar[PostingState]
    POSTING_STATE_OPEN: _ClassVar[PostingState]
    POSTING_STATE_MATCHED: _ClassVar[PostingState]
    POSTING_STATE_WITHDRAWN: _ClassVar[PostingState]
    POSTING_STATE_EXPIRED: _ClassVar[PostingState]

class ExchangeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCHANGE_STATE_UNSPECIFIED: _ClassVar[ExchangeState]
    EXCHANGE_STATE_MATCHED: _ClassVar[ExchangeState]
    EXCHANGE_STATE_ACTIVE: _ClassVar[ExchangeState]
    EXCHANGE_STATE_RETURNED: _ClassVar[ExchangeState]

class BookingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BOOKING_KIND_UNSPECIFIED: _ClassVar[BookingKind]
    BOOKING_KIND_AGREED: _ClassVar[BookingKind]
    BOOKING_KIND_RETURNED: _ClassVar[BookingKind]
POSTING_KIND_UNSPECIFIED: PostingKind
POSTING_KIND_OFFER: PostingKind
POSTING_KIND_REQUEST: PostingKind
POSTING_STATE_UNSPECIFIED: PostingState
POSTING_STATE_OPEN: PostingState
POSTING_STATE_MATCHED: PostingState
POSTING_STATE_WITHDRAWN: PostingState
POSTING_STATE_EXPIRED: PostingState
EXCHANGE_STATE_UNSPECIFIED: ExchangeState
EXCHANGE_STATE_MATCHED: ExchangeState
EXCHANGE_STATE_ACTIVE: ExchangeState
EXCHANGE_STATE_RETURNED: ExchangeState
BOOKING_KIND_UNSPECIFIED: BookingKind
BOOKING_KIND_AGREED: BookingKind
BOOKING_KIND_RETURNED: BookingKind

class CellLot(_message.Message):
    __slots__ = ("pool", "level", "cells", "begin_time", "end_time", "device_us")
    POOL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    pool: str
    level: str
    cells: int
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    device_us: int
    def __init__(self, pool: _Optional[str] = ..., level: _Optional[str] = ..., cells: _Optional[int] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., device_us: _Optional[int] = ...) -> None: ...

class Posting(_message.Message):
    __slots__ = ("posting_id", "kind", "virtual_cluster", "lot", "bid_device_us", "swap", "state", "left", "post_time", "expire_time", "by_proxy")
    POSTING_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOT_FIELD_NUMBER: _ClassVar[int]
    BID_DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    SWAP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    POST_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    BY_PROXY_FIELD_NUMBER: _ClassVar[int]
    posting_id: int
    kind: PostingKind
    virtual_cluster: str
    lot: CellLot
    bid_device_us: int
    swap: CellLot
    state: PostingState
    left: int
    post_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    by_proxy: bool
    def __init__(self, posting_id: _Optional[int] = ..., kind: _Optional[_Union[PostingKind, str]] = ..., virtual_cluster: _Optional[str] = ..., lot: _Optional[_Union[CellLot, _Mapping]] = ..., bid_device_us: _Optional[int] = ..., swap: _Optional[_Union[CellLot, _Mapping]] = ..., state: _Optional[_Union[PostingState, str]] = ..., left: _Optional[int] = ..., post_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by_proxy: bool = ...) -> None: ...

class CellExchange(_message.Message):
    __slots__ = ("exchange_id", "offer_posting_id", "request_posting_id", "giver", "taker", "lot", "price_device_us", "state", "agree_time", "open_time", "return_time", "in_return_for", "return_asked_by")
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFER_POSTING_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_POSTING_ID_FIELD_NUMBER: _ClassVar[int]
    GIVER_FIELD_NUMBER: _ClassVar[int]
    TAKER_FIELD_NUMBER: _ClassVar[int]
    LOT_FIELD_NUMBER: _ClassVar[int]
    PRICE_DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGREE_TIME_FIELD_NUMBER: _ClassVar[int]
    OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    RETURN_TIME_FIELD_NUMBER: _ClassVar[int]
    IN_RETURN_FOR_FIELD_NUMBER: _ClassVar[int]
    RETURN_ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    exchange_id: int
    offer_posting_id: int
    request_posting_id: int
    giver: str
    taker: str
    lot: CellLot
    price_device_us: int
    state: ExchangeState
    agree_time: _timestamp_pb2.Timestamp
    open_time: _timestamp_pb2.Timestamp
    return_time: _timestamp_pb2.Timestamp
    in_return_for: int
    return_asked_by: str
    def __init__(self, exchange_id: _Optional[int] = ..., offer_posting_id: _Optional[int] = ..., request_posting_id: _Optional[int] = ..., giver: _Optional[str] = ..., taker: _Optional[str] = ..., lot: _Optional[_Union[CellLot, _Mapping]] = ..., price_device_us: _Optional[int] = ..., state: _Optional[_Union[ExchangeState, str]] = ..., agree_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., open_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., return_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., in_return_for: _Optional[int] = ..., return_asked_by: _Optional[str] = ...) -> None: ...

class LedgerEntry(_message.Message):
    __slots__ = ("virtual_cluster", "exchange_id", "kind", "device_us", "time")
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: str
    exchange_id: int
    kind: BookingKind
    device_us: int
    time: _timestamp_pb2.Timestamp
    def __init__(self, virtual_cluster: _Optional[str] = ..., exchange_id: _Optional[int] = ..., kind: _Optional[_Union[BookingKind, str]] = ..., device_us: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Surplus(_message.Message):
    __slots__ = ("virtual_cluster", "device_us")
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: str
    device_us: int
    def __init__(self, virtual_cluster: _Optional[str] = ..., device_us: _Optional[int] = ...) -> None: ...

class PostRequest(_message.Message):
    __slots__ = ("virtual_cluster", "request_id", "kind", "lot", "bid_device_us", "swap", "expire_time")
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LOT_FIELD_NUMBER: _ClassVar[int]
    BID_DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    SWAP_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: str
    request_id: str
    kind: PostingKind
    lot: CellLot
    bid_device_us: int
    swap: CellLot
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, virtual_cluster: _Optional[str] = ..., request_id: _Optional[str] = ..., kind: _Optional[_Union[PostingKind, str]] = ..., lot: _Optional[_Union[CellLot, _Mapping]] = ..., bid_device_us: _Optional[int] = ..., swap: _Optional[_Union[CellLot, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PostResponse(_message.Message):
    __slots__ = ("posting",)
    POSTING_FIELD_NUMBER: _ClassVar[int]
    posting: Posting
    def __init__(self, posting: _Optional[_Union[Posting, _Mapping]] = ...) -> None: ...

class WithdrawRequest(_message.Message):
    __slots__ = ("posting_id", "virtual_cluster")
    POSTING_ID_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    posting_id: int
    virtual_cluster: str
    def __init__(self, posting_id: _Optional[int] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class WithdrawResponse(_message.Message):
    __slots__ = ("posting",)
    POSTING_FIELD_NUMBER: _ClassVar[int]
    posting: Posting
    def __init__(self, posting: _Optional[_Union[Posting, _Mapping]] = ...) -> None: ...

class AcceptRequest(_message.Message):
    __slots__ = ("virtual_cluster", "request_id", "posting_id", "cells", "begin_time", "end_time")
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    POSTING_ID_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: str
    request_id: str
    posting_id: int
    cells: int
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, virtual_cluster: _Optional[str] = ..., request_id: _Optional[str] = ..., posting_id: _Optional[int] = ..., cells: _Optional[int] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AcceptResponse(_message.Message):
    __slots__ = ("exchanges",)
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    exchanges: _containers.RepeatedCompositeFieldContainer[CellExchange]
    def __init__(self, exchanges: _Optional[_Iterable[_Union[CellExchange, _Mapping]]] = ...) -> None: ...

class ReturnCellsRequest(_message.Message):
    __slots__ = ("exchange_id", "virtual_cluster")
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    exchange_id: int
    virtual_cluster: str
    def __init__(self, exchange_id: _Optional[int] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class ReturnCellsResponse(_message.Message):
    __slots__ = ("exchange",)
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    exchange: CellExchange
    def __init__(self, exchange: _Optional[_Union[CellExchange, _Mapping]] = ...) -> None: ...

class ListPostingsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "states", "virtual_cluster")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[PostingState]
    virtual_cluster: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[PostingState, str]]] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class ListPostingsResponse(_message.Message):
    __slots__ = ("postings", "next_page_token")
    POSTINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    postings: _containers.RepeatedCompositeFieldContainer[Posting]
    next_page_token: str
    def __init__(self, postings: _Optional[_Iterable[_Union[Posting, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListExchangesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "states", "virtual_cluster")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[ExchangeState]
    virtual_cluster: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[ExchangeState, str]]] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class ListExchangesResponse(_message.Message):
    __slots__ = ("exchanges", "next_page_token")
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    exchanges: _containers.RepeatedCompositeFieldContainer[CellExchange]
    next_page_token: str
    def __init__(self, exchanges: _Optional[_Iterable[_Union[CellExchange, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetLedgerRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "virtual_cluster")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    virtual_cluster: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class GetLedgerResponse(_message.Message):
    __slots__ = ("surpluses", "entries", "next_page_token")
    SURPLUSES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    surpluses: _containers.RepeatedCompositeFieldContainer[Surplus]
    entries: _containers.RepeatedCompositeFieldContainer[LedgerEntry]
    next_page_token: str
    def __init__(self, surpluses: _Optional[_Iterable[_Union[Surplus, _Mapping]]] = ..., entries: _Optional[_Iterable[_Union[LedgerEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

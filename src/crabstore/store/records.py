"""Records as compact JSON: the one place where a record becomes bytes and back.

Unknown fields survive a rewrite: what a newer version wrote is carried along by an older one (in the
instance's ``__dict__``, which msgspec never encodes) and written back in its place. Nothing here does I/O.
"""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from .errors import BadRecord, InvalidArgument

__all__ = ["Json", "Record", "canonical_time", "checked", "decode", "encode", "evolve", "rfc3339", "utc_now"]

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    Json = Any  # msgspec validates by annotation and knows no recursive alias; any JSON value it is

_CANONICAL = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z", re.ASCII
)
_UNKNOWN = "unknown_fields"


class Record(msgspec.Struct, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Base of every stored record. Fields are its JSON members; attributes outside them are not stored."""


R = TypeVar("R", bound=Record)

_encoder = msgspec.json.Encoder()
_decoders: dict[type[Record], msgspec.json.Decoder[Record]] = {}


def encode(record: Record) -> bytes:
    """The record as compact JSON, members that this version does not know included."""
    if not _carries_unknown(record):
        return _encoder.encode(record)
    return _encoder.encode(_members(record))


def checked(record: R, cls: type[R]) -> bytes:
    """`record` as compact JSON, proved to read back as the same record: what a caller hands in.

    Raises InvalidArgument if it is no `cls`, if a field has the wrong type, or if it holds what JSON cannot.
    """
    kind = cls.__name__
    if not isinstance(record, cls):
        raise InvalidArgument(kind, type(record).__name__, f"must be a {kind}")
    try:
        data = encode(record)
        same = decode(type(record), data) == record
    except (TypeError, ValueError, RecursionError, OverflowError, BadRecord) as error:
        why = error.why if isinstance(error, BadRecord) else str(error)
        raise InvalidArgument(kind, "record", why) from error
    if not same:
        raise InvalidArgument(
            kind, "record", "holds a value that JSON cannot (NaN, bytes, a set, a key that is no text)"
        )
    return data


def decode(cls: type[R], data: bytes, key: bytes = b"") -> R:
    """The record of type `cls` in `data`; `key` is only named in the error.

    Raises BadRecord if `data` is not JSON of that shape.
    """
    decoder = _decoders.get(cls)
    if decoder is None:
        decoder = _decoders[cls] = msgspec.json.Decoder(cls)
    try:
        # The strict decoder is the fast path; a member that it does not know sends the row the slow way.
        return decoder.decode(data)  # type: ignore[return-value]
    except msgspec.ValidationError:
        return _decode_unknown(cls, data, key)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(key, str(error)) from error


def evolve(record: R, **changes: object) -> R:
    """A copy with these fields changed; unknown members come along, the original stays as it was."""
    changed = copy.copy(record)
    changed.__dict__.update(record.__dict__)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def rfc3339(moment: datetime) -> str:
    """UTC RFC 3339 with six fractional digits: the form whose text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def canonical_time(text: str) -> str:
    """An RFC 3339 time as the store writes it, so that text order is time order.

    Raises InvalidArgument for what is no time, or names no zone.
    """
    if isinstance(text, str) and _CANONICAL.fullmatch(text):
        return text
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidArgument("time", text, "must be RFC 3339, such as 2026-03-01T14:00:00Z") from error
    if moment.tzinfo is None:
        raise InvalidArgument("time", text, "must name its zone: end it in Z or an offset")
    try:
        return rfc3339(moment)
    except (OverflowError, ValueError) as error:
        raise InvalidArgument("time", text, "lies outside the years 1 to 9999 in UTC") from error


def utc_now() -> str:
    """The present time as the store writes it."""
    return rfc3339(datetime.now(UTC))


def _decode_unknown(cls: type[R], data: bytes, key: bytes) -> R:
    try:
        row: dict[str, Json] = msgspec.json.decode(data, type=dict)
        return _build(cls, row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(key, str(error)) from error


def _build(cls: type[R], row: dict[str, Json]) -> R:
    """`row` as a `cls`, nested records built first so that each keeps its own unknown members."""
    names = set(cls.__struct_encode_fields__)
    known: dict[str, object] = {name: value for name, value in row.items() if name in names}
    nested: dict[str, Record] = {}
    for name, kind in _nested(cls).items():
        value = row.get(name)
        if isinstance(value, dict):
            nested[name] = _build(kind, value)
            known[name] = _members(nested[name], unknown=False)
    record = msgspec.convert(known, cls)
    for name, child in nested.items():
        setattr(record, name, child)
    unknown = {name: value for name, value in row.items() if name not in names}
    if unknown:
        record.__dict__[_UNKNOWN] = unknown
    return record


def _members(record: Record, *, unknown: bool = True) -> dict[str, object]:
    members: dict[str, object] = msgspec.to_builtins(record)
    for name in _nested(type(record)):
        child = getattr(record, name)
        if name in members and child is not None:
            members[name] = _members(child, unknown=unknown)
    if unknown:
        members.update(record.__dict__.get(_UNKNOWN, {}))
    return members


def _carries_unknown(record: Record) -> bool:
    if _UNKNOWN in record.__dict__:
        return True
    for name in _nested(type(record)):
        child = getattr(record, name)
        if child is not None and _carries_unknown(child):
            return True
    return False


@cache
def _nested(cls: type[Record]) -> dict[str, type[Record]]:
    """The fields of `cls` that are records themselves, optional ones included."""
    nested: dict[str, type[Record]] = {}
    for field in msgspec.structs.fields(cls):
        # `list[Record]` is no nested record: its members are rewritten whole by whoever rewrites the list.
        kinds = () if get_origin(field.type) in (list, dict) else (field.type, *get_args(field.type))
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Record):
                nested[field.name] = kind
    return nested

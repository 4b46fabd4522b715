"""From the bytes of a file to its contents: take the snapshot or replay the log, and judge what is damaged.

Reads only; whoever opens the store decides what to do about a torn tail or damage. Streaming: nothing is allocated
from a length that was not checked against the size of the file. An error of the medium is never taken for the end.

The durable point is how much of the file was once known to be on the medium. Damage before it is
corruption; damage at or after it is what a crash may leave behind, and is cut off.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

from crabdb.base import Base
from crabdb.errors import Corrupted
from crabdb.files import File
from crabdb.format import (
    FOOT_SIZE,
    FRAME_PREFIX,
    FRAME_SIZE,
    HEADER_SIZE,
    IDENTITY_KEY,
    IDENTITY_RECORD_SIZE,
    LENGTH,
    LOCATION,
    PUT,
    RECORD,
    RESERVED,
    SNAPSHOT_KEY,
    SNAPSHOT_PREFIX_SIZE,
    Foot,
    Frame,
    Header,
    Identity,
    Malformed,
    decode_fences,
    decode_foot,
    decode_frame,
    decode_header,
    decode_identity,
    decode_index,
    decode_snapshot,
    header_sum,
    salt_of_frame,
    snapshot_layout,
)
from crabdb.index import Index
from crabdb.replay import Damage, Maps, Replay, Snapshot, Unframed
from crabdb.steps import finish

__all__ = [
    "BIRTH_SIZE",
    "Recovered",
    "base_over",
    "recover",
    "recover_in_place",
    "replay_all",
    "replay_steps",
    "salt_of_frames",
    "trusted_foot",
]

BIRTH_SIZE: Final = HEADER_SIZE + IDENTITY_RECORD_SIZE + FRAME_SIZE
"""What a new store is made of; it appears by rename, whole and synced, so damage in it is never a torn tail."""

REPLAYED: Final = 1 << 16
"""How much is replayed in one step, bytes, unless a commit is longer: a millisecond's work at most."""

SCAN: Final = 1 << 20
"""How much is read at once in the search for frames beyond damage, bytes."""


@dataclass(slots=True)
class Recovered:
    """What a file holds. The good log ends at `end`; what is beyond it up to `size` is a torn tail, `torn`
    says why.

    `loose_at` is where records begin that no frame vouches for yet. `damage` is what was stepped over,
    empty unless salvaging. `last_frame` is where the last commit begins. `spoiled` counts damaged snapshots,
    which cost nothing but the time to replay; `abandoned` are those among them that nothing points at: being
    written, or left unfinished by a crash. With an `index` over a snapshot, `maps` is what lies over that.
    """

    maps: Maps
    size: int
    end: int
    identity: Identity | None
    identity_at: int
    prev_crc: int
    durable: int
    loose_at: int | None
    snapshot: Snapshot | None
    pointer_is_good: bool
    frames: int
    records: int
    spoiled: int
    abandoned: int
    last_frame: int | None
    torn: Damage | None
    damage: list[Damage]
    index: Index | None = None


def recover_in_place(file: File, path: Path, *, salvage: bool) -> Recovered:
    """As `recover`, but where nothing speaks against it, the entries of a snapshot stay in the file: then the
    result has an `index`, whose errors name `path`.
    """
    size = file.size()
    header = decode_header(file.read(HEADER_SIZE, 0))
    foot = trusted_foot(file, header, size)
    base = read_base(file, path, header, foot) if foot else None
    tail = _behind_snapshot(file, header, foot, size) if foot else None
    if base and tail:
        try:
            recovered = finish(_Judge(file, header, foot, size, salvage).steps(tail, _place(header)))
            recovered.index = Index(recovered.maps[:RESERVED], base)
            return recovered
        except (Unframed, Corrupted):
            # Another writer's records, and damage in snapshot and log, need somebody who knows all keys.
            pass
    return recover(file, salvage=salvage)


def recover(file: File, *, salvage: bool) -> Recovered:
    """The contents of a file.

    Raises `Damage` for damage before the durable point, unless `salvage`, which steps over it; `Malformed`
    if this is no version-1 file; `OSError` if the medium cannot be read.
    """
    size = file.size()
    header = decode_header(file.read(HEADER_SIZE, 0))
    foot = trusted_foot(file, header, size)
    start = _snapshot_start(file, header, foot, size) if foot else None
    if foot and start:
        recovered = finish(_Judge(file, header, foot, size, salvage).steps(start, _place(header)))
        if recovered.torn is None or recovered.loose_at is None:
            return recovered
    return finish(_replay_all(file, header, foot, size, salvage))


def replay_all(file: File, size: int) -> Recovered:
    """The contents of the first `size` bytes by replay alone, stepping over damage: what `verify` compares
    with.
    """
    return finish(replay_steps(file, size))


def replay_steps(file: File, size: int) -> Generator[int, None, Recovered]:
    """As `replay_all`, in steps, each of which says how far it has come."""
    header = decode_header(file.read(HEADER_SIZE, 0))
    return _replay_all(file, header, trusted_foot(file, header, size), size, True)


def _replay_all(
    file: File, header: Header, foot: Foot | None, size: int, salvage: bool
) -> Generator[int, None, Recovered]:
    replay = Replay(file, size)
    replay.vouched = _place(header) if foot else None
    replay.pointed = None if header.sum else (header.index_at, header.index_len)
    judge = _Judge(file, header, foot, size, salvage)
    recovered = yield from judge.steps(replay, None, _identity_damage(file, header, foot))
    if recovered.end == HEADER_SIZE and not recovered.damage and _anything_in(file, HEADER_SIZE, size):
        raise Malformed("what follows its header is no record")
    if header.sum and (header.index_at + header.index_len > file.size() or recovered.end == HEADER_SIZE):
        gone = Damage(min(size, recovered.end), "the file lacks what its header says is in it")
        if not salvage:
            raise gone
        recovered.damage.append(gone)
    return recovered


def _identity_damage(file: File, header: Header, foot: Foot | None) -> Damage | None:
    """The lack of the identity that a good header implies. Without it, all our records would look like another
    writer's.
    """
    if foot is None and not _is_plain(header):
        return None
    at = foot.identity_at if foot else HEADER_SIZE
    identity = _identity_at(file, at)
    if identity is not None and (foot is None or identity.salt == foot.salt):
        return None
    return Damage(at, "the identity of the store is damaged")


def _is_plain(header: Header) -> bool:
    """Whether this is the header that a store is born with."""
    return not header.index_len and header.sum == header_sum(header.index_at, 0, 0)


def _anything_in(file: File, start: int, end: int) -> bool:
    return any(any(file.read(min(SCAN, end - at), at)) for at in range(start, end, SCAN))


def _place(header: Header) -> Snapshot:
    at = header.index_at - SNAPSHOT_PREFIX_SIZE - FRAME_SIZE
    return Snapshot(at, header.index_at + header.index_len - at)


def trusted_foot(file: File, header: Header, size: int) -> Foot | None:
    """The foot of the snapshot that the header points at, if the header's sum says that they belong together."""
    end = header.index_at + header.index_len
    if not header.sum or end > size or header.index_len < FOOT_SIZE or header.index_at < BIRTH_SIZE:
        return None
    foot = decode_foot(file.read(FOOT_SIZE, end - FOOT_SIZE))
    if foot is None or header_sum(header.index_at, header.index_len, foot.root) != header.sum:
        return None
    if foot.identity_at >= header.index_at:
        return None
    return foot


def read_base(file: File, path: Path, header: Header, foot: Foot) -> Base | None:
    """The snapshot that a header points at, its entries left in the file; None on any doubt."""
    at, length = header.index_at, header.index_len
    try:
        layout = snapshot_layout(foot, length)
        data = file.read(length - FOOT_SIZE - layout.fences_at, at + layout.fences_at)
        if crc32(data, foot.salt) != foot.sum or file.read(LENGTH.size, at) != LENGTH.pack(foot.count):
            return None
        fences = decode_fences(data[: foot.fences_len], layout.blocks)
        return base_over(file, path, at, length, foot, fences=fences, sums=data[foot.fences_len :])
    except Malformed:
        return None


def base_over(
    file: File, path: Path, at: int, length: int, foot: Foot, *, fences: list[bytes], sums: bytes
) -> Base:
    """The snapshot whose value of so many bytes stands at byte `at` of a file of ours. Raises `Malformed`."""
    limit, replay = at - SNAPSHOT_PREFIX_SIZE - FRAME_SIZE, partial(_contents, file)
    return Base(file, path, at, length, foot, fences=fences, sums=sums, limit=limit, replay=replay)


def _contents(file: File) -> Maps | None:
    """What the log says, whatever it ends with; None if it is damaged."""
    recovered = replay_all(file, file.size())
    return None if recovered.damage else recovered.maps


def _behind_snapshot(
    file: File, header: Header, foot: Foot, size: int, maps: Maps | None = None
) -> Replay | None:
    """A replay that stands behind the snapshot, with these keys or else over a base; None on any doubt."""
    place = _place(header)
    frame = decode_frame(file.read(FRAME_SIZE, place.at), 0, foot.salt)
    identity = _identity_at(file, foot.identity_at)
    if frame is None or identity is None or frame.at != place.at or identity.salt != foot.salt:
        return None
    replay = Replay(file, size, maps, over_base=maps is None)
    replay.identify(identity, foot.identity_at)
    replay.follow(frame, place.at + place.size)
    return replay


def _snapshot_start(file: File, header: Header, foot: Foot, size: int) -> Replay | None:
    """As `_behind_snapshot`, with all entries of the snapshot taken in."""
    place = _place(header)
    maps: Maps = [{} for _ in range(RESERVED + 1)]
    try:
        for col, key, location in decode_snapshot(
            file.read(header.index_len, header.index_at), foot, place.at
        ):
            maps[col][key] = location
    except Malformed:
        return None
    maps[RESERVED] = {
        IDENTITY_KEY: LOCATION.pack(foot.identity_at, 0, 0),
        SNAPSHOT_KEY: LOCATION.pack(place.at + FRAME_SIZE, 0, 0),
    }
    return _behind_snapshot(file, header, foot, size, maps)


def _identity_at(file: File, at: int) -> Identity | None:
    data = file.read(IDENTITY_RECORD_SIZE, at)
    head = RECORD.pack(PUT, RESERVED, len(IDENTITY_KEY)) + IDENTITY_KEY
    if len(data) < IDENTITY_RECORD_SIZE or not data.startswith(head):
        return None
    return decode_identity(data[len(head) + LENGTH.size :])


@dataclass(slots=True)
class _Judge:
    """Runs a replay and decides about each damage: the end of the log, something to step over, or an error."""

    file: File
    header: Header
    foot: Foot | None
    size: int
    salvage: bool
    damage: list[Damage] = field(default_factory=list)
    durable: int = 0
    looked_ahead: bool = False

    def steps(
        self, replay: Replay, snapshot: Snapshot | None, found: Damage | None = None
    ) -> Generator[int, None, Recovered]:
        """Replay to the end, but judge the damage `found` before, if there is any."""
        torn = None if found is None else self._judge(replay, found)
        while torn is None:
            try:
                replay.run(REPLAYED)
                if replay.at >= self.size:
                    self._check_loose(replay)
                    break
            except Damage as damage:
                torn = self._judge(replay, damage)
            yield replay.at
        end = replay.at if torn is None else torn.offset
        if unfinished := replay.forget_unfinished(end, max(replay.durable, self.durable)):
            torn, end = unfinished, unfinished.offset
        return self._result(replay, snapshot, end, torn)

    def _result(self, replay: Replay, snapshot: Snapshot | None, end: int, torn: Damage | None) -> Recovered:
        return Recovered(
            maps=replay.maps,
            size=self.size,
            end=end,
            identity=replay.identity,
            identity_at=replay.identity_at,
            prev_crc=replay.prev_crc or 0,
            durable=max(replay.durable, self.durable, self._promised(snapshot, end)),
            loose_at=replay.loose_at,
            snapshot=snapshot,
            pointer_is_good=self._pointer_is_good(replay),
            frames=replay.frames,
            records=replay.records,
            spoiled=replay.spoiled,
            abandoned=replay.abandoned,
            last_frame=replay.last_frame,
            torn=torn,
            damage=self.damage,
        )

    def _pointer_is_good(self, replay: Replay) -> bool:
        points = self.header.index_len or (self.header.sum and not _is_plain(self.header))
        return bool(self.foot or replay.pointed_is_good or not points)

    def _judge(self, replay: Replay, found: Damage) -> Damage | None:
        """The torn tail that the log ends with, or None after the replay was set to go on beyond the damage."""
        salt = self._salt(replay)
        # Under another salt than the one until now, the frame that could not be read may be a good one.
        boundary = found.offset if replay.loose_at is None else min(found.offset, replay.loose_at)
        start = boundary + (salt == replay.salt)
        ahead = () if salt is None else find_frames(self.file, start, self.size, salt)
        following = self._look_ahead(replay, ahead)
        if following is not None or (salt is not None and found.offset < self.durable):
            # Somebody vouched for the loose records before this point, but that cannot be checked any more.
            found = Damage(min(found.offset, replay.forget_loose()), found.problem)
        if found.offset >= self.durable:
            return found
        if not self.salvage:
            raise found
        self.damage.append(Damage(found.offset, found.problem, following.at if following else self.size))
        if following is None:
            return Damage(found.offset, "nothing intact follows")
        replay.resume(following, salt)
        return None

    def _check_loose(self, replay: Replay) -> None:
        """No record without a frame holds a frame of this file: one that does has a damaged length."""
        salt = None if replay.loose_at is None else self._salt(replay)
        if replay.loose_at is None or salt is None:
            return
        if next(find_frames(self.file, replay.loose_at + 1, self.size, salt), None) is not None:
            raise Damage(replay.loose_at, "a record without a commit reaches over the commits behind it")

    def _salt(self, replay: Replay) -> int | None:
        """The file's salt, which the frames themselves give if the identity is damaged."""
        if self.foot:
            return self.foot.salt
        if replay.frames:
            return replay.salt
        found = salt_of_frames(self.file, self.size)
        return replay.salt if found is None else found

    def _look_ahead(self, replay: Replay, ahead: Iterable[Frame]) -> Frame | None:
        """The next intact frame; the first time, the durable point is learnt from all that follow."""
        frames = iter(ahead)
        following = next(frames, None)
        if not self.looked_ahead:
            self.looked_ahead = True
            claims = [following.durable, *(frame.durable for frame in frames)] if following else []
            self.durable = max(replay.durable, self._born_durable(replay), *claims)
        return following

    def _promised(self, snapshot: Snapshot | None, end: int) -> int:
        """What a header with a good sum vouches for: it is written when its snapshot is on the medium."""
        return min(snapshot.at + snapshot.size, end) if self.foot and snapshot else 0

    def _born_durable(self, replay: Replay) -> int:
        """What was on the medium whatever the frames say: what the header points at, or what a store is born
        with.
        """
        end = self.header.index_at + self.header.index_len
        summed = self.header.sum and (self.foot or replay.salt is not None)
        if self.header.index_len and (summed or self._points_at_an_index()):
            return end
        born = replay.identity_at == HEADER_SIZE or _is_plain(self.header)
        return BIRTH_SIZE if born else 0

    def _points_at_an_index(self) -> bool:
        """Whether another writer's header points at what its checkpoint would have left there."""
        at, length = self.header.index_at, self.header.index_len
        if not length or at < HEADER_SIZE or at + length > self.size:
            return False
        try:
            return all(entry.offset < at for entry in decode_index(self.file.read(length, at)))
        except Malformed:
            return False


def salt_of_frames(file: File, size: int) -> int | None:
    """The salt under which something in a file is a frame, and another thing behind it too, or what is where the
    first one stands in a new store. None if there is no such thing.
    """
    for at, salt in _possible_salts(file, size):
        others = find_frames(file, at + 1, size, salt)
        if next(others, None) is not None or at == BIRTH_SIZE - FRAME_SIZE == size - FRAME_SIZE:
            return salt
    return None


def _possible_salts(file: File, size: int) -> Iterator[tuple[int, int]]:
    for at, data, place in _frame_prefixes(file, HEADER_SIZE, size):
        salt = salt_of_frame(data, place, at)
        if salt is not None:
            yield at, salt


def find_frames(file: File, start: int, size: int, salt: int) -> Iterator[Frame]:
    """Every head of a frame of this file at or after `start`, wherever the damage left the reader."""
    for at, data, place in _frame_prefixes(file, start, size):
        frame = decode_frame(data, place, salt)
        if frame is not None and frame.at == at:
            yield frame


def _frame_prefixes(file: File, start: int, size: int) -> Iterator[tuple[int, bytes, int]]:
    """Where in the file something begins like a frame, a piece of it, and the place in that."""
    for at in range(start, size, SCAN):
        data = file.read(min(SCAN + FRAME_SIZE - 1, size - at), at)
        place = data.find(FRAME_PREFIX)
        while 0 <= place < SCAN:
            yield at + place, data, place
            place = data.find(FRAME_PREFIX, place + 1)

"""The judgement numbers of a store, each with its meaning and when to leave it alone."""

import math
from dataclasses import dataclass
from typing import Literal

from crabdb.errors import InvalidArgument

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a store behaves. The defaults suit a store of a few megabytes to a few gigabytes.

    Raises `InvalidArgument` for a value outside of its range.
    """

    compact_at: float = 0.5
    """The share of dead bytes, above 0 and at most 1, from which the file is compacted. Lower saves disk and
    rewrites live data more often. Leave it unless the disk is small."""
    compact_min: int = 1 << 20
    """How many bytes a compaction must free to be worth it. Leave it: below a mebibyte, small stores would be
    rewritten all the time."""
    snapshot_at: float = 0.25
    """A checkpoint writes a new snapshot of the index once the log has grown by this share of the last one, not
    negative. Higher means fewer dead bytes and more to replay at the next opening."""
    sync: Literal["checkpoint", "always"] = "checkpoint"
    """When commits reach the medium. "checkpoint": at `sync` and `checkpoint`; a call that returned survives the
    end of the process, and those decide when it survives loss of power. "always": before a commit returns;
    threads that commit at the same time share one fsync."""
    maintenance: Literal["commits", "caller"] = "commits"
    """Who takes the steps of a compaction that is due. "commits": each commit takes a few, so that none takes
    long. "caller": nobody but who calls `CrabDB.maintenance`, such as a program with an event loop."""
    torn_limit: int = 16 << 20
    """How many bytes of a torn tail are kept in a file beside the store when it is cut off; 0: none."""

    def __post_init__(self) -> None:
        if not 0 < self.compact_at <= 1:
            raise InvalidArgument("compact_at", f"must be above 0 and at most 1, not {self.compact_at!r}")
        if not (self.snapshot_at >= 0 and math.isfinite(self.snapshot_at)):
            raise InvalidArgument("snapshot_at", f"must be a number from 0, not {self.snapshot_at!r}")
        if self.sync not in ("checkpoint", "always"):
            raise InvalidArgument("sync", f'must be "checkpoint" or "always", not {self.sync!r}')
        if self.maintenance not in ("commits", "caller"):
            raise InvalidArgument("maintenance", f'must be "commits" or "caller", not {self.maintenance!r}')
        for name in ("compact_min", "torn_limit"):
            if getattr(self, name) < 0:
                raise InvalidArgument(name, f"must not be negative, as {getattr(self, name)!r} is")

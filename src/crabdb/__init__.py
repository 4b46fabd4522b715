"""crabdb: an ordered key-value store in one append-only file that survives crashes. See `CrabDB`."""

from crabdb.backup import Progress, run_steps
from crabdb.batch import Batch
from crabdb.db import CrabDB
from crabdb.errors import (
    AccessDenied,
    Closed,
    Corrupted,
    CrabDBError,
    DiskFull,
    Exists,
    InvalidArgument,
    IOFailed,
    Locked,
    NotCrabDB,
    NotFound,
    ReadFailed,
    ReadOnly,
    StoreFailed,
    Unsupported,
)
from crabdb.options import Options
from crabdb.repair import Key, Lost, Repaired, repair, repair_steps
from crabdb.report import Stats, Verification
from crabdb.steps import Step

__all__ = [
    "AccessDenied",
    "Batch",
    "Closed",
    "Corrupted",
    "CrabDB",
    "CrabDBError",
    "DiskFull",
    "Exists",
    "IOFailed",
    "InvalidArgument",
    "Key",
    "Locked",
    "Lost",
    "NotCrabDB",
    "NotFound",
    "Options",
    "Progress",
    "ReadFailed",
    "ReadOnly",
    "Repaired",
    "Stats",
    "Step",
    "StoreFailed",
    "Unsupported",
    "Verification",
    "repair",
    "repair_steps",
    "run_steps",
]

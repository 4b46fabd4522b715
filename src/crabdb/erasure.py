"""What crabdb itself has put beside a store and may hold bytes of what was deleted since, and removing it.

Torn tails that were cut off, and damaged originals that a repair kept. It never touches a name that crabdb does
not give.
"""

import re
from pathlib import Path

from crabdb.files import Files

__all__ = ["remove_saved"]


def remove_saved(files: Files, path: Path) -> tuple[Path, ...]:
    """Remove what was saved beside the store at `path`, its lock being held; which files those were.

    Raises `OSError`.
    """
    ours = re.compile(re.escape(path.name) + r"\.(torn|damaged)-\d+")
    saved = tuple(path.with_name(name) for name in sorted(files.names(path.parent)) if ours.fullmatch(name))
    for name in saved:
        files.remove(name)
    if saved:
        files.sync_directory(path.parent)
    return saved

"""What a run tells, as JSON: kinds and members are documented, and stable. Pure but for the run's end."""

from __future__ import annotations

import msgspec

from ..answers.documents import Document
from ..answers.failures import failure_document
from ..runtime import HarnessFailed, MessageStored, Retrying, Run, RunEvent, TextDelta, ThinkingDelta
from ..store.messages import HistoryEntry
from .failures import EXPECTED, explain

__all__ = ["ended", "told"]


def told(event: RunEvent) -> tuple[str, Document]:
    """The kind of an event, and its members."""
    match event:
        case TextDelta(text):
            return "text", {"text": text}
        case ThinkingDelta(text):
            return "thinking", {"text": text}
        case MessageStored(entry):
            return "message", _message(entry)
        case Retrying(error, attempt, delay):
            failure = failure_document(explain(error))
            return "retrying", {**failure, "attempt": attempt, "delay": delay}
        case HarnessFailed(harness, hook, error):
            shown = f"{type(error).__name__}: {error}"
            return "harness_failed", {"harness": harness, "hook": hook, "message": shown}
    line: Document = msgspec.to_builtins(event)
    return str(line.pop("event")), line


async def ended(run: Run) -> tuple[str, Document]:
    """How a run ended: its result, or the error that it failed with; and what was said and never stored."""
    await run.wait()
    untaken = [entry.text for entry in run.untaken]
    try:
        result = await run.result()
    except EXPECTED as error:
        return "error", {**failure_document(explain(error)), "untaken": untaken}
    return "result", {
        "text": result.text,
        "stop_reason": result.stop_reason,
        "iterations": result.iterations,
        "usage": result.usage.members(),
        "untaken": untaken,
    }


def _message(entry: HistoryEntry) -> Document:
    return {
        "id": entry.id,
        "role": entry.role,
        "ts": entry.ts,
        "mark": entry.mark,
        "text": entry.text,
        "format": entry.format,
        "message": entry.message,
    }

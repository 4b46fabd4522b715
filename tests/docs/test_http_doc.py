"""The page of the HTTP interface says what is: operations, events, errors and metrics."""

from __future__ import annotations

import re
from pathlib import Path

from crabstore.daemon.api import app
from crabstore.daemon.api.app import OPERATIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
DAEMON = Path(app.__file__).parents[1]
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in DAEMON.rglob("*.py"))


def table(head: str) -> list[list[str]]:
    """The cells of the table that begins with this head."""
    lines = PAGE[PAGE.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" ") for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_operation_is_on_the_page_and_only_those() -> None:
    described = [row[0].strip("`") for row in table("| operation |")]
    known = [f"{operation.method} {operation.path}" for operation in OPERATIONS.all]
    assert sorted(described) == sorted([*known, "GET /openapi.json"])


def test_the_parameters_of_an_operation_are_named_where_it_is_described() -> None:
    rows = {row[0].strip("`"): row[1] for row in table("| operation |")}
    for operation in OPERATIONS.all:
        told = rows[f"{operation.method} {operation.path}"]
        missing = [
            name
            for name in operation.query.__struct_fields__
            if name != "wait" and f"`{name}" not in told  # told of under "A run"
        ]
        assert not missing, f"{operation.path}: {missing}"


def test_the_events_are_those_of_the_program() -> None:
    told = {row[0].strip("`") for row in table("| event |")}
    used = set(re.findall(r'(?:return|_event\(|ToldEvent\(number, )\s*"(\w+)", ', SOURCE)) - {"progress"}
    assert told == used | {"tool_start", "tool_result", "done"}


def test_the_errors_of_a_request_are_those_of_the_program() -> None:
    told = {(row[0].strip("`"), int(row[1])) for row in table("| kind |")}
    used = {
        (kind, int(status)) for status, kind in re.findall(r'BadRequest\(\s*(\d+),\s*"([a-z-]+)"', SOURCE)
    }
    assert told == used | {("defect", 500)}


def test_the_metrics_are_those_of_the_program() -> None:
    assert set(re.findall(r"crabstore_\w+", PAGE)) == set(re.findall(r'"(crabstore_\w+)"', SOURCE))

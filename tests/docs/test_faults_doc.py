"""The table of faults and the map of hazards name tests that exist, and leave none out."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading of a page."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def functions(folder: str) -> dict[str, ast.FunctionDef]:
    """The tests of a folder by name."""
    return {
        node.name: node
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def tallied(test: ast.FunctionDef) -> list[str]:
    """What a test says that it injects, and how."""
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    says = next(call for call in calls if ast.unparse(call.func) == "tally.of")
    return [ast.literal_eval(argument) for argument in says.args]


def test_the_table_of_faults_has_a_row_for_every_test_that_injects_one() -> None:
    listed = {row[4].strip("`"): row[:2] for row in rows("durability.md", "Every fault, tried")}
    assert listed == {name: tallied(test) for name, test in functions("faults").items()}


def test_every_fault_of_the_table_was_injected_and_something_came_of_it() -> None:
    for row in rows("durability.md", "Every fault, tried"):
        times = int(row[2].replace(",", ""))
        outcomes = [int(number.replace(",", "")) for number in re.findall(r": ([\d,]*\d)", row[3])]
        assert times == sum(outcomes) > 0


def test_every_known_hazard_has_a_test_or_a_reason_why_there_is_none() -> None:
    earlier = rows("hazards.md", "An earlier implementation of this format")
    public = rows("hazards.md", "Kinds of failure seen in public")
    assert [row[0] for row in earlier] == [f"D-{number:02}" for number in range(1, 53)]
    assert [row[0] for row in public] == [str(number) for number in range(1, 69)]
    known = functions(".")
    for row in (*earlier, *public):
        assert len(row[-1]) > 10
        for name in re.findall(r"test_\w+", row[-1]):
            assert name in known, name

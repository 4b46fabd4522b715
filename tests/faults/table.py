"""A pytest plugin that prints each fault, how it was injected, how many times, and what happened."""

import json
from collections import Counter

import pytest

Row = tuple[str, str, str]

rows: dict[Row, Counter[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take in the tally of a test that is over."""
    for name, text in report.user_properties if report.when == "teardown" else ():
        if name == "faults":
            fault, how, test, outcomes = json.loads(str(text))
            rows.setdefault((fault, how, test), Counter()).update(outcomes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table as Markdown."""
    terminalreporter.section("faults")
    terminalreporter.line("| fault | injected by | times | what happened | test |")
    terminalreporter.line("| --- | --- | ---: | --- | --- |")
    for (fault, how, test), outcomes in sorted(rows.items(), key=lambda row: row[0][2]):
        happened = ", ".join(f"{outcome}: {times:,}" for outcome, times in outcomes.most_common())
        terminalreporter.line(
            f"| {fault} | {how} | {outcomes.total():,} | {happened or 'skipped'} | `{test}` |"
        )

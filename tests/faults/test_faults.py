"""Jobs whose file operations fail, and jobs that are stopped or killed, as SQLite tests itself.

After each, the old result or the new one is there as a whole, the message is one sentence, and the next run leads to
the files of an undisturbed run and leaves nothing else. The normal suite runs a sample.
"""

import pytest

from helpers.faults import READS, compile_library, disturb

ERRORS = ["ENOSPC", "EACCES", "EIO", "EINTR", "SHORT", "KILL"]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    library = compile_library(tmp_path_factory.mktemp("library"))
    if library is None:
        pytest.skip("needs Linux and a C compiler, cc")
    return library


def assert_no_problems(reports: list[dict]):
    problems = [problem for report in reports for problem in report["problems"]]
    assert problems == []
    for report in reports:
        assert report["cases"] and report["failed"]


def test_sample(library, tmp_path):
    reports = disturb(
        library,
        tmp_path,
        {"job": "embed", "errors": ERRORS, "every": 5},
        {"job": "export", "errors": ERRORS, "every": 7, "start": 2},
        {"job": "quantize", "errors": ERRORS, "every": 37, "start": 3},
        {"job": "convert", "errors": ERRORS, "every": 29},
        {"job": "push", "errors": ["EIO", "EACCES"], "kinds": READS, "every": 17},
        {"job": "pretrain", "errors": ERRORS, "every": 151, "start": 6},
        {"job": "resume", "errors": ["KILL", "EIO"], "every": 190, "start": 40},
        {"job": "embed", "signals": ["SIGKILL", "SIGINT", "SIGTERM"], "times": 3, "seed": 0},
        {"job": "pretrain", "signals": ["SIGKILL"], "times": 1, "seed": 0},
    )
    assert_no_problems(reports[:7])
    assert [report["problems"] for report in reports[7:]] == [[], []]  # the signals may have come too late


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("job", ["embed", "quantize", "export", "convert", "push", "pretrain", "resume"])
def test_every_operation(library, tmp_path, job):
    """Every operation fails once with each error."""
    plans = [{"job": job, "errors": [error]} for error in ERRORS]
    plans += [{"job": job, "errors": [error], "persistent": True} for error in ("ENOSPC", "EIO")]
    if job in ("pretrain", "resume"):  # a case takes seconds: one error for each operation
        plans = [
            {"job": job, "errors": ERRORS},
            {"job": job, "errors": ["ENOSPC", "EIO"], "persistent": True, "every": 9},
        ]
    if job == "push":  # it writes nothing
        plans = [{"job": job, "errors": [error], "kinds": READS} for error in ("EIO", "EACCES", "SHORT", "KILL")]
    reports = disturb(library, tmp_path, *plans)
    assert [problem for report in reports for problem in report["problems"]] == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("job", ["embed", "quantize", "export", "convert", "push", "pretrain", "resume"])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_signals_at_random_moments(library, tmp_path, job, name):
    times = 5 if job in ("pretrain", "resume") else 40
    [report] = disturb(library, tmp_path, {"job": job, "signals": [name], "times": times, "seed": None})
    assert report["problems"] == []

"""`elmo convert` and `elmo export` in this process, and their errors."""

import contextlib
import resource
import warnings

from helpers.command import run
from transformers_elmo.configuration_elmo import HUB_FILES

CHECKPOINT_FILES = {
    "README.md",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    *HUB_FILES,
}
HIDDEN_WARNINGS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def elmo(capfd, *arguments) -> tuple[int, str, str]:
    """Run `elmo ARGUMENTS`, which must not emit Python warnings; return its exit code, stdout and stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(capfd, *arguments)
    assert [str(warning.message) for warning in caught if not issubclass(warning.category, HIDDEN_WARNINGS)] == []
    return result


def assert_error(result, *parts):
    """Assert that the command failed with one line that contains the parts, without a traceback."""
    code, _, err = result
    assert code == 1, err
    assert err.startswith("elmo: error: ") and err.count("\n") == 1
    for part in parts:
        assert str(part) in err


@contextlib.contextmanager
def file_size_limit(size: int):
    """Make writes beyond this file size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

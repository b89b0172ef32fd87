"""Run the `elmo` command in this process, and check its error messages."""

from transformers_elmo.command import main


def run(capsys, *arguments):
    """Return the exit code, standard output and standard error of `elmo ARGUMENTS`."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    return code, *capsys.readouterr()


def assert_one_sentence(result, *parts):
    """Assert that the command failed with a one-line message that contains the parts, and without a traceback."""
    code, out, err = result
    assert code not in (0, None)
    assert out == ""
    assert err.startswith("elmo: error: ") and err.count("\n") == 1
    for part in parts:
        assert str(part) in err

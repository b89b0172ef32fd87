"""The `elmo` command in this process, and what its errors look like."""

from transformers_elmo.command import main


def run(capsys, *arguments):
    """Exit code, standard output and standard error of `elmo ARGUMENTS`."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    return code, *capsys.readouterr()


def assert_one_sentence(result, *parts):
    """It failed, with one line that holds the parts, and without a traceback."""
    code, out, err = result
    assert code not in (0, None)
    assert out == ""
    assert err.startswith("elmo: error: ") and err.count("\n") == 1
    for part in parts:
        assert str(part) in err

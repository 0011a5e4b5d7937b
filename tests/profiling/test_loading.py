"""Finding the user's function."""

import pytest

from flwr_mel.profiling.loading import load_function


@pytest.mark.parametrize("where", ["my_app:train", "my_app.py:train", "{}/my_app.py:train"])
def test_functions_are_found(app, where, capsys):
    load_function(where.format(app))(samples=1, epochs=1)
    assert capsys.readouterr().out == "hello from the function\n"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("my_app", "train must be module:function or path/file.py:function, got 'my_app'"),
        (":train", "module:function"),
        ("my_app:", "module:function"),
        ("my_app:a.b", "module:function"),
        ("missing.py:train", "can be imported, got FileNotFoundError from missing.py: there is no such file"),
        ("missing:train", "can be imported, got ModuleNotFoundError from missing"),
        ("bad.py:train", "got ModuleNotFoundError from bad.py: .*nowhere_to_be_found"),
        ("my_app.py:tarin", "It has: fails, nothing, swapped, train"),
        ("my_app.py:number", r"can be called as train\(samples=100, epochs=1\), got 3"),
        ("my_app.py:swapped", r"got 'train\(n, tau\)'. Missing a required argument"),
    ],
)
def test_functions_that_cannot_be_loaded(app, where, message):
    with pytest.raises(ValueError, match=message):
        load_function(where)

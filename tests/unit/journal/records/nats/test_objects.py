import pytest

from dejaqueue.journal.records.nats.objects import Pieces, _name, _tokens


@pytest.mark.parametrize(
    "name", ["a", "a/b", "a.b/c-d_e", "/", "a//b/", ".", "~", "%", "=41", "a b", "é*>", "a%2e"]
)
def test_a_name_is_tokens_and_back(name: str) -> None:
    tokens = _tokens(name)
    assert _name(tokens) == name
    assert not set(tokens) & set(" *>\t/")
    assert "" not in tokens.split(".")
    assert tokens.count(".") == name.count("/")


def test_pieces_are_read_as_they_were_written() -> None:
    pieces = Pieces("m", 2, 5, "sum", 7)
    assert Pieces.from_bytes(pieces.to_bytes()) == pieces

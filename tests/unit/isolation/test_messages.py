import io
import os
import pickle
import sys
from pathlib import Path

import pytest

from autoquant.errors import DataError
from autoquant.isolation.messages import Answer, Request, Start, receive, send

MODULE = "made_elsewhere"


def test_messages_come_one_by_one_in_their_order_and_then_there_are_none() -> None:
    stream = io.BytesIO()
    sent = [Request("count", ()), Answer(value=[1.5, "a"], warnings=("slow",)), Request("say", ("x", b"y"))]
    for message in sent:
        send(stream, message)
    stream.seek(0)
    assert [receive(stream) for _ in sent] == sent
    with pytest.raises(EOFError):
        receive(stream)


def test_an_error_is_sent_with_its_type_and_its_words() -> None:
    stream = io.BytesIO()
    send(stream, Answer(error=DataError("these are no data")))
    stream.seek(0)
    found: Answer = receive(stream)
    assert isinstance(found.error, DataError)
    assert str(found.error) == "these are no data"


def test_a_message_is_there_as_soon_as_it_is_sent() -> None:
    ready, told = os.pipe()
    with open(ready, "rb") as reader, open(told, "wb") as writer:
        os.set_blocking(ready, False)
        send(writer, Request("count", ()))
        assert receive(reader) == Request("count", ())


def test_the_other_process_can_read_where_modules_are_before_it_makes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{MODULE}.py").write_text("def make():\n    return 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    stream = io.BytesIO()
    send(stream, Start(__import__(MODULE).make, 10**9, (0, 2), (str(tmp_path),)))
    stream.seek(0)
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, MODULE)
    found: Start = receive(stream)
    assert (found.memory_bytes, found.affinity, found.path) == (10**9, (0, 2), (str(tmp_path),))
    assert isinstance(found.factory, bytes)
    with pytest.raises(ModuleNotFoundError, match=MODULE):
        pickle.loads(found.factory)
    monkeypatch.syspath_prepend(*found.path)
    assert pickle.loads(found.factory)() == 7
    sys.modules.pop(MODULE)


def test_of_a_factory_that_cannot_be_sent_nothing_is() -> None:
    stream = io.BytesIO()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        send(stream, Start(lambda: None, None, (), ("x" * 10**6,)))
    assert stream.getvalue() == b""

"""What is written can be read: members that were assigned unchecked, and numbers beyond a double."""

from typing import Any, get_args

import pytest

from shared.protocol import events as ag
from shared.protocol.magnitude import fits_doubles

CLASSES = get_args(get_args(ag.Event)[0])
STRANGE: list[Any] = [None, "", "strange", 5, -5, 2**80, 1.5, True, b"x", [], {}, [None], [{"a": 1}]]


def made(cls: type[Any]) -> Any:
    """An event of a class, unchecked: every text member and every choice has a value."""
    members: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        if field.is_required():
            choices = [each for each in get_args(field.annotation) if isinstance(each, str)]
            members[name] = choices[0] if choices else {} if "Any" in str(field.annotation) else "x"
    return cls.model_construct(**members)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_event_is_refused_or_can_be_read_whatever_was_assigned(cls: type[Any]):
    written = 0
    for name in cls.model_fields:
        if name == "type":
            continue
        for value in STRANGE:
            event = made(cls)
            event.__dict__[name] = value
            try:
                data = ag.dump(event)
            except ag.SerializationError:
                continue
            assert type(ag.parse(data)) is cls
            written += 1
    assert written or cls in {ag.MessagesSnapshotEvent, ag.StateDeltaEvent, ag.ActivityDeltaEvent}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("timestamp", 1_796_051_117_038_467_996),
        ("message_id", None),
        ("role", "nobody"),
        ("timestamp", "now"),
    ],
)
def test_a_member_that_was_spoilt_later_is_refused(member: str, value: Any):
    event = ag.TextMessageStartEvent(message_id="m", role="assistant")
    setattr(event, member, value)
    with pytest.raises(ag.SerializationError, match="TEXT_MESSAGE_START has no JSON form"):
        ag.dump(event)


def test_a_member_that_was_never_set_is_refused():
    with pytest.raises(ag.SerializationError):
        ag.dump(ag.TextMessageContentEvent.model_construct(message_id="m"))


@pytest.mark.parametrize("number", [10**310, -(10**400), 10**5000], ids=["310", "400", "5000"])
def test_a_number_beyond_a_double_is_refused(number: int):
    for event in (ag.CustomEvent(name="n", value=[number]), ag.StateSnapshotEvent(snapshot={"n": number})):
        with pytest.raises(ag.SerializationError):
            ag.dump(event)


@pytest.mark.parametrize("number", [10**308, -(2**70), 1e308, 5e-324])
def test_a_number_within_a_double_is_written(number: float):
    assert ag.parse(ag.dump(ag.CustomEvent(name="n", value=number)))


def test_digits_in_texts_are_no_numbers():
    for text in ("9" * 5000, "1e999", "E+400"):
        assert ag.parse(ag.dump(ag.CustomEvent(name="n", value={"text": text}))).value == {"text": text}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("part", [b"9" * 299 + b",", b"1e99,", b"e+00", b"9"])
def test_the_look_at_numbers_takes_linear_time(part: bytes):
    fits_doubles(b"[" + part * (8_000_000 // len(part)) + b"1]")

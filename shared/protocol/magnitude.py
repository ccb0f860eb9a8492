"""How large the numbers of a JSON text are, looked at before they become Python's boundless integers."""

import orjson

# Every digit as a zero, so that long runs of digits are found by a plain search in linear time.
_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
_SUSPICIOUS = (b"0" * 300, b"e000", b"e+000")


def fits_doubles(text: bytes) -> bool:
    """Whether every number of a JSON text fits a double, the only kind of number that browsers have.

    Digits inside strings do not count. Of a text that is not strict JSON the answer may be either.
    """
    zeros = text.translate(_AS_ZEROS)
    if not any(sign in zeros for sign in _SUSPICIOUS):
        return True
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True

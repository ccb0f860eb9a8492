"""How deeply a JSON text nests, measured on its bytes before anything parses it."""

import re

# Possessive and with an optional closing quote, so that a text of nothing but quotes stays linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_OPENERS = b"[{"


def nests_deeper_than(text: bytes, limit: int) -> bool:
    """Whether some value of the JSON text sits inside more than ``limit`` arrays and objects.

    Brackets inside strings do not count. Malformed texts get an answer too, in linear time;
    whether the text is JSON at all is for the parser to say.
    """
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", text).translate(None, _ALL_BUT_BRACKETS):
        if bracket in _OPENERS:
            depth += 1
            if depth > limit:
                return True
        else:
            depth -= 1
    return False

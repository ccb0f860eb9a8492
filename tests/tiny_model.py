"""A language model of a few hundred tokens, made here: it speaks fixed sentences, one token after the other.

A real inference server loads it like any other model (GGUF, a llama architecture). Its only layer does
nothing, so the next token depends on the last one alone; the chat template picks the first token from what
was said last, and from there each sentence below runs to its end.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

_WIDTH = 128
_INNER = 32
_ALIGNMENT = 32
_STRINGS, _FLOATS, _INTEGERS = 8, 6, 5
_UNKNOWN, _CONTROL, _WORD, _BYTE = 2, 3, 4, 6

_END = "</tool_call>"


def _spelled(length: int) -> list[str]:
    """The mark in front of a call in two tokens; each call has its own, because a token has one follower."""
    mark = "<tool_call>\n"
    return [mark[:length], mark[length:]]


SENTENCES: dict[str, list[str]] = {
    "<|hello|>": ["Hel", "lo", " there"],
    "<|answer|>": ["It", " is", " 21", " degrees", "."],
    "<|sorry|>": ["I", " could", " not", " do", " that", "."],
    "<|weather|>": [
        *_spelled(5),
        '{"name": "get',
        '_weather", "arguments": {"city": "',
        "Par",
        'is"}}\n',
        _END,
    ],
    "<|both|>": [
        "Both",
        *_spelled(6),
        '{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>\n',
        *_spelled(7),
        '{"name": "get_time", "arguments": {"zone": 2}}\n',
        _END,
    ],
    "<|delete|>": [*_spelled(8), '{"name": "delete_file", "arguments": {"path": "/tmp/a"}}\n', _END],
}
"""What is said after each of the tokens that a prompt may end with."""

ENDLESS = "<|endless|>"
"""After this one the model says ``la`` for ever."""

TEMPLATE = """{%- for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<tool_response>
{{ message.content }}
</tool_response>
{%- elif message.role == 'assistant' %}<|assistant|>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|end|>
{%- else %}<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>
{%- set last = messages[-1] %}
{%- if last.role == 'tool' %}{{ '<|sorry|>' if 'error' in last.content else '<|answer|>' }}
{%- elif 'sing' in last.content %}<|endless|>
{%- elif not tools %}<|hello|>
{%- elif 'both' in last.content %}<|both|>
{%- elif 'delete' in last.content %}<|delete|>
{%- elif 'weather' in last.content %}<|weather|>
{%- else %}<|hello|>
{%- endif %}
{%- endif %}"""


def write_model(path: Path) -> None:
    """Writes the model as one GGUF file, version 3."""
    marks = ["<|assistant|>", "<|end|>", "<|user|>", "<|system|>", *SENTENCES, ENDLESS]
    words = [*dict.fromkeys(word for sentence in SENTENCES.values() for word in sentence), "la"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *marks, *words]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_CONTROL] * len(marks), *[_WORD] * len(words)]
    facts: list[tuple[str, bytes]] = [
        ("general.architecture", _text("llama")),
        ("llama.context_length", _integer(4096)),
        ("llama.embedding_length", _integer(_WIDTH)),
        ("llama.block_count", _integer(1)),
        ("llama.feed_forward_length", _integer(_INNER)),
        ("llama.attention.head_count", _integer(2)),
        ("llama.attention.head_count_kv", _integer(2)),
        ("llama.rope.dimension_count", _integer(_WIDTH // 2)),
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<If", 6, 1e-5)),
        ("llama.vocab_size", _integer(len(tokens))),
        ("tokenizer.ggml.model", _text("llama")),
        ("tokenizer.ggml.tokens", _list(_STRINGS, len(tokens), (_raw(token) for token in tokens))),
        (
            "tokenizer.ggml.scores",
            _list(_FLOATS, len(tokens), [struct.pack(f"<{len(tokens)}f", *[0.0] * len(tokens))]),
        ),
        (
            "tokenizer.ggml.token_type",
            _list(_INTEGERS, len(tokens), [struct.pack(f"<{len(kinds)}i", *kinds)]),
        ),
        ("tokenizer.ggml.bos_token_id", _integer(1)),
        ("tokenizer.ggml.eos_token_id", _integer(2)),
        ("tokenizer.ggml.unknown_token_id", _integer(0)),
        ("tokenizer.ggml.add_bos_token", struct.pack("<I?", 7, False)),
        ("tokenizer.ggml.add_space_prefix", struct.pack("<I?", 7, False)),
        ("tokenizer.chat_template", _text(TEMPLATE)),
    ]
    tensors = _tensors(tokens)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(facts))
    head += b"".join(_raw(name) + value for name, value in facts)
    place = 0
    for name, shape, values in tensors:
        head += _raw(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, place)
        place += _padded(4 * len(values))
    body = b"".join(_pad(struct.pack(f"<{len(values)}f", *values)) for _, _, values in tensors)
    path.write_bytes(_pad(head) + body)


def _tensors(tokens: Sequence[str]) -> list[tuple[str, tuple[int, ...], list[float]]]:
    """Name, shape (the fastest axis first) and values of each tensor."""
    size = len(tokens) * _WIDTH
    seen, said = [0.0] * size, [0.0] * size
    follows = [pair for mark, words in SENTENCES.items() for pair in _pairs([mark, *words, "</s>"])]
    # Each pair has an axis of its own: the first token points along it, and there the second scores best.
    for axis, (first, second) in enumerate([*follows, (ENDLESS, "la"), ("la", "la")]):
        seen[tokens.index(first) * _WIDTH + axis] = 1.0
        said[tokens.index(second) * _WIDTH + axis] = 20.0
    square, inner = (_WIDTH, _WIDTH), (_WIDTH, _INNER)
    zeros = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
    zeros |= {"ffn_gate": inner, "ffn_up": inner, "ffn_down": (_INNER, _WIDTH)}
    ones = {"output_norm": (_WIDTH,), "blk.0.attn_norm": (_WIDTH,), "blk.0.ffn_norm": (_WIDTH,)}
    return [
        ("token_embd.weight", (_WIDTH, len(tokens)), seen),
        ("output.weight", (_WIDTH, len(tokens)), said),
        *((f"{name}.weight", shape, [1.0] * shape[0]) for name, shape in ones.items()),
        *((f"blk.0.{name}.weight", shape, [0.0] * (shape[0] * shape[1])) for name, shape in zeros.items()),
    ]


def _pairs(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    return itertools.pairwise(words)


def _raw(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack("<I", 8) + _raw(text)


def _integer(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def _list(kind: int, length: int, items: Iterable[bytes]) -> bytes:
    return struct.pack("<IIQ", 9, kind, length) + b"".join(items)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _pad(data: bytes) -> bytes:
    return data.ljust(_padded(len(data)), b"\0")

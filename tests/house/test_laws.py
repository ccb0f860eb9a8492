"""A package says its law; a script says its keys, arguments and result."""

from __future__ import annotations

import ast
import re


def test_every_package_states_its_law(modules):
    without = [
        path
        for path, tree in modules.items()
        if path.endswith("__init__.py") and not re.search(r"\bLaw\b", ast.get_docstring(tree) or "")
    ]
    assert without == []


def test_every_module_says_what_it_is(modules):
    assert [path for path, tree in modules.items() if not ast.get_docstring(tree)] == []


def test_every_script_has_a_header_of_purpose_keys_arguments_and_result(texts):
    for path, text in texts.items():
        if not path.endswith(".lua") or path.rsplit("/", 1)[1].startswith("_"):
            continue
        header = re.match(r"((?:--.*\n|#!.*\n)+)", text)
        assert header, path
        for part in ("keys:", "args:", "result:"):
            assert part in header[1], f"{path} says no {part}"


def test_every_script_fragment_says_who_includes_it(texts):
    fragments = {path: text for path, text in texts.items() if re.search(r"/_\w+\.lua$", path)}
    assert [path for path, text in fragments.items() if not text.startswith("-- Included by")] == []


def test_scripts_use_no_command_newer_than_redis_7_0(texts):
    newer = re.compile(
        r"""['"](HEXPIRE|HPEXPIRE|HTTL|HPERSIST|HGETEX|HGETDEL|HSETEX|XDELEX|XACKDEL|WAITAOF|DELEX|MSETEX)['"]""",
        re.IGNORECASE,
    )
    assert [path for path, text in texts.items() if path.endswith(".lua") and newer.search(text)] == []

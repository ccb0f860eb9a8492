from __future__ import annotations

import io

from shared.local.child import ending
from shared.local.console import Console


def test_lines_of_a_child_are_held_back_until_all_is_well_and_then_dropped():
    out = io.StringIO()
    console = Console(out, colour=False)
    console.line("web", "banner")
    console.open()
    console.line("web", "request")
    assert out.getvalue() == "  web    | request\n"


def test_a_warning_brings_out_what_that_child_said():
    out = io.StringIO()
    console = Console(out, colour=False)
    console.line("web", "fine")
    console.line("worker", "no such module")
    console.warn("worker", "ended with exit code 1")
    assert out.getvalue() == "  worker | no such module\n  worker  ended with exit code 1\n"


def test_colour_is_used_only_where_wanted():
    out = io.StringIO()
    Console(out, colour=True).step("web", "ready")
    assert "\x1b[" in out.getvalue()


def test_a_terminal_that_is_gone_does_not_stop_the_stopping():
    out = io.StringIO()
    out.close()
    Console(out, colour=False).say("Stopped")


def test_an_ending_names_the_exit_code_or_the_signal():
    assert ending(3) == "ended with exit code 3"
    assert ending(-9) == "was ended by SIGKILL"
    assert ending(-99) == "was ended by signal 99"

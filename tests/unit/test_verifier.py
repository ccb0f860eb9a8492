"""The verifier against the two case files, and what it says about a run."""

import json
from pathlib import Path

import pytest

from shared.protocol import events as ag
from shared.protocol.rules import Rule, VerificationError
from shared.protocol.verifier import OpenItem, Verifier

FILES = ("verifier.json", "verifier_more.json")
CASES = [case for file in FILES for case in json.loads((Path(__file__).parent / "cases" / file).read_text())]


def event(**members):
    return ag.parse(json.dumps(members))


def observed(*events, **options):
    verifier = Verifier(**options)
    for each in events:
        verifier.observe(each)
    return verifier


def refusal(verifier, refused):
    with pytest.raises(VerificationError) as caught:
        verifier.observe(refused)
    return caught.value


def start(message_id="m1", owner=None):
    return ag.TextMessageStartEvent(message_id=message_id, subagent_run_id=owner)


def content(message_id="m1", owner=None):
    return ag.TextMessageContentEvent(message_id=message_id, delta="part", subagent_run_id=owner)


def end(message_id="m1", owner=None):
    return ag.TextMessageEndEvent(message_id=message_id, subagent_run_id=owner)


def call_start(call="c1"):
    return ag.ToolCallStartEvent(tool_call_id=call, tool_call_name="lookup")


def call_end(call="c1"):
    return ag.ToolCallEndEvent(tool_call_id=call)


def result(call="c1"):
    return ag.ToolCallResultEvent(message_id=f"{call}-result", tool_call_id=call, content="42")


def history(call="c9", owner=None):
    function = ag.FunctionCall(name="lookup", arguments="{}")
    return ag.AssistantMessage(
        id="m0", content="hello", subagent_run_id=owner, tool_calls=[ag.ToolCall(id=call, function=function)]
    )


FINISHED = ag.run_finished("th-1", "run-1", None)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_case_is_judged_as_written(case):
    verifier = Verifier()
    expect = case["expect"]
    events = [event(**members) for members in case["events"]]
    if expect == "ok":
        for each in events:
            verifier.observe(each)
        return
    for each in events[: expect["at"]]:
        verifier.observe(each)
    before = verifier.open_items, verifier.unanswered_calls, verifier.terminated
    refused = refusal(verifier, events[expect["at"]])
    assert refused.rule in case.get("accept_rules", [expect["rule"]])
    assert (verifier.open_items, verifier.unanswered_calls, verifier.terminated) == before
    for members in case.get("then", []):
        verifier.observe(event(**members))


def test_every_rule_is_broken_by_some_case():
    broken = {case["expect"]["rule"] for case in CASES if case["expect"] != "ok"}
    assert broken == set(Rule)


def test_every_rule_describes_itself_in_one_sentence():
    sentences = [rule.describe() for rule in Rule]
    assert all(sentence.endswith(".") and sentence.count(".") == 1 for sentence in sentences)
    assert len(set(sentences)) == len(Rule)


def test_a_refusal_names_event_rule_and_id():
    refused = refusal(Verifier(), content("m7"))
    assert (refused.rule, refused.event_type, refused.id) == (Rule.NOT_OPEN, "TEXT_MESSAGE_CONTENT", "m7")
    assert str(refused) == "TEXT_MESSAGE_CONTENT breaks rule `not-open` (message 'm7' is not open)"
    assert refused.open_items == ()


def test_a_refusal_shows_what_is_open_when_debugging():
    verifier = observed(start("m1", "s1"), ag.StepStartedEvent(step_name="plan"), debug=True)
    refused = refusal(verifier, content("m7"))
    assert str(refused).endswith("; open: message 'm1' of 's1', step 'plan'")
    assert refused.open_items == verifier.open_items


def test_a_refusal_says_that_nothing_is_open_when_debugging():
    assert str(refusal(Verifier(debug=True), end("m7"))).endswith("; open: nothing")


def test_a_refusal_of_a_huge_id_stays_short():
    refused = refusal(Verifier(), content("x" * 10_000))
    assert len(str(refused)) < 250
    assert refused.id == "x" * 10_000


def test_a_refusal_never_shows_the_delta():
    secret = ag.TextMessageContentEvent(message_id="m1", delta="sesame", metadata={"k": "sesame"})
    assert "sesame" not in str(refusal(Verifier(debug=True), secret))


def test_a_result_for_a_call_of_the_request_history_is_accepted():
    verifier = observed(result("c9"), input_messages=[history("c9")])
    assert verifier.unanswered_calls == ()


def test_an_owner_in_the_request_history_counts():
    verifier = Verifier([history(owner="s1")])
    assert refusal(verifier, start("m0", "s2")).rule is Rule.OWNER_MISMATCH


def test_the_request_history_wins_over_an_echo_that_disagrees():
    echo = ag.RunAgentInput(thread_id="t", run_id="r", messages=[history(owner="s2")])
    verifier = observed(
        ag.RunStartedEvent(thread_id="t", run_id="r", input=echo), input_messages=[history(owner="s1")]
    )
    verifier.observe(start("m0", "s1"))


def test_a_start_with_ids_other_than_the_requests_is_refused():
    verifier = Verifier(thread_id="th-1", run_id="run-1")
    refused = refusal(verifier, ag.run_started("th-1", "run-2"))
    assert (refused.rule, refused.id) == (Rule.IDENTITY_MISMATCH, "run-2")
    verifier.observe(ag.run_started("th-1", "run-1"))
    verifier.observe(FINISHED)
    assert verifier.terminated


def test_a_finish_is_held_to_the_requests_ids_without_a_start():
    verifier = Verifier(thread_id="th-1", run_id="run-1")
    assert refusal(verifier, ag.run_finished("th-2", "run-1", None)).rule is Rule.IDENTITY_MISMATCH
    verifier.observe(FINISHED)


def test_open_items_are_listed_in_opening_order_with_kind_id_and_owner():
    verifier = observed(
        ag.SubagentStartedEvent(subagent_run_id="s1", name="digger"),
        ag.SubagentStartedEvent(subagent_run_id="s2", name="helper", parent_subagent_run_id="s1"),
        ag.StepStartedEvent(step_name="plan", subagent_run_id="s1"),
        ag.ReasoningStartEvent(message_id="g"),
        ag.ReasoningMessageStartEvent(message_id="g"),
        start("m1", "s1"),
        ag.ToolCallStartEvent(tool_call_id="c1", tool_call_name="lookup", parent_message_id="m1"),
        start("m2"),
        end("m2"),
    )
    assert verifier.open_items == (
        OpenItem("subagent", "s1", None),
        OpenItem("subagent", "s2", "s1"),
        OpenItem("step", "plan", "s1"),
        OpenItem("reasoning", "g", None),
        OpenItem("reasoning-message", "g", None),
        OpenItem("message", "m1", "s1"),
        OpenItem("tool-call", "c1", "s1"),
    )


def test_an_item_opened_again_moves_to_the_end():
    verifier = observed(start("m1"), start("m2"), end("m1"), start("m1"))
    assert [item.id for item in verifier.open_items] == ["m2", "m1"]


def test_closing_events_close_the_last_opened_first_and_carry_the_owner():
    verifier = observed(
        ag.SubagentStartedEvent(subagent_run_id="s1", name="digger"),
        ag.StepStartedEvent(step_name="plan", subagent_run_id="s1"),
        ag.ReasoningStartEvent(message_id="g", subagent_run_id="s1"),
        ag.ReasoningMessageStartEvent(message_id="g"),
        call_start(),
        start("m1", ""),
    )
    closing = verifier.closing_events(subagent_code="worker_lost", subagent_message="Lost.")
    assert [ag.parse(ag.dump(each)).model_dump(exclude_none=True, by_alias=True) for each in closing] == [
        {"type": "TEXT_MESSAGE_END", "subagentRunId": "", "messageId": "m1"},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "REASONING_MESSAGE_END", "subagentRunId": "s1", "messageId": "g"},
        {"type": "REASONING_END", "subagentRunId": "s1", "messageId": "g"},
        {"type": "STEP_FINISHED", "subagentRunId": "s1", "stepName": "plan"},
        {"type": "SUBAGENT_ERROR", "subagentRunId": "s1", "message": "Lost.", "code": "worker_lost"},
    ]


def test_closing_events_follow_a_snapshot_that_changed_the_owner():
    moved = ag.AssistantMessage(id="m1", content="", subagent_run_id="s2")
    verifier = observed(start("m1", "s1"), ag.MessagesSnapshotEvent(messages=[moved]))
    (closing,) = verifier.closing_events()
    assert closing == end("m1", "s2")
    verifier.observe(closing)


def test_asking_for_closing_events_closes_nothing():
    verifier = observed(start())
    verifier.closing_events()
    assert verifier.open_items == (OpenItem("message", "m1", None),)


def test_nothing_can_be_closed_after_an_error():
    verifier = observed(start(), ag.run_error("broke", "AGENT_ERROR"))
    assert verifier.terminated
    assert verifier.open_items == (OpenItem("message", "m1", None),)
    assert verifier.closing_events() == []


def test_unanswered_calls_are_the_closed_ones_without_a_result_in_order():
    events = [call_start("c1"), call_start("c2"), call_start("c3"), call_start("c4")]
    events += [call_end("c3"), call_end("c1"), call_end("c2"), result("c1")]
    verifier = observed(*events, ag.ToolCallChunkEvent(tool_call_id="c5", tool_call_name="lookup"))
    assert verifier.unanswered_calls == ("c2", "c3", "c5")


def test_calls_of_the_history_are_not_this_runs_unanswered_calls():
    verifier = observed(ag.MessagesSnapshotEvent(messages=[history("c8")]), input_messages=[history("c9")])
    assert verifier.unanswered_calls == ()


def test_a_snapshot_with_the_result_answers_a_call():
    tool = ag.ToolMessage(id="r", tool_call_id="c1", content="42")
    verifier = observed(call_start(), call_end(), ag.MessagesSnapshotEvent(messages=[tool]))
    assert verifier.unanswered_calls == ()


def test_a_call_opened_again_after_its_result_asks_again():
    verifier = observed(call_start(), call_end(), result(), call_start(), call_end())
    assert verifier.unanswered_calls == ("c1",)


def test_without_enforcement_wrong_events_pass_and_open_items_are_still_closed():
    verifier = observed(
        content("ghost"), start("m1", "s1"), start("m1", "s2"), end("m9"), result("ghost"), enforce=False
    )
    assert verifier.closing_events() == [end("m1", "s1")]


def test_without_enforcement_a_second_terminal_event_is_still_refused():
    verifier = observed(FINISHED, enforce=False)
    assert refusal(verifier, ag.run_error("broke", "AGENT_ERROR")).rule is Rule.RUN_ENDED


def test_an_event_of_a_subclass_is_checked_like_its_parent():
    class Shouting(ag.TextMessageContentEvent):
        pass

    assert refusal(Verifier(), Shouting(message_id="m1", delta="HM")).rule is Rule.NOT_OPEN


@pytest.mark.parametrize("thing", [{"type": "CUSTOM"}, None, ag.BaseEvent(type=ag.EventType.CUSTOM)])
def test_what_is_no_event_of_the_protocol_is_a_type_error(thing):
    with pytest.raises(TypeError, match="is not an event of the protocol"):
        Verifier().observe(thing)

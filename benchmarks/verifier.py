"""Microseconds per event that the verifier costs, on a mixed stream; the goal is at most 2.

Run: python -m benchmarks.verifier
"""

import gc
import time

from shared.protocol import events as ag
from shared.protocol.verifier import Verifier

_ROUNDS = 200
_REPEATS = 15


def mixed_stream(rounds: int) -> list[ag.Event]:
    """Per round: a step, a thought, a tool call with a result, state and a message of 20 deltas."""
    events: list[ag.Event] = [ag.run_started("thread", "run")]
    for number in range(rounds):
        thought, call, message = f"run-think-{number}", f"run-call-{number}", f"run-msg-{number}"
        events += [
            ag.StepStartedEvent(step_name="plan"),
            ag.ReasoningStartEvent(message_id=thought),
            ag.ReasoningMessageStartEvent(message_id=thought),
            *(ag.ReasoningMessageContentEvent(message_id=thought, delta="hm ") for _ in range(5)),
            ag.ReasoningMessageEndEvent(message_id=thought),
            ag.ReasoningEndEvent(message_id=thought),
            ag.ToolCallStartEvent(tool_call_id=call, tool_call_name="search"),
            *(ag.ToolCallArgsEvent(tool_call_id=call, delta='{"q":') for _ in range(4)),
            ag.ToolCallEndEvent(tool_call_id=call),
            ag.ToolCallResultEvent(message_id=f"{call}-result", tool_call_id=call, content="21"),
            ag.StateSnapshotEvent(snapshot={"degrees": 21}),
            ag.TextMessageStartEvent(message_id=message),
            *(ag.TextMessageContentEvent(message_id=message, delta="word ") for _ in range(20)),
            ag.TextMessageEndEvent(message_id=message),
            ag.StepFinishedEvent(step_name="plan"),
        ]
    events.append(ag.run_finished("thread", "run", {"type": "success"}))
    return events


def microseconds_per_event(events: list[ag.Event]) -> float:
    """The best of some repeats, each with a fresh verifier, the collector paused."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(_REPEATS):
            observe = Verifier(thread_id="thread", run_id="run").observe
            start = time.perf_counter()
            for event in events:
                observe(event)
            best = min(best, time.perf_counter() - start)
    finally:
        gc.enable()
    return best / len(events) * 1e6


def main() -> None:
    events = mixed_stream(_ROUNDS)
    print(f"verifier: {microseconds_per_event(events):.3f} us per event over {len(events)} mixed events")


if __name__ == "__main__":
    main()

"""A client that keeps a thread's conversation as the stock client does: from the snapshot of a connect."""

from __future__ import annotations

from typing import Any

from tests.journeys.stack import Run, Stack


class Conversation:
    """One thread with one agent."""

    def __init__(self, stack: Stack, agent: str) -> None:
        self.stack = stack
        self.agent = agent
        self.thread_id = ""

    def say(self, text: str) -> Run:
        """A new message in a new run, followed to its end."""
        run = self.stack.prepare(self.agent, text=text, thread_id=self.thread_id or None)
        self.thread_id = run.thread_id
        return self._followed(run)

    def answer(self, payload: Any, status: str = "resolved") -> Run:
        """A run that answers all questions that the thread's last run ended with."""
        return self._followed(self.answering(payload, status))

    def answering(self, payload: Any, status: str = "resolved") -> Run:
        """The same, not sent yet."""
        seen = self.stack.open("POST", f"/threads/{self.thread_id}/connect", body={})
        seen.finish()
        run = self.stack.prepare(self.agent, thread_id=self.thread_id)
        shown = [event for event in seen.events if event["type"] == "MESSAGES_SNAPSHOT"]
        run.body["messages"] = shown[-1]["messages"]
        run.body["resume"] = [
            {"interruptId": one["id"], "status": status, "payload": payload}
            for one in seen.events[-1]["outcome"]["interrupts"]
        ]
        return run

    def _followed(self, run: Run) -> Run:
        self.stack.send(run)
        run.live.finish()
        return run


def of_type(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for event in run.live.events if event["type"] == kind]


def said(run: Run) -> str:
    return "".join(event["delta"] for event in of_type(run, "TEXT_MESSAGE_CONTENT"))

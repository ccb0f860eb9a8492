"""The same with a model that decides when to pay: one decorator asks the person."""

from examples.approval.agents import pay as put_into_the_book
from worker.agents import chat, tool


@tool(needs_approval=lambda euros, **_: euros > 10)
def pay(to: str, euros: int) -> dict:
    """Pays an amount of euros to a person."""
    return put_into_the_book(to, euros)


AGENTS = {"assistant": chat(tools=[pay], instructions="You pay bills with the tool. Be brief.")}

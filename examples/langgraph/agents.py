"""A LangGraph agent behind one line. The model is a fake that needs no key."""

from itertools import cycle

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from worker.agents import langgraph

model = GenericFakeChatModel(messages=cycle([AIMessage("The weather is fine, and so is the graph.")]))


class State(MessagesState):
    place: str


async def look(state: State) -> dict:
    """Changes the state that the client sees."""
    return {"place": state["messages"][-1].content}


async def approve(state: State) -> dict:
    """Pauses the run for a person if the question asks for it; the answer comes back here."""
    if "ask me" in state["place"]:
        answer = interrupt({"reason": "confirm", "message": "Shall I answer?"})
        if not answer["approved"]:
            return {"messages": [AIMessage("Then not.")]}
    return {}


async def answer(state: State) -> dict:
    """Streams the model; a cancel closes its connection at once, because this node is async."""
    if state["messages"][-1].content == "Then not.":
        return {}
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = (
    StateGraph(State)
    .add_node(look)
    .add_node(approve)
    .add_node(answer)
    .add_edge(START, "look")
    .add_edge("look", "approve")
    .add_edge("approve", "answer")
    .add_edge("answer", END)
    # In one process this is enough; take a checkpointer over a database where there are several workers.
    .compile(checkpointer=InMemorySaver())
)

AGENTS = {"weather": langgraph(graph, description="Tells the weather; say 'ask me' to be asked first.")}

// The stock client on Outlast: text as it comes, a stop with its recorded outcome, a tab that may be reloaded in
// the middle of a run, and a question that pauses one.

import { HttpAgent } from "@ag-ui/client";

const asked = new URLSearchParams(location.search);
const base = asked.get("outlast") ?? "http://127.0.0.1:8000";
const name = asked.get("agent") ?? "demo";
const element = (id) => document.getElementById(id);

/** Also follows a thread as it stands: its conversation by snapshots, then its active run live. */
class Agent extends HttpAgent {
  connect(input) {
    const url = `${base}/threads/${encodeURIComponent(this.threadId)}/connect`;
    return new HttpAgent({ url, headers: this.headers, fetch: this.fetch }).run(input);
  }
}

// The thread lives as long as the tab, over reloads.
sessionStorage.thread ??= crypto.randomUUID();
const agent = new Agent({ url: `${base}/agents/${name}`, threadId: sessionStorage.thread });

function say(status) {
  element("status").textContent = status;
}

// --- the conversation -------------------------------------------------------------------------------------

function line(kind, text) {
  const item = document.createElement("li");
  item.className = kind;
  item.textContent = text;
  return item;
}

function linesOf(message) {
  if (message.role === "tool") return [line("call", `→ ${message.content}`)];
  const lines = typeof message.content === "string" && message.content ? [line(message.role, message.content)] : [];
  const calls = message.toolCalls ?? [];
  return [...lines, ...calls.map((call) => line("call", `${call.function.name}(${call.function.arguments})`))];
}

let due;

/** Draws what the client holds, at most once per frame. */
function show() {
  due ??= requestAnimationFrame(() => {
    due = undefined;
    element("conversation").replaceChildren(...agent.messages.flatMap(linesOf));
  });
}

// --- a run, from its first event to its ending --------------------------------------------------------------

let runId; // known from the run's first event
let ended; // whether its last event came; a body that ends without one was cut
let open; // the questions that it ended with
let lost; // how often in a row there was no answer

const watcher = {
  onRunStartedEvent({ event }) {
    runId = event.runId;
    lost = 0;
    element("stop").disabled = false;
    say("Running");
  },
  onMessagesChanged: show,
  onRunFinishedEvent({ event }) {
    ended = true;
    open = event.outcome?.interrupts ?? [];
    say({ interrupt: "Waiting for you", cancelled: "Ended: cancelled" }[event.outcome?.type] ?? "Ended: succeeded");
  },
  onRunErrorEvent({ event }) {
    ended = true;
    say(`Ended: failed (${event.code}). ${event.message}`);
  },
};

/** A new run. Called again, it posts the same id again, which joins the run and executes nothing twice. */
function newRun(more) {
  const runId = crypto.randomUUID();
  return () => agent.runAgent({ runId, ...more }, watcher);
}

const join = () => agent.connectAgent({}, watcher);

/** Follows a run to its ending, over lost connections. */
async function follow(start) {
  element("question").hidden = true;
  element("record").textContent = "";
  element("send").disabled = true;
  ended = false;
  open = [];
  lost = 0;
  while (!ended) {
    let why = "The connection was lost";
    try {
      await start();
    } catch (error) {
      const { status, payload, message } = error;
      if (status === 404 && start === join) say("Ready");
      else if (status < 500) say(`Refused: ${payload?.detail ?? message}`);
      ended = status < 500;
      if (status) why = payload?.detail ?? `The server answered ${status}`;
      else if (++lost >= 3) why = `Cannot reach ${base}. Is it up, with OUTLAST_CORS_ORIGINS=${location.origin}?`;
    }
    if (!ended) {
      say(lost < 3 ? `${why}. Going on` : why);
      await new Promise((resume) => setTimeout(resume, 1000));
    }
  }
  element("send").disabled = false;
  element("stop").disabled = true;
  show();
  if (open.length > 0) ask();
}

element("ask").onsubmit = (submit) => {
  submit.preventDefault();
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: element("text").value });
  show();
  follow(newRun());
};

// --- questions: a paused run has ended; a new one brings the answers to all of them ---------------------------

function ask(resume = []) {
  if (resume.length === open.length) {
    follow(newRun({ resume }));
    return;
  }
  const { id: interruptId, message, reason } = open[resume.length];
  const question = element("question");
  question.querySelector("p").textContent = message ?? reason;
  for (const button of question.querySelectorAll("button")) {
    const payload = { approved: button.value === "yes" };
    button.onclick = () => ask([...resume, { interruptId, status: "resolved", payload }]);
  }
  question.hidden = false;
}

// --- a stop: that it was asked for is no proof, the record is ------------------------------------------------

element("stop").onclick = async () => {
  element("stop").disabled = true;
  say("Stopping");
  const path = `threads/${encodeURIComponent(agent.threadId)}/runs/${encodeURIComponent(runId)}`;
  const answer = await fetch(`${base}/${path}/cancel?wait=20`, { method: "POST" }).catch(() => undefined);
  if (!answer) {
    element("record").textContent = "Not asked to stop: the server did not answer";
    element("stop").disabled = ended;
    return;
  }
  const body = await answer.json();
  const told = { 200: body.status, 202: "no outcome yet", 409: `${body.run?.status}, before it was asked to stop` };
  element("record").textContent = `Recorded: ${told[answer.status] ?? body.detail}`;
};

element("fresh").onclick = () => {
  delete sessionStorage.thread;
  location.reload();
};

// --- opened or reloaded: go on where the thread stands -------------------------------------------------------

await follow(join);

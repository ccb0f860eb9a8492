// Clients that leave in the middle of a run and come back, with the stock HttpAgent.
// stdin:  {"base": URL, "atOnce": number, "plans": [{agent, threadId, runId, messages, state, forwardedProps,
//          form, leave, afterTheEnd?, gate?, cursorIn?}]}
//         form: how it comes back: post | cursor | snapshot | connect | fresh (connect, knowing nothing)
//         leave: after how many events it leaves, once per visit; then it stays to the end
//         gate: a file that lets the run go on, made when the answer to the last request has begun
//         afterTheEnd: it comes back only when the run has ended
// stdout: {"results": [{events, ids, visits, messages, state, warnings, rejected?}], "nobodys": warnings}
//         events and ids: types as the application saw them, and SSE ids, of the last visit

import { AsyncLocalStorage } from "node:async_hooks";
import { writeFileSync } from "node:fs";
import { HttpAgent } from "@ag-ui/client";

const current = new AsyncLocalStorage();
const nobodys = [];
for (const name of ["warn", "error"]) {
  console[name] = (...parts) => (current.getStore() ?? nobodys).push(parts.map(String).join(" "));
}
process.on("warning", (warning) => nobodys.push(String(warning)));

// --- SSE as it travels ----------------------------------------------------------------------------------

/** Whole frames of a body: {bytes, id, terminal}; comments are frames without data. */
async function* framesOf(body) {
  const decoder = new TextDecoder();
  let held = "";
  for await (const chunk of body) {
    held += decoder.decode(chunk, { stream: true });
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      const text = held.slice(0, end + 2);
      held = held.slice(end + 2);
      const data = /^data: (.*)$/m.exec(text)?.[1];
      const id = /^id: (\d+)$/m.exec(text)?.[1];
      yield {
        bytes: new TextEncoder().encode(text),
        isEvent: data !== undefined,
        id: id === undefined ? null : Number(id),
        terminal: /^\{"type":"RUN_(FINISHED|ERROR)"/.test(data ?? ""),
      };
    }
  }
}

/** A response whose body passes on what a generator of bytes gives. */
function answered(response, pieces) {
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        controller.error(error);
      }
    },
    cancel: () => pieces.return(),
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

/** The body unchanged, its events' ids noted. */
async function* noting(body, ids) {
  for await (const frame of framesOf(body)) {
    if (frame.isEvent) ids.push(frame.id);
    yield frame.bytes;
  }
}

/** The body until the request is aborted: Node 20 may forget to end one when it has collected the request. */
async function* untilAborted(body, signal) {
  const reader = body.getReader();
  const aborted = new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
  aborted.catch(() => {});
  try {
    for (;;) {
      const { done, value } = await Promise.race([reader.read(), aborted]);
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// --- a client that is cut off and goes on by its cursor, as a fetch of its own ----------------------------

function resuming(plan, routes, seen) {
  return async (url, init) => {
    const first = await fetch(url, init);
    async function* pieces() {
      let cursor = 0;
      let body = first.body;
      for (const leaveAfter of plan.leave) {
        let left = leaveAfter;
        if (left === 0) await body.cancel();
        else {
          for await (const frame of framesOf(body)) {
            yield frame.bytes;
            if (frame.isEvent) cursor = frame.id;
            if (frame.terminal) return;
            if (frame.isEvent && --left === 0) break; // which cancels the body
          }
        }
        if (plan.afterTheEnd) await fetch(`${routes.run}?wait=30`);
        const headers = { Accept: "text/event-stream" };
        if (plan.cursorIn === "header") headers["Last-Event-ID"] = String(cursor);
        const query = plan.cursorIn === "query" ? `?after=${cursor}` : "";
        body = (await fetch(`${routes.run}/events${query}`, { headers })).body;
      }
      if (plan.gate) writeFileSync(plan.gate, "");
      yield* noting(body, seen.ids);
    }
    return answered(first, pieces());
  };
}

// --- a client that comes back without a cursor ------------------------------------------------------------

class Client extends HttpAgent {
  connect(input) {
    return new HttpAgent({ url: this.connectUrl, fetch: this.fetch }).run(input);
  }
}

/** One request of a client that leaves after `leaveAfter` events, if that is given. */
async function visit(agent, plan, routes, seen, leaveAfter, isLast) {
  const { runId, forwardedProps, form } = plan;
  const isReturn = seen.visits > 0;
  let count = 0;
  seen.visits += 1;
  agent.fetch = async (url, init) => {
    const snapshot = form === "snapshot" && isReturn;
    const where = snapshot ? `${routes.run}/events?mode=snapshot` : url;
    const asked = snapshot ? { headers: { Accept: init.headers.Accept }, signal: init.signal } : init;
    const response = await fetch(where, asked);
    if (isReturn && isLast && plan.gate) writeFileSync(plan.gate, "");
    if (leaveAfter === 0) agent.abortRun();
    if (!response.ok) return response;
    return answered(response, isLast ? noting(response.body, seen.ids) : untilAborted(response.body, init.signal));
  };
  const subscriber = {
    onEvent({ event }) {
      if (isLast) seen.events.push(event.type);
      if (++count === leaveAfter) agent.abortRun();
    },
  };
  if (isReturn && (form === "connect" || form === "fresh")) {
    await agent.connectAgent({ forwardedProps }, subscriber);
  } else await agent.runAgent({ runId, forwardedProps }, subscriber);
}

async function perform(base, plan) {
  const { threadId, form, leave } = plan;
  const seen = { events: [], ids: [], visits: 0, warnings: current.getStore() };
  const routes = {
    run: `${base}/threads/${threadId}/runs/${plan.runId}`,
    connect: `${base}/threads/${threadId}/connect`,
  };
  const make = (more) => {
    const agent = new Client({ url: `${base}/agents/${plan.agent}`, threadId, ...more });
    agent.connectUrl = routes.connect;
    return agent;
  };
  let agent = make({ initialMessages: plan.messages, initialState: plan.state });
  try {
    if (form === "cursor") {
      agent.fetch = resuming(plan, routes, seen);
      const subscriber = { onEvent: ({ event }) => void seen.events.push(event.type) };
      await agent.runAgent({ runId: plan.runId, forwardedProps: plan.forwardedProps }, subscriber);
    } else {
      for (const [at, leaveAfter] of [...leave, undefined].entries()) {
        const isLast = at === leave.length;
        if (at > 0 && form === "fresh") agent = make({});
        if (at > 0 && isLast && plan.afterTheEnd) await fetch(`${routes.run}?wait=30`);
        await visit(agent, plan, routes, seen, leaveAfter, isLast);
      }
    }
  } catch (error) {
    seen.rejected = { message: String(error), status: error.status, payload: error.payload };
  }
  return { ...seen, messages: agent.messages, state: agent.state };
}

async function readInput() {
  let text = "";
  for await (const chunk of process.stdin) text += chunk;
  return JSON.parse(text);
}

const { base, atOnce, plans } = await readInput();
const results = new Array(plans.length);
let next = 0;
async function work() {
  for (let at = next++; at < plans.length; at = next++) {
    results[at] = await current.run([], () => perform(base, plans[at]));
  }
}
await Promise.all(Array.from({ length: atOnce }, work));
process.stdout.write(JSON.stringify({ results, nobodys }));

// Runs agents through the stock HttpAgent and tells what an application would have seen.
// stdin:  {"base": URL, "runs": [{agent, threadId, runId, messages, state?, tools?, forwardedProps?, cancelOn?}]}
//         cancelOn: the type of the event at whose first arrival the cancel endpoint is called
// stdout: {"runs": [{events, warnings, messages, state, outcome?, errorCode?, rejected?, cancelStatus?}]}

import { HttpAgent } from "@ag-ui/client";

const warnings = [];
for (const name of ["warn", "error"]) {
  console[name] = (...parts) => warnings.push(parts.map(String).join(" "));
}
process.on("warning", (warning) => warnings.push(String(warning)));

async function readInput() {
  let text = "";
  for await (const chunk of process.stdin) text += chunk;
  return JSON.parse(text);
}

async function perform(base, run) {
  const seen = { events: [] };
  const agent = new HttpAgent({
    url: `${base}/agents/${run.agent}`,
    threadId: run.threadId,
    initialMessages: run.messages,
    initialState: run.state ?? {},
  });
  const path = `${base}/threads/${run.threadId}/runs/${run.runId}/cancel`;
  let cancelled;
  const subscriber = {
    onEvent({ event }) {
      seen.events.push(event);
      if (event.type === run.cancelOn && cancelled === undefined) {
        cancelled = fetch(path, { method: "POST" }).then((answer) => answer.status);
      }
    },
    onRunFinishedEvent({ outcome }) {
      seen.outcome = outcome;
    },
    onRunErrorEvent({ event }) {
      seen.errorCode = event.code;
    },
  };
  const { runId, tools, forwardedProps, resume } = run;
  try {
    await agent.runAgent({ runId, tools, forwardedProps, resume }, subscriber);
  } catch (error) {
    seen.rejected = { message: String(error), status: error.status, payload: error.payload };
  }
  if (cancelled !== undefined) seen.cancelStatus = await cancelled;
  return { ...seen, messages: agent.messages, state: agent.state, warnings: warnings.splice(0) };
}

const { base, runs } = await readInput();
const results = [];
for (const run of runs) results.push(await perform(base, run));
process.stdout.write(JSON.stringify({ runs: results }));

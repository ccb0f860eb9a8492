// One conversation through one stock HttpAgent, as a front end leads it over pauses and answers.
// stdin:  {"base": URL, "threadId", "steps": [{agent, runId, say?, forwardedProps?, responses?, resume?}]}
//         responses: interrupt id -> {status, payload?}, made into resume by the client's own function;
//         resume: sent as it is; say: a user message that is added first
// stdout: {"steps": [{events, warnings, pending, outcome?, errorCode?, rejected?}], "messages"}

import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const warnings = [];
for (const name of ["warn", "error"]) {
  console[name] = (...parts) => warnings.push(parts.map(String).join(" "));
}

async function readInput() {
  let text = "";
  for await (const chunk of process.stdin) text += chunk;
  return JSON.parse(text);
}

async function perform(agent, base, step) {
  const seen = { events: [] };
  agent.url = `${base}/agents/${step.agent}`;
  if (step.say) agent.addMessage({ id: `user-${step.runId}`, role: "user", content: step.say });
  const subscriber = {
    onEvent({ event }) {
      seen.events.push(event);
    },
    onRunFinishedEvent({ outcome }) {
      seen.outcome = outcome;
    },
    onRunErrorEvent({ event }) {
      seen.errorCode = event.code;
    },
  };
  const { runId, forwardedProps } = step;
  try {
    const resume = step.responses ? buildResumeArray(agent.pendingInterrupts, step.responses) : step.resume;
    await agent.runAgent({ runId, forwardedProps, resume }, subscriber);
  } catch (error) {
    seen.rejected = { message: String(error), status: error.status, payload: error.payload };
  }
  return { ...seen, pending: [...agent.pendingInterrupts], warnings: warnings.splice(0) };
}

const { base, threadId, steps } = await readInput();
const agent = new HttpAgent({ url: base, threadId });
const results = [];
for (const step of steps) results.push(await perform(agent, base, step));
process.stdout.write(JSON.stringify({ steps: results, messages: agent.messages }));

// Joins recorded runs with the stock client, without a server: its fetch answers from the recording.
// stdin:  {"runs": [{name, messages, state, frames: [SSE frame], preludes: [[SSE frame]], joins: [[j, k]]}]}
//         a join: a client that read the first j frames comes back and gets preludes[k - 1] and the frames behind k
// stdout: {"runs": [{name, messages, state, warnings, joins, failures: [{j, k, messages, state, warnings, error?}]}]}
//         messages, state and warnings are those of a client that never left; a failure differs from it

import { isDeepStrictEqual } from "node:util";
import { HttpAgent } from "@ag-ui/client";

const warnings = [];
for (const name of ["warn", "error"]) {
  console[name] = (...parts) => warnings.push(parts.map(String).join(" "));
}
process.on("warning", (warning) => warnings.push(String(warning)));

function answer(frames) {
  return new Response(frames.join(""), { headers: { "Content-Type": "text/event-stream" } });
}

async function follow(run, streams) {
  let asked = 0;
  const agent = new HttpAgent({
    url: "http://recording.invalid/",
    threadId: "thread",
    initialMessages: run.messages,
    initialState: run.state ?? {},
    fetch: async () => answer(streams[asked++]),
  });
  let error;
  try {
    for (const _ of streams) await agent.runAgent({ runId: "run" });
  } catch (raised) {
    error = String(raised);
  }
  const { messages, state } = agent;
  return JSON.parse(JSON.stringify({ messages, state, error, warnings: warnings.splice(0) }));
}

async function check(run) {
  const whole = await follow(run, [run.frames]);
  const expected = new Set(whole.warnings);
  const failures = [];
  for (const [j, k] of run.joins) {
    const join = [...run.preludes[k - 1], ...run.frames.slice(k)];
    const seen = await follow(run, j === 0 ? [join] : [run.frames.slice(0, j), join]);
    const same = isDeepStrictEqual([seen.messages, seen.state], [whole.messages, whole.state]);
    if (!same || seen.error || seen.warnings.some((text) => !expected.has(text))) {
      failures.push({ j, k, ...seen });
    }
  }
  return { name: run.name, ...whole, joins: run.joins.length, failures };
}

let text = "";
for await (const chunk of process.stdin) text += chunk;
const results = [];
for (const run of JSON.parse(text).runs) results.push(await check(run));
process.stdout.write(JSON.stringify({ runs: results }));

// The stock client with a user's token, a way back into a thread, and a stop that is one.

import { HttpAgent } from "@ag-ui/client";

/** An agent of Outlast for one user; `connectAgent()` follows its thread as it stands. */
export class OutlastAgent extends HttpAgent {
  constructor({ base, name, threadId, token, ...more }) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    super({ url: `${base}/agents/${encodeURIComponent(name)}`, threadId, headers, ...more });
    this.thread = `${base}/threads/${encodeURIComponent(threadId)}`;
  }

  connect(input) {
    return new HttpAgent({ url: `${this.thread}/connect`, headers: this.headers, fetch: this.fetch }).run(input);
  }
}

export const agentFor = (options) => new OutlastAgent(options);

/** Asks a run to stop and gives its record: `status` says how it ended, which need not be cancelled. */
export async function stop(agent, runId, seconds = 20) {
  const url = `${agent.thread}/runs/${encodeURIComponent(runId)}`;
  const asked = await fetch(`${url}/cancel?wait=${seconds}`, { method: "POST", headers: agent.headers });
  if (!asked.ok && asked.status !== 409) throw Object.assign(new Error("not stopped"), { status: asked.status });
  return (await fetch(url, { headers: agent.headers })).json();
}

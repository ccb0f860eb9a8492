// app/api/copilotkit/route.js of a Next.js application.

import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime, ExperimentalEmptyAdapter, copilotRuntimeNextJSAppRouterEndpoint } from "@copilotkit/runtime";
import { SignJWT } from "jose";

const base = process.env.OUTLAST_URL ?? "http://127.0.0.1:8000";
const secret = new TextEncoder().encode(process.env.OUTLAST_JWT_SECRET);

/** Whoever is signed in here; put your session in its place. */
const userOf = (request) => request.headers.get("x-user");

async function agentsOf(user) {
  const token = await new SignJWT({ sub: user }).setProtectedHeader({ alg: "HS256" }).setExpirationTime("10m").sign(secret);
  return { demo: new HttpAgent({ url: `${base}/agents/demo`, headers: { Authorization: `Bearer ${token}` } }) };
}

export async function POST(request) {
  const user = userOf(request);
  if (!user) return new Response(null, { status: 401 });
  const { handleRequest } = copilotRuntimeNextJSAppRouterEndpoint({
    runtime: new CopilotRuntime({ agents: await agentsOf(user) }),
    serviceAdapter: new ExperimentalEmptyAdapter(),
    endpoint: "/api/copilotkit",
  });
  return handleRequest(request);
}

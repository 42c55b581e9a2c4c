#!/usr/bin/env bash
# @openai/agents 0.20.0: shows the model a closed input schema of an MCP tool as an open one.
#
# `additionalProperties: false` in the inputSchema of a tool says that it takes no argument beside those it names, and one
# would expect a schema that is not made strict (the default) to reach the model as the server wrote it. The SDK sets the
# word to `true` at the top of each such schema, and leaves it deeper down. So the model is told that other arguments are
# welcome, to which a server that checks them answers with an error.
# Source: https://json-schema.org/draft/2020-12/json-schema-core#section-10.3.2.3
#
# Seen: `server: top false, below false` and `model: top true, below false, strict false`.
# Needs node 20 or newer, and npm. Talks to loopback only, but for the installation.
set -euo pipefail
version=0.20.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-fund --no-audit --loglevel=error "@openai/agents@$version" "zod@4.6.7" >&2 || exit 2

cat >"$work/server.mjs" <<'JS'
import { createInterface } from "node:readline";

const place = { type: "object", properties: { x: { type: "number" } }, additionalProperties: false };
const inputSchema = { type: "object", properties: { place }, additionalProperties: false };
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined || method === undefined) continue;
  let result = {};
  if (method === "initialize") {
    const serverInfo = { name: "one", version: "1" };
    result = { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo };
  } else if (method === "tools/list") {
    result = { tools: [{ name: "go", description: "Go there.", inputSchema }] };
  }
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
}
JS

cat >"$work/try.mjs" <<'JS'
import { createServer } from "node:http";

import { Agent, MCPServerStdio, OpenAIProvider, Runner } from "@openai/agents";

// Stands for the model: keeps what it is sent, and says one word.
const asked = [];
const web = createServer(async (request, response) => {
  let text = "";
  for await (const part of request) text += part;
  asked.push(JSON.parse(text));
  const content = [{ type: "output_text", text: "done", annotations: [] }];
  const output = [{ type: "message", id: "m1", role: "assistant", status: "completed", content }];
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  const answer = { id: "r1", object: "response", created_at: 1, model: "m", status: "completed", output, usage };
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(answer));
});
await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));

const show = (schema) => `top ${schema.additionalProperties}, below ${schema.properties.place.additionalProperties}`;
const server = new MCPServerStdio({ name: "one", command: process.execPath, args: [process.argv[2]] });
await server.connect();
try {
  const [listed] = await server.listTools();
  console.log(`server: ${show(listed.inputSchema)}`);
  const modelProvider = new OpenAIProvider({ apiKey: "none", baseURL: `http://127.0.0.1:${web.address().port}/v1` });
  const agent = new Agent({ name: "one", model: "m", mcpServers: [server] });
  await new Runner({ modelProvider, tracingDisabled: true }).run(agent, "Go there.");
  const [tool] = asked[0].tools;
  console.log(`model: ${show(tool.parameters)}, strict ${tool.strict}`);
} finally {
  await server.close();
  web.close();
}
JS

seen=$(cd "$work" && OPENAI_AGENTS_DISABLE_TRACING=1 node try.mjs "$work/server.mjs") || exit 2
echo "@openai/agents $version"
echo "$seen"
[[ $seen == $'server: top false, below false\nmodel: top true, below false, strict false' ]] || { echo "This has changed." >&2; exit 1; }

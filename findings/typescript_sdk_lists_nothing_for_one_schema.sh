#!/usr/bin/env bash
# @modelcontextprotocol/sdk 1.32.2: one tool whose outputSchema its validator does not compile makes listTools() fail whole.
#
# The client compiles every outputSchema of a list as it arrives, with ajv for draft-07, whatever `$schema` says. A schema of
# draft-04, in which exclusiveMinimum is a boolean, makes it throw, and the other tools of that server are gone as well.
# The specification leaves the dialect of a schema to its `$schema`.
# Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools
#
# Seen: `exclusiveMinimum value must be ["number"]` in place of the two tools.
# Needs node 20 or newer, and npm. Talks to nobody, but for the installation.
set -euo pipefail
version=1.32.2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-fund --no-audit --loglevel=error "@modelcontextprotocol/sdk@$version" >&2 || exit 2

cat >"$work/try.mjs" <<'JS'
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const outputSchema = {
  $schema: "http://json-schema.org/draft-04/schema#",
  type: "object",
  properties: { n: { type: "number", minimum: 0, exclusiveMinimum: true } },
};
const tools = [
  { name: "plain", inputSchema: { type: "object" } },
  { name: "bounded", inputSchema: { type: "object" }, outputSchema },
];
const server = new Server({ name: "two", version: "1" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
const client = new Client({ name: "one", version: "1" });
const [near, far] = InMemoryTransport.createLinkedPair();
await Promise.all([server.connect(far), client.connect(near)]);
try {
  console.log(`listed: ${(await client.listTools()).tools.map((tool) => tool.name)}`);
} catch (error) {
  console.log(`failed: ${error.message}`);
}
await client.close();
JS

seen=$(cd "$work" && node try.mjs) || exit 2
echo "@modelcontextprotocol/sdk $version"
echo "$seen"
[[ $seen == failed:*exclusiveMinimum* ]] || { echo "This has changed." >&2; exit 1; }

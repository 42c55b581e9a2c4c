// Vercel AI SDK: probes with server/discover, then shakes hands. Usage: node ai_sdk.mjs NODE_MODULES TARGET
import { live, load, target } from "./story.mjs";

const { createMCPClient } = await load("@ai-sdk/mcp/dist/index.js");
const { Experimental_StdioMCPTransport } = await load("@ai-sdk/mcp/dist/mcp-stdio/index.js");

const transport = "url" in target
  ? { type: "http", url: target.url }
  : new Experimental_StdioMCPTransport(target);
const client = await createMCPClient({ transport });
const tools = await client.tools();
await live(Object.keys(tools), (name, args) => tools[name].execute(args, { toolCallId: "1", messages: [] }));
await client.close();

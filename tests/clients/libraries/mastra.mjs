// Mastra: tools of its MCP client, executed as its agent does. Usage: node mastra.mjs NODE_MODULES TARGET
import { live, load, target } from "./story.mjs";

const { MCPClient } = await load("@mastra/mcp/dist/index.js");

const server = "url" in target ? { url: new URL(target.url) } : target;
const client = new MCPClient({ id: "story", servers: { gw: server } });
const tools = await client.listTools();
const names = Object.keys(tools).map((name) => name.replace(/^gw_/, ""));
await live(names, (name, args) => tools[`gw_${name}`].execute(args, {}));
await client.disconnect();

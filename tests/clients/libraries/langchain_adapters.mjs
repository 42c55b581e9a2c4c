// LangChain.js: tools of its MCP adapters. Usage: node langchain_adapters.mjs NODE_MODULES TARGET
import { live, load, target } from "./story.mjs";

const { MultiServerMCPClient } = await load("@langchain/mcp-adapters/dist/index.js");

const server = "url" in target ? { transport: "http", url: target.url } : { transport: "stdio", ...target };
const client = new MultiServerMCPClient({ mcpServers: { gw: server } });
const tools = Object.fromEntries((await client.getTools()).map((tool) => [tool.name, tool]));
await live(Object.keys(tools), (name, args) => tools[name].invoke(args));
await client.close();

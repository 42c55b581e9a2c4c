// Lists and calls tools with the official TypeScript SDK, which checks everything that it is sent.
// Usage: node read_results.mjs SDK_FOLDER TARGET TOOLS; both are JSON, TARGET as for typescript_client.mjs.
// Prints the names that are listed, those with an output schema, and each call's content or the error of the library.
const [sdk, target, tools] = [process.argv[2], JSON.parse(process.argv[3]), JSON.parse(process.argv[4])];
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);

const client = new Client({ name: "typescript", version: "1" });
await client.connect(new StdioClientTransport(target));
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
for (;;) {  // until the servers are listed
  const { not_covered } = (await client.callTool({ name: "retrieve_tools", arguments: { query: "x" } })).structuredContent;
  if (!not_covered.length) break;
  await pause();
}
const listed = (await client.listTools()).tools;
const seen = { listed: listed.map((tool) => tool.name), checked: listed.filter((tool) => tool.outputSchema).map((tool) => tool.name) };
seen.results = {};
for (const name of tools) {
  try {
    seen.results[name] = (await client.callTool({ name: "call_tool_write", arguments: { name } })).content;
  } catch (error) {
    seen.results[name] = String(error);
  }
}
await client.close();
console.log(JSON.stringify(seen));

// Lives through a growing list with the official TypeScript SDK, as tests/clients/stories.py tells it.
// Usage: node typescript_client.mjs SDK_FOLDER TARGET; TARGET is JSON: {"url"} or {"command", "args", "env"}.
// Prints the story as JSON.
const [sdk, target] = [process.argv[2], JSON.parse(process.argv[3])];
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const { ToolListChangedNotificationSchema } = await import(`${sdk}/dist/esm/types.js`);

const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

async function visit() {
  const client = new Client({ name: "typescript", version: "1" });
  const visitor = { told: 0, client };
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => { visitor.told += 1; });
  await client.connect("url" in target
    ? new StreamableHTTPClientTransport(new URL(target.url))
    : new StdioClientTransport(target));
  visitor.names = async () => (await client.listTools()).tools.map((tool) => tool.name);
  visitor.call = (name, args) => client.callTool({ name, arguments: args });
  return visitor;
}

async function search(visitor, name) {
  const [server] = name.split(":");
  for (;;) {
    const answer = (await visitor.call("retrieve_tools", { query: name, limit: 1, servers: [server] })).structuredContent;
    if (answer.newly_registered.length) return answer;
    if (!answer.not_covered.length) throw new Error(JSON.stringify(answer));
    await pause();
  }
}

const visitor = await visit();
const other = await visit();
const story = { before: await visitor.names() };
story.first = (await search(visitor, "todo:add_task")).newly_registered;
while (!visitor.told) await pause();
story.after = await visitor.names();
story.said = JSON.stringify(await visitor.call(story.first[0], { title: "Milk" }));
const second = await search(visitor, "clock:now");
[story.second, story.evicted] = [second.newly_registered, second.evicted];
while (visitor.told < 2) await pause();
story.in_the_end = await visitor.names();
story.others = await other.names();
story.others_error = await other.call(story.second[0], {}).then(JSON.stringify, String);
story.others_told = other.told;
console.log(JSON.stringify(story));
for (const each of [visitor, other]) {
  await each.client.transport.terminateSession?.();
  await each.client.close();
}

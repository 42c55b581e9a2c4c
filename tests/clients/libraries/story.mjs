// The same story for every client library of the Node world; see story.py.
import { pathToFileURL } from "node:url";

const search = { query: "add a task to the todo list" };
const call = { name: "todo:add_task", args: { title: "Milk" } };

export const target = JSON.parse(process.argv[3]);

export const load = (file) => import(pathToFileURL(`${process.argv[2]}/${file}`).href);

const text = (result) => (typeof result === "string" ? result : JSON.stringify(result));

export async function live(names, use) {
  let found = "";
  for (let turn = 0; turn < 60 && !found.includes(call.name); turn += 1) {
    if (turn) await new Promise((resolve) => setTimeout(resolve, 250));
    found = text(await use("retrieve_tools", search));
  }
  console.log(JSON.stringify({ tools: names, found, called: text(await use("call_tool_write", call)) }));
}

// The process of one JavaScript script, run by deno without any permission; see run.py for what goes over its pipes.
// The script shares this process and could speak for it: whatever is said here, it may say. The gateway trusts no word.

const { stdin, stdout, exit, inspect } = Deno;
const { parse, stringify } = JSON;
const encoder = new TextEncoder();

class ToolError extends Error {
  constructor(error) {
    super(`${error.code}: ${error.message}`);
    this.name = "ToolError";
    this.code = error.code;
  }
}

async function* lines() {
  const decoder = new TextDecoder();
  const chunk = new Uint8Array(65536);
  let parts = [];
  for (let size; (size = await stdin.read(chunk)) !== null; ) {
    const pieces = decoder.decode(chunk.subarray(0, size), { stream: true }).split("\n");
    for (const piece of pieces.slice(0, -1)) {
      yield parse(parts.join("") + piece);
      parts = [];
    }
    parts.push(pieces.at(-1));
  }
}

function write(text) {
  let bytes = encoder.encode(text + "\n");
  while (bytes.length) bytes = bytes.subarray(stdout.writeSync(bytes));
}

function say(kind, members) {
  write(stringify({ say: kind, ...members }));
}

function valueOf(reply) {
  if (!("text" in reply)) return reply.value;
  if (!/^\s*[[{]/.test(reply.text)) return reply.text;
  try {
    return parse(reply.text);
  } catch {
    return reply.text;
  }
}

const waiting = new Map();
let lastId = 0;

function ask(name, args) {
  if (typeof name !== "string") throw new TypeError("the name of a tool is a string");
  if (args === null || typeof args !== "object" || Array.isArray(args)) {
    throw new TypeError("the arguments of a tool are an object");
  }
  const id = ++lastId;
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    say("call", { id, name, args });
  });
}

// call_tool(server, tool, args) is the form of the field's other implementation.
async function call_tool(name, args, more) {
  const isSplit = typeof name === "string" && typeof args === "string" && !/^\s*[[{]/.test(args);
  const reply = await (isSplit ? ask(`${name}:${args}`, more ?? {}) : ask(name, args ?? {}));
  if ("error" in reply) throw new ToolError(reply.error);
  return valueOf(reply);
}

async function call_tools(calls) {
  const replies = await Promise.all(calls.map(({ name, args = {} }) => ask(name, args)));
  return replies.map((reply) =>
    "error" in reply ? { ok: false, error: reply.error } : { ok: true, result: valueOf(reply) }
  );
}

function replaceConsole(leftChars) {
  const print = (...values) => {
    if (leftChars <= 0) return;
    const text = values.map((value) => (typeof value === "string" ? value : inspect(value))).join(" ") + "\n";
    say("print", { text: text.slice(0, leftChars + 1) }); // one more: the gateway sees that something is missing
    leftChars -= text.length;
  };
  globalThis.console = { log: print, info: print, debug: print, warn: print, error: print };
}

function failure(error) {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${inspect(error)}`;
  const place = /blob:[^\s:]+:(\d+):\d+/.exec((error instanceof Error && error.stack) || "");
  const kind = /allocation failed|allocate memory|out of memory/i.test(message) ? "memory" : "error";
  const text = message.replace(/^TypeError: (?=SyntaxError)/, "").split("\n")[0];
  return { kind, message: text, line: place ? Number(place[1]) : null };
}

const inbound = lines();
const { value: start } = await inbound.next();
replaceConsole(start.output_chars);
delete globalThis.Deno;

(async () => {
  for await (const reply of inbound) {
    waiting.get(reply.id)?.(reply);
    waiting.delete(reply.id);
  }
  exit(0); // the gateway is gone
})();

// On one line with the script's first, so that line numbers are the script's.
const source = `export default async (input, call_tool, call_tools) => {${start.code}\n}`;
try {
  const script = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const result = (await script.default(start.input, call_tool, call_tools)) ?? null;
  const text = stringify(result);
  if (text === undefined) throw new TypeError(`The result is a ${typeof result}, which JSON cannot hold`);
  write(`{"say":"return","result":${text}}`);
} catch (error) {
  say("fail", failure(error));
}
exit(0);

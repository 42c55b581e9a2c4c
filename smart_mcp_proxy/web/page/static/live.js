// Changes as they come: the page is taken anew when something happens that it shows.
import { pageAt, swap } from "./swap.js";

const QUIET_MS = 150; // several records of one action count as one change
const APART_MS = 500; // between two looks, however much happens

let isDue = false;
let timer = 0;
let lookedAt = 0;

/** Whether somebody is typing: what was typed is not taken away. */
function isBusy(main) {
  const field = document.activeElement;
  if (main.contains(field) && field.matches("input, textarea, select")) return true;
  return [...main.querySelectorAll("form[method=post] :is(textarea, input:not([type=hidden]))")].some(
    (each) => (["checkbox", "radio"].includes(each.type) ? each.checked !== each.defaultChecked : each.value !== each.defaultValue),
  );
}

async function look() {
  timer = 0;
  const main = document.getElementById("main");
  if (document.hidden || isBusy(main)) return; // looked at when that ends
  isDue = false;
  lookedAt = performance.now();
  const page = await pageAt(location.href).catch(() => null);
  if (!page || isBusy(main)) return;
  swap("#main", page);
  show(true);
  swap("nav[aria-label=Places]", page);
}

function soon() {
  isDue = true;
  timer ||= setTimeout(look, Math.max(QUIET_MS, APART_MS - (performance.now() - lookedAt)));
}

function show(isOn) {
  const sign = document.getElementById("live");
  sign?.classList.toggle("off", !isOn);
  if (sign) sign.textContent = isOn ? "live" : "connecting …";
}

/** Follows what happens for as long as the page is seen. */
export function liven() {
  const main = document.getElementById("main");
  const wanted = new Set((main?.dataset.live ?? "").split(" ").filter(Boolean));
  if (!wanted.size) return;
  let events = null;

  function connect() {
    // A browser keeps six connections to a host: pages that nobody looks at leave theirs to others.
    if (document.hidden) {
      events?.close();
      events = null;
      return;
    }
    if (events) return;
    events = new EventSource("/ui/events");
    events.addEventListener("change", () => wanted.has("change") && soon());
    events.addEventListener("activity", (event) => {
      if (wanted.has("activity") || wanted.has(JSON.parse(event.data).kind)) soon();
    });
    events.onopen = () => {
      show(true);
      soon(); // something may have happened since the page was made, or while nobody looked
    };
    events.onerror = () => show(false);
  }

  connect();
  document.addEventListener("visibilitychange", connect);
  document.addEventListener("focusout", () => isDue && !timer && soon());
  addEventListener("pagehide", () => {
    events?.close();
    events = null;
  });
  addEventListener("pageshow", connect); // also one that comes back from the browser's memory
}

// Parts of the page taken anew from the server, which has escaped all that it sends.
import { localTimes } from "./times.js";

const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";
const known = new Map();

/** Remembers the parts that are swapped as the server sent them, before anything changes them. */
export function remember(...selectors) {
  for (const selector of selectors) known.set(selector, document.querySelector(selector)?.innerHTML);
}

/** The same page as the server has it now; null where it cannot be had. */
export async function pageAt(address, signal) {
  const reply = await fetch(address, { signal, redirect: "error", headers: { accept: "text/html" } });
  if (!reply.ok) return null;
  return new DOMParser().parseFromString(await reply.text(), "text/html");
}

/** How somebody would find an element again: by its kind, its words and those of what it is in. */
function place(element) {
  const around = element.closest("section, tr")?.querySelector("h2, h3, th, td")?.textContent;
  return JSON.stringify([element.tagName, element.id, element.textContent.trim(), around]);
}

/** Puts the part of another document in the place of the same one here; focus and open details stay where they are. */
export function swap(selector, page) {
  const old = document.querySelector(selector);
  const found = page.querySelector(selector);
  if (!old || !found || known.get(selector) === found.innerHTML) return;
  known.set(selector, found.innerHTML);
  const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
  const focused = old.contains(document.activeElement) ? place(document.activeElement) : null;
  localTimes(found);
  old.replaceChildren(...document.importNode(found, true).childNodes);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused === null) return;
  const same = [...old.querySelectorAll(FOCUSABLE)].find((each) => place(each) === focused);
  (same ?? old).focus({ preventScroll: true });
}

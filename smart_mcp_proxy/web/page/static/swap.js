// Parts of the page taken anew from the server, which has escaped all that it sends.
import { localTimes } from "./times.js";

/** The same page as the server has it now; null where it cannot be had. */
export async function pageAt(address, signal) {
  const reply = await fetch(address, { signal, redirect: "error", headers: { accept: "text/html" } });
  if (!reply.ok) return null;
  return new DOMParser().parseFromString(await reply.text(), "text/html");
}

/** Puts the element of another document in the place of the one with the same selector; open details stay open. */
export function swap(selector, page) {
  const old = document.querySelector(selector);
  const found = page.querySelector(selector);
  if (!old || !found || old.innerHTML === found.innerHTML) return;
  const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
  const focused = document.activeElement?.id;
  localTimes(found);
  const fresh = document.importNode(found, true);
  old.replaceChildren(...fresh.childNodes);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

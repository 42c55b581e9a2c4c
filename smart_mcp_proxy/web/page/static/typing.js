// Lists that follow what is typed into their filter.
import { pageAt, swap } from "./swap.js";

const QUIET_MS = 200;

/** Lets every form that is marked so show its results while it is filled in. */
export function followTyping() {
  let timer = 0;
  let asked = new AbortController();
  document.addEventListener("input", (event) => {
    const form = event.target.closest?.("form[data-instant]");
    if (!form) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      asked.abort();
      asked = new AbortController();
      const words = [...new FormData(form)].filter(([, value]) => value !== "");
      const address = `${form.action}?${new URLSearchParams(words)}`;
      const page = await pageAt(address, asked.signal).catch(() => null);
      if (!page) return;
      swap("#results", page);
      history.replaceState(null, "", address);
    }, QUIET_MS);
  });
}

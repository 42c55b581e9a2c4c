// Times of the page in the reader's zone.
const DAY_MS = 86_400_000;

/** Rewrites every <time> below `root`; those of today without their date. */
export function localTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const clock = at.toLocaleTimeString([], { hour12: false });
    const isNear = Math.abs(Date.now() - at) < DAY_MS && at.getDate() === new Date().getDate();
    element.textContent = isNear ? clock : `${at.toLocaleDateString("sv")} ${clock}`;
    element.title = at.toString();
  }
}

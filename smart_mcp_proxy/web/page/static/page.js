// What the page does beyond what it can do without a script: local times, live changes, lists that follow typing.
import { liven } from "./live.js";
import { remember } from "./swap.js";
import { followTyping } from "./typing.js";
import { localTimes } from "./times.js";

document.documentElement.classList.add("scripted");
remember("#main", "nav[aria-label=Places]");
localTimes(document);
liven();
followTyping();

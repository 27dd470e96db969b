"use strict";
// Says what the pointer is over in a timeline, and lights up the steps that it waited for and that waited for it.
for (const timeline of document.querySelectorAll(".timeline")) {
  const said = timeline.parentNode.querySelector(".hover");
  const bars = [...timeline.querySelectorAll(".bar")];
  const waitsOf = (bar) => (bar.dataset.waits || "").split(" ").filter(Boolean);
  const light = (pointed) => {
    const waits = pointed ? waitsOf(pointed) : [];
    for (const bar of bars) {
      const before = waits.includes(bar.dataset.step);
      const after = pointed && pointed.dataset.step && waitsOf(bar).includes(pointed.dataset.step);
      bar.classList.toggle("linked", Boolean(before || after));
    }
    const title = pointed && pointed.querySelector("title");
    said.textContent = title ? title.textContent : said.dataset.idle;
  };
  timeline.addEventListener("mouseover", (event) => light(event.target.closest(".bar")));
  timeline.addEventListener("mouseleave", () => light(null));
  light(null);
}

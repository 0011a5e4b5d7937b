"use strict";
// Readings under the pointer. Everything on the page can be read without this.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const hide = (box) => {
    tip.hidden = true;
    box.querySelector(".hair")?.remove();
  };
  for (const box of document.querySelectorAll("[data-tips]")) {
    const tips = JSON.parse(box.dataset.tips);
    if (!tips.length) continue;
    const show = (event) => {
      const area = box.getBoundingClientRect();
      const x = (100 * (event.clientX - area.left)) / area.width;
      const near = tips.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      let hair = box.querySelector(".hair");
      if (!hair && box.classList.contains("plot")) {
        hair = document.createElement("i");
        hair.className = "hair";
        box.append(hair);
      }
      if (hair) hair.style.left = `${near[0]}%`;
      tip.textContent = near[1];
      tip.hidden = false;
      const wide = document.documentElement.clientWidth;
      const left = area.left + (near[0] / 100) * area.width + 12;
      tip.style.left = `${Math.max(4, Math.min(left, wide - tip.offsetWidth - 8)) + scrollX}px`;
      tip.style.top = `${area.top + scrollY - tip.offsetHeight - 6}px`;
    };
    box.addEventListener("pointermove", show);
    box.addEventListener("pointerdown", show);
    box.addEventListener("pointerleave", () => hide(box));
  }
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();

"""The page's style sheet and script.

They are Python strings because Flower's app bundles carry no .css and .js files.
"""

# ruff: noqa: E501 - not our language

CSS = r"""/* Colours: Okabe and Ito's palette, which colour-blind people can tell apart. k4 and k5 are darkened on
   white and k0 is lightened on black, to keep three to one against the ground. */
:root {
  color-scheme: light dark;
  --bg: #eef0ee; --panel: #fff; --ink: #15191d; --soft: #545c64; --edge: #d3d8d5; --grid: #e9ecea;
  --well: #f1f3f2; --warn: #fff6e0; --warn-edge: #e0b040; --good: #007a59; --bad: #b84a00;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b57d00; --c5: #2f8fc6; --c6: #4d545b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #0c0f12; --panel: #14191e; --ink: #e8ecef; --soft: #a0a9b1; --edge: #2a3239; --grid: #20272d;
    --well: #1b2127; --warn: #2a2313; --warn-edge: #8a6a1c; --good: #3cc79a; --bad: #ff9a57;
    --c0: #3a9ad9; --c1: #e8741e; --c2: #1fb88b; --c3: #d98bb6; --c4: #e69f00; --c5: #7cc6f0; --c6: #aab2b9;
  }
}
.k0 { --k: var(--c0); } .k1 { --k: var(--c1); } .k2 { --k: var(--c2); } .k3 { --k: var(--c3); }
.k4 { --k: var(--c4); } .k5 { --k: var(--c5); } .k6 { --k: var(--c6); } .k7 { --k: var(--soft); }

* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
main { max-width: 1200px; margin: 0 auto; padding: 24px 20px 40px; }
p, ul, dl, dd, figure, h1, h2 { margin: 0; padding: 0; }
sub { line-height: 0; font-size: .75em; }
header, section {
  background: var(--panel); border: 1px solid var(--edge); border-radius: 10px; padding: 20px 24px;
  margin-bottom: 14px;
}
h1 { font-size: 30px; line-height: 1.15; font-weight: 650; letter-spacing: -.015em; margin: 4px 0 8px; }
h2 { font-size: 17px; font-weight: 650; margin-bottom: 10px; letter-spacing: -.005em; }
.over { color: var(--soft); font-size: 13px; display: flex; justify-content: space-between; gap: 12px; }
.facts { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 0; color: var(--soft); }
.facts li:not(:last-child)::after { content: "\b7"; margin: 0 9px; }
.state { margin-top: 10px; font-size: 14px; display: flex; align-items: baseline; gap: 8px; }
.lamp { width: 9px; height: 9px; border-radius: 50%; background: var(--good); flex: none; }
.open .lamp { background: none; border: 2px solid var(--bad); }
.lead { color: var(--soft); max-width: 86ch; margin-bottom: 14px; }
.lead b { color: var(--ink); font-weight: 600; }
.note, .none { color: var(--soft); font-size: 13px; }

.tiles { display: grid; grid-template-columns: 1.5fr repeat(5, 1fr); margin-top: 18px; border-top: 1px solid var(--edge); }
.tile { padding: 14px 12px 0 16px; border-left: 1px solid var(--edge); min-width: 0; }
.tile:first-child { padding-left: 0; border-left: 0; }
.tile dt, .tile dd { color: var(--soft); font-size: 13px; line-height: 1.35; }
.tile .big { color: var(--ink); font-size: 24px; line-height: 1.3; font-weight: 600; letter-spacing: -.02em; white-space: nowrap; }
.tile.main .big { font-size: 40px; line-height: 1.1; }
.notices { margin-top: 18px; background: var(--warn); border: 1px solid var(--warn-edge); border-radius: 8px; padding: 10px 14px; font-size: 14px; }
.notices ul { padding-left: 18px; }
.notices ul:has(> li:only-child) { padding-left: 0; list-style: none; }
.notices details { border: 0; margin: 0; padding: 0; }

.grid { display: grid; gap: 22px 30px; }
.grid > * { min-width: 0; }
.two { grid-template-columns: 1fr 1fr; }
.three { grid-template-columns: repeat(3, 1fr); gap: 22px 18px; }
.costs { margin-top: 18px; max-width: 560px; }
.costs .scroll td:last-child { min-width: 0; }
.four { grid-template-columns: repeat(4, 1fr); gap: 22px 18px; }
.four + .four { margin-top: 22px; }
figcaption { display: flex; justify-content: space-between; align-items: baseline; flex-wrap: wrap; gap: 0 14px; font-size: 14px; }
figcaption b { font-weight: 600; }
.plot { position: relative; margin: 12px 52px 24px 42px; }
.bare .plot { margin-right: 14px; } .bare .xl { margin-right: 14px; }
.four .plot { margin: 10px 52px 22px 44px; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; pointer-events: none; }
.plot path, .strip path { fill: none; vector-effect: non-scaling-stroke; }
.grid path, path.grid { stroke: var(--grid); stroke-width: 1; }
.plot .rule { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 5 4; }
.plot .line { stroke: var(--k); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.plot .dash { stroke-dasharray: 6 5; stroke-width: 1.5; } .plot .dots { stroke-dasharray: 1 5; } .plot .long { stroke-dasharray: 12 5; }
.plot .dot { stroke: var(--k); stroke-width: 5; stroke-linecap: round; }
.plot .last { stroke: var(--k); stroke-width: 8; stroke-linecap: round; }
.plot .band { fill: var(--k); fill-opacity: .2; stroke: none; }
.yt, .xt, .end, .rl { position: absolute; font-size: 12px; line-height: 16px; color: var(--soft); white-space: nowrap; }
.yt { right: 100%; margin-right: 8px; transform: translateY(-50%); }
.xt { top: 100%; margin-top: 5px; transform: translateX(-50%); }
.rl { right: 0; transform: translateY(-100%); }
.rl.under { transform: none; }
.end { left: 100%; margin-left: 9px; transform: translateY(-50%); color: var(--ink); font-weight: 600; max-width: 108px; overflow: hidden; text-overflow: ellipsis; }
.four .end { font-weight: 500; max-width: 46px; margin-left: 7px; }
.plot .end .sw { display: none; }
.xl { font-size: 12px; color: var(--soft); text-align: center; margin: -4px 52px 0 42px; }
.four .xl { display: none; }
.sw { display: inline-block; width: 14px; height: 0; border-top: 3px solid var(--k); margin-right: 6px; vertical-align: 3px; }
.sw.dash, .sw.long { border-top-style: dashed; } .sw.dots { border-top-style: dotted; }
.chip { display: inline-block; width: 9px; height: 9px; border-radius: 2px; background: var(--k); margin-right: 7px; }
.tag b { font-weight: 600; }
.dir { display: block; font-weight: 400; padding-left: 20px; color: var(--soft); font-size: 12px; }
.key { display: flex; flex-wrap: wrap; gap: 2px 20px; margin-bottom: 4px; color: var(--soft); font-size: 14px; }
.key b { color: var(--ink); font-weight: 600; }
.key.runs { gap: 6px 26px; margin-bottom: 14px; }
.key.runs .dir { display: inline; padding-left: 7px; }
.phase { display: inline-block; width: 22px; height: 11px; border-radius: 2px; margin-right: 7px; vertical-align: -1px; }
.phases { --k: var(--soft); margin-bottom: 12px; }

.scale { color: var(--soft); font-size: 12px; display: flex; align-items: center; gap: 6px; }
.ramp { width: 56px; height: 8px; border-radius: 2px; background: linear-gradient(90deg, color-mix(in srgb, var(--soft) 18%, transparent), var(--soft)); }
.group { margin-top: 7px; }
.srow { display: grid; grid-template-columns: 122px minmax(0, 1fr) 76px; gap: 10px; align-items: center; font-size: 12px; line-height: 17px; }
.who { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.srow .who { border-left: 3px solid var(--k); padding-left: 7px; }
.val { text-align: right; color: var(--soft); white-space: nowrap; }
.strip { position: relative; height: 15px; }
.strip svg { display: block; width: 100%; height: 100%; background: var(--well); pointer-events: none; }
.strip rect { fill: var(--k); }
.strip .off { stroke: var(--soft); stroke-width: 1.5; }
.strip .lost { stroke: var(--ink); stroke-width: 1.5; }
.grow { display: grid; grid-template-columns: 132px minmax(0, 1fr) 76px; gap: 10px; align-items: center; font-size: 12px; line-height: 19px; }
.grow .who { border-left: 3px solid var(--k); padding-left: 7px; }
.grow .bar { height: 12px; background: var(--well); }
.gantt .group { margin-top: 6px; }
.gfoot { display: flex; justify-content: space-between; margin: 3px 86px 0 142px; font-size: 12px; color: var(--soft); }
.sfoot > div { display: flex; justify-content: space-between; margin: 3px 86px 0 132px; font-size: 12px; color: var(--soft); }

table { border-collapse: collapse; width: 100%; font-size: 13.5px; line-height: 1.4; }
th, td { text-align: left; padding: 6px 12px 6px 0; vertical-align: baseline; font-weight: 400; }
thead th { color: var(--soft); font-size: 12.5px; border-bottom: 1px solid var(--edge); white-space: nowrap; }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
.n { text-align: right; white-space: nowrap; }
.scroll { overflow-x: auto; max-height: 640px; overflow-y: auto; }
.scroll tbody th { white-space: nowrap; }
.scroll thead th { position: sticky; top: 0; background: var(--panel); }
.scroll td, .scroll th { overflow-wrap: normal; }
.scroll td:last-child { min-width: 120px; }
.cards th, .cards td { overflow-wrap: break-word; }
.cards thead th { white-space: normal; vertical-align: bottom; }
.cards tbody th { min-width: 150px; }
.cards td .dir { padding-left: 0; }
.pairs table { width: auto; min-width: min(560px, 100%); }
.pairs th { padding-right: 40px; }
.pairs td { overflow-wrap: anywhere; }
.absent .n { padding-right: 28px; }
.absent td:nth-child(2), .absent td:nth-child(4) { min-width: 190px; overflow-wrap: anywhere; }
.limits tbody > tr > * { padding-top: 3px; padding-bottom: 3px; vertical-align: middle; }
.limits tbody tr + tr > * { border-top: 0; }
.limits tbody th { white-space: nowrap; width: 1%; font-size: 13px; max-width: 220px; overflow: hidden; text-overflow: ellipsis; }
.limits .use { width: 38%; }
.limits .by { color: var(--soft); white-space: nowrap; max-width: 130px; overflow: hidden; text-overflow: ellipsis; }
.limits thead th:nth-child(4) { text-align: right; }
.limits + .note { margin-top: 12px; }
.pair { display: grid; grid-template-columns: 1fr 112px; gap: 10px; align-items: center; }
.bar { position: relative; display: block; height: 13px; }
.bar i { position: absolute; top: 0; bottom: 0; }
.bar .fill { background: var(--k); border-radius: 2px 0 0 2px; opacity: .85; }
.bar .rest { background: repeating-linear-gradient(135deg, var(--edge) 0 1.5px, transparent 1.5px 6px); }
.phase.recv, .bar .recv { background: color-mix(in srgb, var(--k) 45%, var(--panel)); }
.phase.send, .bar .send { background: color-mix(in srgb, var(--k) 60%, var(--ink)); }
.phase.fill { background: var(--k); } .phase.rest { background: repeating-linear-gradient(135deg, var(--edge) 0 1.5px, transparent 1.5px 6px); border: 1px solid var(--edge); }
.bar .range { top: 5.5px; bottom: auto; height: 2px; background: var(--ink); }
.bar .stop { top: -3px; bottom: -3px; border-left: 2px solid var(--ink); }
.amount { white-space: nowrap; color: var(--soft); font-size: 13px; }
.amount b { display: inline-block; min-width: 37px; text-align: right; color: var(--ink); font-weight: 600; margin-right: 4px; }
.over b { color: var(--bad); }

details { border-top: 1px solid var(--grid); padding: 8px 0; }
h2 + details { border-top: 0; }
summary { cursor: pointer; font-weight: 500; padding: 2px 0; }
summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
details > :not(summary) { margin-top: 8px; }
footer { color: var(--soft); font-size: 13px; padding: 6px 4px; }
code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
#tip { position: absolute; z-index: 9; pointer-events: none; background: var(--ink); color: var(--panel); font-size: 12.5px; line-height: 1.4; padding: 4px 9px; border-radius: 5px; white-space: pre-line; max-width: 290px; }
.hair { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--soft); pointer-events: none; }

@media screen and (max-width: 1000px) { .four { grid-template-columns: 1fr 1fr; } }
@media screen and (max-width: 760px) {
  main { padding: 10px 10px 30px; }
  header, section { padding: 16px 14px; border-radius: 8px; }
  h1 { font-size: 25px; }
  .two, .three { grid-template-columns: minmax(0, 1fr); }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tile { padding: 10px 8px 0 0; border-left: 0; }
  .tile.main { grid-column: 1 / -1; }
  .srow { grid-template-columns: 118px minmax(0, 1fr) 70px; gap: 6px; font-size: 11px; }
  .grow { display: grid; grid-template-columns: 132px minmax(0, 1fr) 76px; gap: 10px; align-items: center; font-size: 12px; line-height: 19px; }
.grow .who { border-left: 3px solid var(--k); padding-left: 7px; }
.grow .bar { height: 12px; background: var(--well); }
.gantt .group { margin-top: 6px; }
.gfoot { display: flex; justify-content: space-between; margin: 3px 86px 0 142px; font-size: 12px; color: var(--soft); }
.sfoot > div { margin: 3px 76px 0 124px; }
  .cards table, .cards tbody { display: block; }
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cards tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 18px; padding: 9px 0; }
  .cards tbody tr + tr { border-top: 1px solid var(--edge); }
  .cards tbody tr + tr > * { border-top: 0; }
  .cards tbody th { grid-column: 1 / -1; padding-bottom: 4px; }
  .cards td, .cards td.n { display: flex; justify-content: space-between; gap: 10px; padding: 2px 0; text-align: right; white-space: normal; }
  .cards td::before { content: attr(data-label); color: var(--soft); font-size: 12.5px; text-align: left; }
  .grow { grid-template-columns: 122px minmax(0, 1fr) 54px; gap: 6px; font-size: 11px; }
  .gfoot { margin: 3px 60px 0 128px; }
  .limits, .limits tbody { display: block; }
  .limits thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .limits tr { display: grid; grid-template-columns: minmax(0, 1fr) auto; padding: 7px 0; }
  .limits tbody tr + tr { border-top: 1px solid var(--grid); }
  .limits tbody > tr > * { padding: 1px 0; }
  .limits tbody th, .limits .use { width: auto; }
  .limits .use { grid-column: 1 / -1; display: grid; grid-template-columns: 46px minmax(0, 1fr); align-items: center; order: 2; }
  .limits .use::before { content: attr(data-label); color: var(--soft); font-size: 12px; }
  .limits .n { order: 1; color: var(--soft); } .limits .n::before { content: "idle "; }
  .limits .by { order: 3; display: none; }
  .pair { grid-template-columns: minmax(0, 1fr) 104px; }
}
@media screen and (max-width: 560px) { .cards tr { grid-template-columns: 1fr; } .four { grid-template-columns: minmax(0, 1fr); } }
@media print {
  :root {
    --bg: #fff; --panel: #fff; --ink: #000; --soft: #444; --edge: #bbb; --grid: #e4e4e4; --well: #f3f3f3; --warn: #fff;
    --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b57d00; --c5: #2f8fc6; --c6: #4d545b;
  }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 11px; }
  main { max-width: none; padding: 0; }
  header, section { border: 0; padding: 8px 0; margin: 0; }
  figure, .limits tr, .srow, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; max-height: none; }
  .scroll table, .scroll thead th { font-size: 8.5px; }
  .tile .big { font-size: 17px; } .tile.main .big { font-size: 26px; }
  .tile dt, .tile dd, .note, .lead { font-size: 11px; }
  .pair { grid-template-columns: minmax(0, 1fr) 96px; }
  .srow { grid-template-columns: 112px minmax(0, 1fr) 70px; font-size: 10.5px; line-height: 15px; gap: 6px; }
  .grow { display: grid; grid-template-columns: 132px minmax(0, 1fr) 76px; gap: 10px; align-items: center; font-size: 12px; line-height: 19px; }
.grow .who { border-left: 3px solid var(--k); padding-left: 7px; }
.grow .bar { height: 12px; background: var(--well); }
.gantt .group { margin-top: 6px; }
.gfoot { display: flex; justify-content: space-between; margin: 3px 86px 0 142px; font-size: 12px; color: var(--soft); }
.sfoot > div { margin: 3px 76px 0 118px; }
  .four { grid-template-columns: repeat(3, 1fr); }
  #tip, .hair { display: none; }
}
"""

JS = r""""use strict";
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
"""

#include "lockstep/watch/report_style.h"

namespace lockstep {

const std::string_view kReportStyle = R"css(
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #1b2330; --soft: #5b6675; --line: #dfe3e9;
  --s0: #2563c9; --s1: #c2410c; --s2: #0f766e; --s3: #7c3aed; --s4: #a16207; --s5: #be185d; --s6: #4d7c0f; --s7: #0369a1;
  --good: #15803d; --good-tint: #e5f4ea; --bad: #b91c1c; --bad-tint: #fdeaea; --warn: #92400e; --warn-tint: #fdf3dc; }
@media (prefers-color-scheme: dark) { :root { --paper: #11151b; --card: #191f28; --ink: #e4e8ee; --soft: #9aa5b4;
  --line: #2c3541; --s0: #7fb0ff; --s1: #ff9f6b; --s2: #5cd0c0; --s3: #c3a2ff; --s4: #e6c05c; --s5: #ff8fbd; --s6: #a8d46a;
  --s7: #6cc7f5; --good: #6fd391; --good-tint: #17301f; --bad: #ff8f8f; --bad-tint: #3a1c1f; --warn: #f0c36a;
  --warn-tint: #35290f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  "Noto Sans", "Noto Sans CJK SC", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 17px; margin: 34px 0 12px; }
.top { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; }
.chip { font-size: 13px; font-weight: 600; padding: 2px 11px; border-radius: 99px; }
.good { color: var(--good); background: var(--good-tint); } .bad { color: var(--bad); background: var(--bad-tint); }
.warn { color: var(--warn); background: var(--warn-tint); }
.facts { color: var(--soft); margin: 6px 0 0; display: flex; flex-wrap: wrap; gap: 0 18px; overflow-wrap: anywhere; }
.facts b { color: var(--ink); font-weight: 600; }
.banner { border-left: 4px solid currentColor; border-radius: 6px; padding: 12px 16px; margin: 18px 0 0; }
.banner pre { margin: 4px 0 0; color: var(--ink); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 22px 0 0; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 14px; } .tile span, .tile small { display: block; color: var(--soft); font-size: 13px; }
.tile b { font-size: 20px; font-weight: 600; letter-spacing: -.01em; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr)); gap: 14px; }
figure { margin: 0; padding: 12px 12px 6px; position: relative; break-inside: avoid; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 10px; align-items: baseline; font-size: 14px; padding: 0 4px 6px; }
figcaption b { font-weight: 600; } figcaption small, .legend { color: var(--soft); font-size: 12.5px; }
.legend { display: flex; flex-wrap: wrap; gap: 0 12px; margin-left: auto; }
.key { display: inline-block; width: 14px; height: 0; border-top: 2.5px solid var(--c); margin: 0 5px 3px 0;
  vertical-align: middle; } .key.dashed { border-top-style: dashed; } .key.faint { opacity: .4; }
.key.dot { width: 8px; height: 8px; border: 0; background: var(--c); border-radius: 50%; margin-bottom: 2px; }
svg { display: block; width: 100%; height: auto; } .grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--soft); font-size: 11px; } .line { fill: none; stroke: var(--c); stroke-width: 1.7;
  stroke-linejoin: round; stroke-linecap: round; } .line.faint { opacity: .38; stroke-width: 1.1; }
.line.dashed { stroke-dasharray: 5 4; stroke-width: 1.4; } .dot { fill: var(--c); }
.cursor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; pointer-events: none; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); }
.s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
#tip { position: fixed; pointer-events: none; background: var(--ink); color: var(--paper); border-radius: 6px;
  padding: 5px 9px; font-size: 12.5px; line-height: 1.4; white-space: pre; z-index: 2; }
.card { padding: 4px 16px; overflow-x: auto; --shade: color-mix(in srgb, var(--ink) 22%, transparent); background:
  linear-gradient(90deg, var(--card) 40%, transparent) 0 0 / 40px 100% local, linear-gradient(270deg, var(--card) 40%,
  transparent) 100% 0 / 40px 100% local, linear-gradient(90deg, var(--shade), transparent) 0 0 / 12px 100% scroll,
  linear-gradient(270deg, var(--shade), transparent) 100% 0 / 12px 100% scroll, var(--card); background-repeat:
  no-repeat; } table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; } td, th { padding: 8px 14px 8px 0;
  border-top: 1px solid var(--line); vertical-align: top; } tr:first-child > * { border-top: 0; }
td.text { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 90px; } td img { display: block; max-width: 96px;
  max-height: 96px; min-width: 56px; border-radius: 5px; border: 1px solid var(--line); image-rendering: auto; }
.num { text-align: right; white-space: nowrap; } .mark { font-weight: 600; white-space: nowrap; padding-right: 0; }
.mark.good, .mark.bad { background: none; } .bars td { padding: 6px 14px 6px 0; } .bars td:nth-child(2) { width: 70%; }
.bars td:first-child { white-space: nowrap; }
.track { background: var(--line); border-radius: 4px; height: 12px; margin-top: 5px; min-width: 80px; }
.fill { background: var(--s0); border-radius: 4px; height: 12px; }
.track.pair { display: flex; overflow: hidden; } .pair .fill { border-radius: 0; } .fill.soft { opacity: .4; }
.communication td:nth-child(2) { width: 22%; } .communication td:first-child { overflow-wrap: anywhere; }
.communication small { display: block; color: var(--soft); } .note { color: var(--soft); font-size: 12.5px; margin: 4px 0 12px; }
.stack { display: flex; position: relative; height: 16px; margin-top: 3px; border-radius: 4px; background: none;
  box-shadow: inset 0 0 0 1px var(--line); } .stack i { background: var(--c); height: 16px; flex: none; } .stack
i:first-child { border-radius: 4px 0 0 4px; } .stack b { position: absolute; top: -3px; height: 22px; width: 2px;
  background: var(--ink); margin-left: -1px; } .stack b.has { background: var(--bad); } .measured .stack { height:
  8px; margin-top: 7px; box-shadow: none; } .measured .stack i { height: 8px; opacity: .75; } .memory td { border-top:
  0; padding: 2px 14px 2px 0; white-space: nowrap; } .memory td:nth-child(2) { width: 58%; min-width: 160px; } .memory
tr.head th { padding: 10px 0 2px; white-space: nowrap; color: var(--ink); } .memory tr.measured td { color:
  var(--soft); } .memory td:last-child { font-size: 12.5px; padding-right: 0; } tr.head small { color: var(--soft);
  font-weight: 400; } .phases td { padding: 4px 14px 4px 0; } .phases tr.head th { color: var(--ink); padding-top:
  12px; } .phases tr.total td { font-weight: 600; } .legend.uses { margin: 8px 0 0; } .narrow { max-width: 720px; }
.spaced { margin-bottom: 12px; } .key.box { width: 10px; height: 10px; border: 0; border-radius: 2px; background:
  var(--c); margin-bottom: 2px; } .key.tickmark { width: 2px; height: 12px; border: 0; background: var(--ink); }
details { margin-top: 14px; } summary { cursor: pointer; font-weight: 600; padding: 8px 0; }
summary:focus-visible { outline: 2px solid var(--s0); } pre { font: 12.5px/1.45 ui-monospace, "SF Mono", Menlo,
  "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; } .plan { white-space: pre; }
.args td:first-child { font: 13px/1.6 ui-monospace, "DejaVu Sans Mono", monospace; white-space: nowrap; width: 1%; }
footer { color: var(--soft); font-size: 13px; margin-top: 36px; }
@media (max-width: 560px) { main { padding: 18px 14px 32px; } h1 { font-size: 22px; } .tile b { font-size: 19px; }
  .tiles { grid-template-columns: repeat(2, 1fr); gap: 10px; } .card { padding: 4px 12px; }
  table, pre { font-size: 12px; } td, th { padding-right: 9px; } td.text { min-width: 64px; } td img { max-width: 48px;
  min-width: 40px; } .memory td, .memory tr.head th, .num, .bars td:first-child { white-space: normal; }
  .memory td { padding-right: 8px; } .memory td:nth-child(2) { min-width: 84px; width: 40%; } .memory td:last-child {
  overflow-wrap: anywhere; } .communication td:first-child { min-width: 104px; } .tile b { white-space:
  normal; overflow-wrap: anywhere; } .args td:first-child { white-space: normal; overflow-wrap: anywhere; width: 45%; } }
@media print { body { background: #fff; font-size: 12px; } main { max-width: none; padding: 0; }
  .charts { grid-template-columns: 1fr 1fr; } .card { overflow: visible; } tr { break-inside: avoid; } }
)css";

const std::string_view kReportScript = R"js(
(() => {
  const tip = document.createElement('div');
  tip.id = 'tip'; tip.hidden = true; document.body.append(tip);
  for (const svg of document.querySelectorAll('svg[data-x]')) {
    const xs = svg.dataset.x.split(',').map(Number), texts = svg.dataset.text.split('|');
    const cursor = svg.querySelector('.cursor');
    if (!svg.dataset.x) continue;
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      let best = 0;
      xs.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = i; });
      cursor.setAttribute('x1', xs[best]); cursor.setAttribute('x2', xs[best]);
      cursor.setAttribute('visibility', 'visible');
      tip.textContent = texts[best]; tip.hidden = false;
      tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
      tip.style.top = event.clientY + 14 + 'px';
    });
    svg.addEventListener('pointerleave', () => { tip.hidden = true; cursor.setAttribute('visibility', 'hidden'); });
  }
})();
)js";

}  // namespace lockstep

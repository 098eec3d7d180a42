#include "lockstep/watch/post_mortem_style.h"

namespace lockstep {

const std::string_view kPostMortemStyle = R"css(
main { max-width: 1440px; } h1 { margin: 10px 0 0; overflow-wrap: anywhere; } .soft { color: var(--soft); }
p.soft { margin: 0 0 10px; font-size: 14px; }
.verdict { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--bad); border-radius: 10px;
  padding: 6px 20px; margin: 20px 0 0; }
dl { display: grid; grid-template-columns: minmax(64px, max-content) 1fr; gap: 8px 22px; margin: 10px 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; } dd pre, dd p { margin: 0; }
.verdict table { width: auto; font-size: 15px; } .verdict td { padding: 0 22px 2px 0; border: 0; }
.verdict .odd td:first-child { color: var(--bad); font-weight: 600; } .verdict td:last-child { color: var(--soft); }
dd.fix { font-weight: 600; }
.o0 { --c: #8a94a3; } .o1 { --c: #3b7be0; } .o2 { --c: #8a5cf0; } .o3 { --c: #12978a; } .o4 { --c: #b7860b; }
.o5 { --c: #57a5e8; } .o6 { --c: #6b9a2b; } .o7 { --c: #a9669f; } .o8 { --c: #7c7f2e; } .o9 { --c: #5560c9; }
.o10 { --c: #2b8fb0; } .o11 { --c: #3fae7b; }
.timeline { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 0 8px;
  --label: 270px; --h: 13px; } .timeline.few { --h: 18px; } .timeline input { position: absolute; opacity: 0; }
.bar { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: center; padding: 0 16px 10px; }
.zoom { display: flex; border: 1px solid var(--line); border-radius: 7px; overflow: hidden; order: 2; }
.zoom label { padding: 2px 12px; font-size: 13px; cursor: pointer; color: var(--soft); }
.zoom label + label { border-left: 1px solid var(--line); }
#z1:checked ~ .bar label[for=z1], #z4:checked ~ .bar label[for=z4], #z16:checked ~ .bar label[for=z16] {
  background: var(--s0); color: var(--card); font-weight: 600; }
.timeline input:focus-visible ~ .bar .zoom { outline: 2px solid var(--s0); outline-offset: 2px; }
#z4:checked ~ .scroll .plane { width: 400%; } #z16:checked ~ .scroll .plane { width: 1600%; }
.timeline .legend { margin: 0 auto 0 0; gap: 2px 16px; align-items: center; font-size: 13px; }
.legend i { display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 6px; background: var(--c); }
.legend i.pin { width: 2px; height: 14px; border-radius: 0; background: var(--ink); border: 0; position: static;
  margin: 0 9px -3px 4px; } .legend i.pin::before { content: none; }
/* Right to left, so that a wide plane shows its end first. */
.scroll { overflow-x: auto; direction: rtl; } .plane { direction: ltr; position: relative; min-width: 760px; }
.axis, .row { display: flex; position: relative; } .run { flex: 1; position: relative; min-width: 0; margin-right: 16px; }
.who { position: sticky; left: 0; z-index: 3; flex: 0 0 var(--label); width: var(--label); background: var(--card);
  padding: 0 10px 0 16px; display: flex; gap: 8px; align-items: center; font-size: 13px; white-space: nowrap;
  border-right: 1px solid var(--line); } .who b { min-width: 22px; }
.who .host { color: var(--soft); overflow: hidden; text-overflow: ellipsis; flex: 1; min-width: 0; }
.axis { height: 24px; font-size: 12px; color: var(--soft); } .axis .who { font-size: 12px; color: var(--soft); }
.layer { position: absolute; left: var(--label); right: 16px; top: 0; bottom: 0; font-size: 12px; color: var(--soft); }
.layer s, .layer u { position: absolute; top: 24px; bottom: 0; text-decoration: none; }
.layer s { border-left: 1px solid var(--line); display: none; } .layer .last { position: absolute; right: 0; top: 2px; }
.layer b, .layer em { position: absolute; top: -22px; left: 0; transform: translateX(-50%); white-space: nowrap; font-weight: 400; }
.layer em { left: 50%; font-style: italic; }
#z1:checked ~ .scroll .k1, #z4:checked ~ .scroll .k4, #z16:checked ~ .scroll .k16 { display: block; }
.layer u, .legend i.cut { background: repeating-linear-gradient(115deg, transparent 0 5px, var(--line) 5px 6px); }
.legend i.cut { border: 1px solid var(--line); }
.row { border-top: 1px solid var(--line); } .row { --n: 1; } .n2 { --n: 2; } .n3 { --n: 3; } .n4 { --n: 4; } .n5 { --n: 5; }
.row .run { height: calc(var(--n) * (var(--h) + 1px) + 13px); }
.row.culprit .who { box-shadow: inset 4px 0 0 var(--bad); background: var(--bad-tint); }
.row.culprit .run { background: color-mix(in srgb, var(--bad-tint) 55%, transparent); }
.state { font-size: 12px; font-weight: 600; padding: 0 8px; border-radius: 99px; white-space: nowrap; color: var(--soft);
  background: var(--line); } .state.bad { color: var(--bad); background: var(--bad-tint); }
.culprit .state.bad { background: var(--card); } .state.warn { color: var(--warn); background: var(--warn-tint); }
.c, .idle { position: absolute; height: var(--h); min-width: 2px; border-radius: 2px; background: var(--c); font: 600 11px/var(--h)
  system-ui, sans-serif; color: #fff; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; padding: 0;
  text-indent: 4px; box-shadow: inset -1px 0 0 color-mix(in srgb, var(--card) 45%, transparent); }
.l0, .idle { top: 7px; } .l1 { top: calc(8px + var(--h)); } .l2 { top: calc(9px + 2 * var(--h)); }
.l3 { top: calc(10px + 3 * var(--h)); } .c:hover { filter: brightness(1.25); z-index: 2; }
.c.open, .legend i.open { background: repeating-linear-gradient(115deg, #f2b243 0 7px, #f7c56d 7px 11px); }
.c.open { box-shadow: inset 5px 0 0 var(--c); text-indent: 10px; color: #3b2500; }
/* At the right, where a wide plane begins to be read. */
.c.open, .idle { text-align: right; padding-right: 5px; }
.c.failed, .legend i.failed { background: #c62828; } .c.failed { box-shadow: inset 5px 0 0 var(--c); }
.c.t4, .c.t16 { color: transparent; } #z4:checked ~ .scroll .t4, #z16:checked ~ .scroll .t4, #z16:checked ~ .scroll .t16 {
  color: #fff; }
#z4:checked ~ .scroll .t4.open, #z16:checked ~ .scroll .open { color: #3b2500; }
.c.marked { outline: 2px solid var(--ink); outline-offset: 1px; z-index: 1; }
.pin { position: absolute; top: 0; bottom: 0; width: 0; border-left: 2px solid var(--ink); margin-left: -1px; z-index: 1; }
.pin::before { content: ""; position: absolute; left: -6px; top: 0; border: 5px solid transparent;
  border-top-color: var(--ink); border-bottom: 0; }
.idle { background: none; border: 1px dashed var(--soft); color: var(--soft); font-style: normal; font-weight: 500;
  line-height: calc(var(--h) - 2px); box-shadow: none; }
.ends { position: absolute; top: calc(var(--h) / 2 - 3px); width: 20px; height: 20px; margin-left: -10px; border-radius: 50%; text-align: center;
  font-size: 12px; line-height: 19px; background: var(--card); border: 1.5px solid var(--soft); color: var(--soft); z-index: 2; }
.ends.bad { border-color: var(--bad); color: var(--bad); background: var(--bad-tint); }
.never { position: absolute; right: 0; bottom: 7px; height: var(--h); font-size: 11px; line-height: calc(var(--h) - 2px);
  padding: 0 8px; border-radius: 4px;
  color: var(--bad); border: 1px dashed var(--bad); background: var(--card); z-index: 2; }
.sides td { width: 50%; } .sides td.num, .sides th.num { width: 1%; } .sides td { overflow-wrap: anywhere; }
.sides span.soft { display: block; font-size: 13px; } .sides td.soft { font-style: italic; }
.sides .differs td:not(.num) { background: var(--bad-tint); padding-left: 8px; } .sides td:not(.num), .sides th:not(.num) { padding-left: 8px; }
.marked > td:first-child { font-weight: 700; box-shadow: inset 4px 0 0 var(--ink); padding-left: 10px; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 2px; background: var(--c); margin-right: 7px; }
details.rank { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 8px 0 0; padding: 0 16px; }
details.rank.culprit { border-left: 4px solid var(--bad); } details.rank[open] { padding-bottom: 14px; }
.rank summary { display: grid; grid-template-columns: 110px 190px minmax(0, 1fr) minmax(0, 1.2fr); gap: 12px; font-weight: 400;
  align-items: center; font-size: 14px; } .rank summary .state { justify-self: start; }
.rank summary > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.rank dl { font-size: 14px; } .rank h4 { margin: 16px 0 8px; font-size: 14px; } h4 .soft { font-weight: 400; }
.factlist { column-width: 320px; } .ring { font-size: 13px; } .ring td { padding: 3px 14px 3px 0; white-space: nowrap; }
.ring .open td, .ring .failed td { color: var(--bad); font-weight: 600; } .rank .card { max-height: 420px; overflow: auto; }
.ring th { position: sticky; top: 0; background: var(--card); }
@media (prefers-color-scheme: dark) { .o0 { --c: #77828f; } .zoom label { color: var(--ink); } }
@media (max-width: 760px) { .timeline { --label: 168px; } .who .host, .layer .last { display: none; } .who { padding: 0 4px 0 12px; }
  .verdict table, .verdict tbody, .verdict tr, .verdict td { display: block; } .verdict tr { margin-bottom: 8px; }
  .verdict { padding: 4px 14px; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; } .rank summary { grid-template-columns: 1fr; gap: 2px; } }
@media print { .zoom { display: none; } .c, .layer u { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)css";

}  // namespace lockstep

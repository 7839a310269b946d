// Charts by the embedded library. Colours are Okabe and Ito's; every series has a mark as well.
let CHARTS = [];
const PALETTE = ["#777d86", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6fd1"];
const SHAPES = ["circle", "triangle", "diamond", "rect", "pin", "roundRect", "arrow"];
let MODES = [];
function modeIndex(m) { if (!MODES.length) { MODES = [...new Set(ROWS.map(r => r.mode))].sort((a, b) => (a === "eager" ? -1 : b === "eager" ? 1 : a < b ? -1 : 1)); } const i = MODES.indexOf(m); return i < 0 ? 0 : i; }
function colour(m) { return PALETTE[modeIndex(m) % PALETTE.length]; }
function shape(m) { return SHAPES[modeIndex(m) % SHAPES.length]; }
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function tip(lines) { return h("div", { cls: "tip" }, lines.filter(Boolean).map(l => h("div", {}, l))); }
function chart(label, option, height, click) {
  const el = h("div", { cls: "chart", role: "img", "aria-label": label });
  if (height) el.style.height = height + "px";
  queueMicrotask(() => {
    if (!el.isConnected) return;
    const c = echarts.init(el, null, { renderer: "canvas" }), ink = css("--ink"), soft = css("--soft"), line = css("--line");
    const axis = a => Object.assign({ axisLabel: { color: soft }, nameTextStyle: { color: soft }, axisLine: { lineStyle: { color: line } }, splitLine: { lineStyle: { color: line } } }, a, a.axisLabel ? { axisLabel: Object.assign({ color: soft }, a.axisLabel) } : {});
    const o = Object.assign({ animation: false, textStyle: { color: ink, fontFamily: getComputedStyle(document.body).fontFamily }, grid: { left: 8, right: 24, top: 36, bottom: 8, containLabel: true } }, option);
    for (const k of ["xAxis", "yAxis"]) if (o[k]) o[k] = Array.isArray(o[k]) ? o[k].map(axis) : axis(o[k]);
    o.legend = option.legend === false ? undefined : Object.assign({ type: "scroll", top: 0, textStyle: { color: ink }, pageTextStyle: { color: soft } }, option.legend);
    o.tooltip = Object.assign({ confine: true, backgroundColor: css("--card"), borderColor: line, textStyle: { color: ink, fontSize: 13 } }, option.tooltip);
    c.setOption(o); if (click) c.on("click", click); CHARTS.push(c);
  });
  return el;
}
function clearCharts() { for (const c of CHARTS) c.dispose(); CHARTS = []; }
window.addEventListener("resize", () => CHARTS.forEach(c => c.resize()));
window.addEventListener("beforeprint", () => CHARTS.forEach(c => c.resize()));
// An interval as a thin line with caps; data are [x, low, high].
function interval(name, data, color) { return { type: "custom", name, data, silent: true, z: 5, tooltip: { show: false }, renderItem(p, api) { const a = api.coord([api.value(0), api.value(1)]), b = api.coord([api.value(0), api.value(2)]), s = { stroke: color, lineWidth: 1.3, fill: null }; return { type: "group", children: [[a[0], a[1], b[0], b[1]], [a[0] - 4, a[1], a[0] + 4, a[1]], [b[0] - 4, b[1], b[0] + 4, b[1]]].map(v => ({ type: "line", shape: { x1: v[0], y1: v[1], x2: v[2], y2: v[3] }, style: s })) }; } }; }
function bars(label, names, values, texts, unitText, colours) { return chart(label, { legend: false, grid: { left: 8, right: 90, top: 6, bottom: 6, containLabel: true }, xAxis: { type: "value", axisLabel: { formatter: unitText, hideOverlap: true } }, yAxis: { type: "category", inverse: true, data: names, axisLabel: { width: 150, overflow: "truncate" } }, tooltip: { formatter: p => tip([names[p.dataIndex], texts[p.dataIndex]]) }, series: [{ type: "bar", barMaxWidth: 18, data: values.map((v, i) => ({ value: v, itemStyle: { color: colours ? colours[i] : PALETTE[1] } })), label: { show: true, position: "right", color: css("--ink"), formatter: p => texts[p.dataIndex] } }] }, Math.max(90, names.length * 26 + 40)); }

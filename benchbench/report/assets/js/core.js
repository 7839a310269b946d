// State, data and small helpers. Text reaches the page by textContent only, never as markup.
let DATA = JSON.parse(document.getElementById("data").textContent);
let ROWS = [];
const S = { view: "overview", lang: document.documentElement.lang === "zh" ? "zh" : "en", theme: "", q: "", sort: "", f: {}, p: {} };
const DIMS = ["model", "workload", "mode", "device", "dtype", "shape", "status", "env"];
const LIMIT = 200;

function T(word) { const w = WORDS[word]; return w ? w[S.lang === "zh" ? 1 : 0] : String(word).replace(/_/g, " "); }
function h(tag, attrs, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v); else e.setAttribute(k === "cls" ? "class" : k, v === true ? "" : v);
  }
  for (const kid of kids.flat(3)) if (kid !== null && kid !== undefined && kid !== false) e.append(kid.nodeType ? kid : document.createTextNode(String(kid)));
  return e;
}
// ---- numbers, as the command line prints them
function sig(x, d = 3) {
  if (x === 0) return "0";
  let k = d - 1 - Math.floor(Math.log10(Math.abs(x)));
  const r = Math.round(x * 10 ** k) / 10 ** k;
  if (Math.floor(Math.log10(Math.abs(r))) > Math.floor(Math.log10(Math.abs(x)))) k--;
  k = Math.max(0, Math.min(12, k));
  return r.toLocaleString("en-US", { minimumFractionDigits: k, maximumFractionDigits: k });
}
function micros(us, d = 3) {
  if (us === null) return T("unknown");
  for (const [s, u] of [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]]) if (Number((us / s).toPrecision(d)) >= 1 || u === "ns") return us === 0 ? "0 s" : sig(us / s, d) + " " + u;
}
function kib(k) { return k === null ? T("unknown") : k >= 1048576 ? sig(k / 1048576) + " GiB" : k >= 1024 ? sig(k / 1024) + " MiB" : k + " KiB"; }
function times(x) { return x >= 1 ? sig(x) + "x " + T("faster") : sig(1 / x) + "x " + T("slower"); }
function day(t) { return t ? new Date(t * 1000).toISOString().slice(0, 16).replace("T", " ") : T("unknown"); }

// ---- rows
function load() {
  const c = DATA.rows, n = c.run.length, str = DATA.strings, out = new Array(n);
  const num = (name, i) => { const v = c[name][i]; return v === -1 ? null : v; };
  for (let i = 0; i < n; i++) {
    const k = DATA.cases[c.case[i]], fl = c.fl[i];
    out[i] = { i, run: c.run[i], ci: c.case[i], key: k.k, group: k.g, model: k.m + (k.z ? "[" + k.z + "]" : ""), mode: k.ml, device: k.dev, workload: k.w, dtype: k.d, batch: k.b, seq: k.s === undefined ? null : k.s,
      shape: "b" + k.b + (k.s === undefined ? "" : "s" + k.s), status: DATA.statuses[c.st[i]], base: !!(fl & 1), sim: !!(fl & 2), diag: !!(fl & 4), counts: !!(fl & 8),
      med: num("med", i), lo: num("lo", i), hi: num("hi", i), p90: num("p90", i), min: num("min", i), max: num("max", i), noise: num("noi", i), n: num("n", i), np: num("np", i), out: num("out", i), thr: num("thr", i), unit: c.unit[i] > 0 ? str[c.unit[i]] : "", cold: num("cold", i), warm: num("warm", i),
      be: c.be[i], mem: num("mem", i), gr: num("gr", i), br: num("br", i), rc: num("rc", i), acc: str[c.acc[i]], cav: str[c.cav[i]], why: str[c.why[i]], eff: str[c.eff[i]], sp: num("sp", i), slo: num("slo", i), shi: num("shi", i), v: c.v[i] < 0 ? "" : DATA.verdicts[c.v[i]], env: str[c.env[i]], fac: c.fac[i], det: c.det[i] };
  }
  ROWS = out;
}
const FACTS = [];
function facts(i) {
  if (i < 0) return {};
  for (let k = FACTS.length; k <= i; k++) { const [add, gone] = DATA.facts[k], o = Object.assign({}, FACTS[k - 1], add); for (const g of gone || []) delete o[g]; FACTS.push(o); }
  return FACTS[i];
}
function factDiff(a, b) { const x = facts(a), y = facts(b), out = []; for (const k of new Set([...Object.keys(x), ...Object.keys(y)])) if (x[k] !== y[k]) out.push([k, x[k] || T("none"), y[k] || T("none")]); return out; }
function runOf(r) { return DATA.runs[r.run]; }

// ---- filters
let cache = { key: null, rows: [] };
function filtered() {
  const key = JSON.stringify([S.q, S.f]);
  if (cache.key === key && cache.data === DATA) return cache.rows;
  const tests = DIMS.filter(d => S.f[d] && S.f[d].length).map(d => [d, new Set(S.f[d])]), q = S.q.trim().toLowerCase();
  cache = { key, data: DATA, rows: ROWS.filter(r => tests.every(([d, s]) => s.has(r[d])) && (!q || (r.key + " " + r.status + " " + r.why + " " + r.eff + " " + runOf(r).id + " " + (runOf(r).name || "")).toLowerCase().includes(q))) };
  return cache.rows;
}
// For each group the newest run that holds a comparison (two modes or more), else its newest run.
function latest(rows) {
  const by = new Map();
  for (const r of rows) { if (!by.has(r.group)) by.set(r.group, new Map()); const m = by.get(r.group); if (!m.has(r.run)) m.set(r.run, []); m.get(r.run).push(r); }
  const out = [];
  for (const [group, runs] of by) { const ids = [...runs.keys()].sort((a, b) => b - a); const id = S.p.run !== undefined ? Number(S.p.run) : ids.find(i => whole(group, i) > 1) ?? ids[0]; if (runs.has(id)) out.push({ group, run: id, newer: ids[0] !== id ? ids[0] : null, rows: runs.get(id) }); }
  return out.sort((a, b) => a.group < b.group ? -1 : 1);
}
let sizes = null;
function whole(group, run) { if (!sizes || sizes.data !== DATA) { sizes = new Map(); sizes.data = DATA; for (const r of ROWS) { const k = r.run + "\n" + r.group; sizes.set(k, (sizes.get(k) || 0) + 1); } } return sizes.get(run + "\n" + group) || 0; }
function bestOf(rows) { const ok = rows.filter(r => r.counts && r.med !== null); return ok.length ? ok.reduce((a, b) => b.med < a.med ? b : a) : null; }

// ---- deep links
function link(view, p, f) { const u = new URLSearchParams(); for (const [k, v] of Object.entries(f || S.f)) if (v.length) for (const x of v) u.append(k, x); if (S.q) u.set("q", S.q); if (S.lang === "zh") u.set("lang", "zh"); if (S.theme) u.set("theme", S.theme); if (S.sort && view === "cases") u.set("sort", S.sort); for (const [k, v] of Object.entries(p || {})) if (v !== null && v !== undefined) u.set(k, v); const s = u.toString(); return "#/" + view + (s ? "?" + s : ""); }
function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?"), u = new URLSearchParams(query || "");
  if (path && path !== "main") S.view = ["overview", "compare", "history", "cases", "coverage"].includes(path) ? path : "overview";
  S.f = {}; for (const d of DIMS) { const v = u.getAll(d); if (v.length) S.f[d] = v; }
  S.q = u.get("q") || ""; S.sort = u.get("sort") || ""; if (u.has("lang")) S.lang = u.get("lang") === "zh" ? "zh" : "en"; if (u.has("theme")) S.theme = u.get("theme") === "dark" ? "dark" : "light";
  S.p = {}; for (const k of ["row", "run", "group", "case", "k"]) if (u.has(k)) S.p[k] = u.get(k);
}
function go(view, p, f) { const to = link(view, p, f); if (location.hash === to) draw(); else location.hash = to; }

// ---- words with marks
function tag(word, cls) { return h("span", { cls: "tag " + (cls || "") }, (MARKS[word] || "") + " " + T(word)); }
const STATUS_CLS = { ok: "", failed: "bad", oom: "bad", timeout: "bad", crashed: "bad", interrupted: "warn", not_run: "none", skipped: "", missing: "warn" };
function statusTag(r) { return r.status === "ok" && r.sim ? tag("simulated", "warn") : r.status === "ok" && r.diag ? tag("diagnosis", "warn") : tag(r.status, STATUS_CLS[r.status]); }
function speedText(r) { if (r.base) return T("baseline"); if (!r.v) return T("no baseline"); if (r.sp === null) return T("not comparable"); if (r.v === "same") return T("same"); return times(r.sp) + (r.v === "unclear" || r.v === "noisy" ? "?" : ""); }
function speedTag(r) { if (r.status !== "ok" || r.sim || r.diag) return statusTag(r); const c = r.v === "faster" ? "good" : r.v === "slower" ? "bad" : r.v === "unclear" || r.v === "noisy" ? "warn" : ""; return h("span", { cls: "tag " + c, title: r.why || null }, (r.base ? "◆" : MARKS[r.v] || "") + " " + speedText(r)); }
function latencyText(r) { if (r.status !== "ok") return T(r.status); if (r.sim) return T("simulated"); if (r.diag) return T("diagnosis"); if (r.med === null) return T("missing"); const half = r.lo === null || r.hi === null ? "" : " ±" + sig(Math.max(r.hi - r.med, r.med - r.lo) / r.med * 100, 2) + "%"; return micros(r.med) + half; }
function evenText(r) { if (r.base) return T("baseline"); return r.be === -2 ? T("never") : r.be === -3 ? T("unclear") : r.be < 0 ? T("unknown") : r.be.toLocaleString("en-US") + " " + T("calls"); }
function caseLink(r, text) { return h("a", { href: link("cases", { row: r.key, run: r.run, k: r.i }) }, text || r.mode); }

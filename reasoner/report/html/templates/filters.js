// The state of the filters, what fits them, and the address that says so.

const FACETS = ["outcome", "strategy", "reason", "arm", "split", "dataset"];
const state = { query: "", order: "", problem: -1, chosen: {} };
let view = new Int32Array(0); // ids of the rows that are shown, in order
let hits = null; // of the last search

function codes() {
  return FACETS.map((facet) => [facet, data.names[facet].indexOf(state.chosen[facet])])
    .filter(([facet]) => state.chosen[facet] !== undefined);
}

/** Recompute `view` and how many rows each choice of a facet would leave. */
function applyFilters() {
  const wanted = codes(), counts = {};
  for (const facet of FACETS) counts[facet] = new Int32Array(data.names[facet].length);
  const out = new Int32Array(data.rows);
  const problems = data.columns.problem;
  let n = 0;
  for (let id = 0; id < data.rows; id++) {
    if (hits && !hits[id]) continue;
    if (state.problem >= 0 && problems[id] !== state.problem) continue;
    let misses = 0, missed = "";
    for (const [facet, code] of wanted) {
      if (data.columns[facet][id] !== code) { misses++; missed = facet; }
    }
    if (misses > 1) continue;
    if (misses === 0) {
      out[n++] = id;
      for (const facet of FACETS) counts[facet][data.columns[facet][id]]++;
    } else counts[missed][data.columns[missed][id]]++;
  }
  view = out.slice(0, n);
  sortView();
  showCounts(counts);
}

function sortView() {
  const { tokens, problem } = data.columns;
  if (state.order === "tokens") view.sort((a, b) => tokens[a] - tokens[b] || a - b);
  else if (state.order === "tokens-") view.sort((a, b) => tokens[b] - tokens[a] || a - b);
  else if (state.order === "problem") view.sort((a, b) => problem[a] - problem[b] || a - b);
}

const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");

function showCounts(counts) {
  for (const facet of FACETS) {
    const select = element("f-" + facet);
    if (select.options.length === 1) {
      const order = data.names[facet].map((name, code) => code);
      if (facet === "reason") order.sort((a, b) => counts[facet][b] - counts[facet][a]);
      for (const code of order) select.append(make("option", { value: data.names[facet][code] }));
    }
    select.parentElement.hidden = data.names[facet].length < 2; // nothing to choose
    for (const option of [...select.options].slice(1)) {
      const n = counts[facet][data.names[facet].indexOf(option.value)];
      option.textContent = `${title(option.value) || "—"} (${grouped(n)})`;
    }
    select.value = state.chosen[facet] ?? "";
    if (select.value === "" && state.chosen[facet] !== undefined && state.chosen[facet] !== "") delete state.chosen[facet];
  }
  const all = view.length === data.rows;
  element("shown").textContent = all ? grouped(data.rows) : `${grouped(view.length)} of ${grouped(data.rows)}`;
  const only = element("only");
  only.hidden = state.problem < 0;
  if (state.problem >= 0) {
    const button = make("button", { type: "button", onclick: () => { state.problem = -1; refresh(); } }, "All problems");
    only.replaceChildren(`Only the problem “${data.problems.question[state.problem].slice(0, 90)}” `, button);
  }
}

/** The filters as the part of the address behind #, and back. */
function address(trace) {
  const words = new URLSearchParams();
  if (state.query) words.set("q", state.query);
  for (const facet of FACETS) if (state.chosen[facet] !== undefined) words.set(facet, state.chosen[facet]);
  if (state.order) words.set("order", state.order);
  if (state.problem >= 0) words.set("problem", data.problems.id[state.problem]);
  if (trace >= 0) words.set("trace", trace);
  return String(words);
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  state.query = words.get("q") || "";
  state.order = words.get("order") || "";
  state.problem = words.has("problem") ? data.problems.id.indexOf(words.get("problem")) : -1;
  state.chosen = {};
  for (const facet of FACETS) {
    if (words.has(facet) && data.names[facet].includes(words.get(facet))) state.chosen[facet] = words.get(facet);
  }
  element("search").value = state.query;
  element("order").value = state.order;
  return words.has("trace") ? Number(words.get("trace")) : -1;
}

function writeAddress(trace = -1) {
  const words = address(trace);
  if (words || location.hash.includes("=")) history.replaceState(null, "", words ? "#" + words : "#trajectories");
}

// Starts the page and connects keys, filters and the colour switch.

const THEME = "reasoner-theme";

function remembered() {
  try { return localStorage.getItem(THEME) || ""; } catch { return ""; } // a file may have no storage
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem(THEME, name); } catch { /* the choice lasts as long as the page */ }
}

let running = 0;

/** Search, filter and draw; a newer call overtakes an older one that still reads texts. */
async function refresh() {
  const mine = ++running;
  if (state.query) {
    const bar = element("reading");
    bar.hidden = texts.length === data.chunks;
    await readTexts((done) => { bar.value = done; });
    bar.hidden = true;
    if (mine !== running) return;
    hits = searchRows(state.query);
  } else hits = null;
  applyFilters();
  refreshList();
  if (shown < 0) writeAddress();
}

function clearFilters() {
  Object.assign(state, { query: "", order: "", problem: -1, chosen: {} });
  element("search").value = "";
  element("order").value = "";
  refresh();
}

function pageKey(event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (element("trace").open) {
    if (event.key === "j" || event.key === "k") { stepTrace(event.key === "j" ? 1 : -1); event.preventDefault(); }
    return;
  }
  if (typing || element("help").open) return;
  const acts = {
    "/": () => { element("search").focus(); element("search").select(); },
    j: () => { element("list").focus({ preventScroll: false }); select(grid.at + 1); },
    k: () => { element("list").focus({ preventScroll: false }); select(grid.at - 1); },
    c: clearFilters, "?": () => element("help").showModal(),
  };
  if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
}

function connect() {
  let waiting = 0;
  element("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.query = event.target.value.trim(); refresh(); }, 150);
  });
  element("search").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") { element("list").focus(); event.preventDefault(); }
  });
  element("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const facet of FACETS) {
    element("f-" + facet).addEventListener("change", (event) => {
      if (event.target.selectedIndex > 0) state.chosen[facet] = event.target.value;
      else delete state.chosen[facet];
      refresh();
    });
  }
  element("order").addEventListener("change", (event) => { state.order = event.target.value; refresh(); });
  for (const id of ["clear", "none-clear"]) element(id).addEventListener("click", clearFilters);
  element("keys").addEventListener("click", () => element("help").showModal());
  element("help-close").addEventListener("click", () => element("help").close());
  const list = element("list");
  list.addEventListener("scroll", () => requestAnimationFrame(() => draw(false)), { passive: true });
  list.addEventListener("keydown", listKey);
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (!row) return;
    select(Number(row.dataset.position));
    openTrace(view[grid.at]);
  });
  element("trace-close").addEventListener("click", closeTrace);
  element("trace-before").addEventListener("click", () => stepTrace(-1));
  element("trace-after").addEventListener("click", () => stepTrace(1));
  element("trace").addEventListener("close", traceClosed);
  element("trace").addEventListener("click", (event) => { if (event.target === element("trace")) closeTrace(); });
  for (const button of document.querySelectorAll(".pattern")) button.addEventListener("click", () => showFlips(button));
  document.addEventListener("keydown", pageKey);
  addEventListener("resize", () => draw(true));
}

element("theme").value = remembered();
setTheme(remembered());
element("theme").addEventListener("change", (event) => setTheme(event.target.value));

(async () => {
  await readIndex();
  connect();
  const trace = readAddress();
  await refresh();
  document.documentElement.dataset.ready = "true";
  if (trace >= 0) openTrace(trace);
})();

// The list: only the rows in sight exist, however many there are.

const HEIGHT = 38, SPARE = 8;
const grid = { at: 0, first: -1, last: -1 };

function excerpt(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 160 ? line.slice(0, 160) + "…" : line;
}

function rowOf(position) {
  const id = view[position];
  const cell = (text, name) => make("span", { role: "gridcell", class: name, title: text }, text);
  const row = make("div", {
    role: "row", class: "row", id: "row-" + position, "aria-rowindex": position + 1,
    "aria-selected": position === grid.at, "data-position": position,
  },
  make("span", { role: "gridcell" }, markOf(word("outcome", id))),
  cell(excerpt(questionOf(id))), cell(word("arm", id), "soft"), cell(title(word("strategy", id)), "soft"),
  cell(word("reason", id), "soft"), cell(word("extracted", id) || "—", "num"), cell(excerpt(goldOf(id)), "num soft"),
  cell(String(data.columns.tokens[id]), "num soft"));
  row.style.transform = `translateY(${position * HEIGHT}px)`;
  return row;
}

function draw(anew) {
  const box = element("list"), rows = element("rows");
  const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - SPARE);
  const last = Math.min(view.length, Math.ceil((box.scrollTop + box.clientHeight) / HEIGHT) + SPARE);
  if (!anew && first === grid.first && last === grid.last) return;
  grid.first = first;
  grid.last = last;
  const made = [];
  for (let position = first; position < last; position++) made.push(rowOf(position));
  rows.replaceChildren(...made);
}

/** After a change of filters. */
function refreshList() {
  const box = element("list");
  element("rows").style.height = view.length * HEIGHT + "px";
  box.setAttribute("aria-rowcount", view.length);
  box.hidden = view.length === 0;
  element("none").hidden = view.length > 0;
  box.scrollTop = 0;
  grid.at = 0;
  select(0, false);
  draw(true);
}

/** Make a position the active one and bring it into sight. */
function select(position, scroll = true) {
  const box = element("list");
  if (!view.length) { box.removeAttribute("aria-activedescendant"); return; }
  grid.at = Math.max(0, Math.min(view.length - 1, position));
  const top = grid.at * HEIGHT;
  if (scroll) {
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + HEIGHT - box.clientHeight;
  }
  draw(true);
  box.setAttribute("aria-activedescendant", "row-" + grid.at);
}

function listKey(event) {
  const page = Math.max(1, Math.floor(element("list").clientHeight / HEIGHT) - 1);
  const moves = {
    ArrowDown: grid.at + 1, ArrowUp: grid.at - 1, PageDown: grid.at + page, PageUp: grid.at - page,
    Home: 0, End: view.length - 1,
  };
  if (event.key in moves) select(moves[event.key]);
  else if (event.key === "Enter" && view.length) openTrace(view[grid.at]);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

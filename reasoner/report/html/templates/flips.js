// Problems whose outcome changes from model to model, by pattern.

const STEP = 50;

function patternOf(row) {
  return row.slice(1).map((id) => (id < 0 ? "-" : { correct: "1", incorrect: "0" }[word("outcome", id)] || "-")).join("");
}

function showFlips(button) {
  const box = button.closest(".flip"), flip = data.flips[Number(box.dataset.flip)], list = box.querySelector(".flip-list");
  const open = button.getAttribute("aria-expanded") !== "true";
  for (const other of box.querySelectorAll(".pattern")) other.setAttribute("aria-expanded", "false");
  list.replaceChildren();
  if (!open) return;
  button.setAttribute("aria-expanded", "true");
  const rows = flip.rows.filter((row) => patternOf(row) === button.dataset.pattern);
  const items = make("ol", {});
  const more = make("button", { type: "button", onclick: () => add() }, "Show more");
  let n = 0;
  function add() {
    for (const row of rows.slice(n, n + STEP)) items.append(flipItem(flip, row));
    n += STEP;
    more.hidden = n >= rows.length;
  }
  add();
  list.append(items, more);
}

function flipItem(flip, row) {
  const marks = row.slice(1).map((id, nth) => (id < 0 ? null : make("button", {
    type: "button", class: "open-trace", title: flip.stages[nth], onclick: () => openTrace(id),
  }, markOf(word("outcome", id)), make("span", { class: "sr" }, " " + flip.stages[nth]))));
  return make("li", {}, make("span", {}, excerpt(data.problems.question[row[0]])), make("span", {}, marks));
}

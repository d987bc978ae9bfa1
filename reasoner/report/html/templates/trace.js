// One trajectory in full: question, prompt, what was answered, the verdict, and the same problem's other trajectories.

let shown = -1; // id in the trace view
let opener = null; // what had the focus

async function openTrace(id) {
  if (!(id >= 0 && id < data.rows)) return;
  const dialog = element("trace");
  if (!dialog.open) { opener = document.activeElement; dialog.showModal(); }
  shown = id;
  const one = await body(id);
  if (shown !== id) return; // another one was asked for meanwhile
  element("trace-title").textContent = `${word("arm", id)} · ${word("split", id)}`;
  element("trace-body").replaceChildren(...traceParts(id, one));
  dialog.scrollTop = 0;
  element("trace-title").focus();
  const position = view.indexOf(id);
  if (position >= 0) select(position);
  element("trace-before").disabled = position <= 0;
  element("trace-after").disabled = position < 0 || position + 1 >= view.length;
  writeAddress(id);
}

function closeTrace() {
  element("trace").close();
}

function traceClosed() {
  shown = -1;
  writeAddress();
  (opener && opener.isConnected ? opener : element("list")).focus();
}

function stepTrace(by) {
  const position = view.indexOf(shown);
  if (position >= 0 && position + by >= 0 && position + by < view.length) openTrace(view[position + by]);
}

const pair = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
const heading = (text, about) => make("h3", {}, text, about ? make("span", { class: "about" }, about) : null);

function block(text, name = "") {
  return make("pre", { class: ("text " + name).trim() }, marked(text || "", terms(state.query)));
}

function traceParts(id, one) {
  const outcome = word("outcome", id);
  const facts = [
    pair("verdict", make("span", {}, markOf(outcome), " " + outcome)), pair("reason", word("reason", id)),
    pair("answer read", word("extracted", id) || "—"), pair("gold", goldOf(id) || "—"),
    pair(TITLES[word("strategy", id)] || word("strategy", id) === "none" ? "strategy" : "kind", title(word("strategy", id))),
    pair("tokens", one.prompt_tokens ? `${data.columns.tokens[id]} after ${one.prompt_tokens}` : String(data.columns.tokens[id])),
    pair("ended", word("finish", id) === "length" ? "cut at the limit" : word("finish", id)),
  ];
  if (one.step !== undefined) facts.push(pair("step", String(one.step)));
  else if (data.columns.index[id]) facts.push(pair("sample", String(data.columns.index[id])));
  if (one.tried) facts.push(pair("told as tried", one.tried.join(", ")));
  const parts = [make("dl", { class: "verdict" }, facts), heading("Problem", word("dataset", id)), block(questionOf(id), "question")];
  parts.push(...promptParts(id, one));
  parts.push(...({ answer: answerParts, plan: planParts, turns: turnParts })[one.kind](id, one));
  parts.push(...sameProblem(id));
  return parts;
}

function promptParts(id, one) {
  if (one.prompt === null || one.prompt === undefined) return [];
  const kept = typeof one.prompt === "number" ? data.prompts[one.prompt] : { parts: [one.prompt], exact: true };
  const text = make("pre", { class: "text prompt", tabindex: "0" });
  kept.parts.forEach((part, nth) => {
    if (nth) text.append(make("span", { class: "asked" }, questionOf(id).trim()));
    text.append(part);
  });
  const about = kept.exact ? "as the model saw it, checked by its hash" : kept.note;
  return [make("details", {}, make("summary", {}, "Prompt, " + about), text)];
}

function answerParts(id, one) {
  return [heading("Response"), block(one.response)];
}

const ROLES = { subproblem: "worker, sub-problem", combine: "worker, combination", direct: "worker, whole problem" };

function planParts(id, one) {
  const parts = [];
  if (one.response) parts.push(heading("Planner wrote", `${one.planner_tokens} tokens`), block(one.response));
  if (!one.plan) {
    parts.push(heading("No valid plan"), make("p", {}, `The parser says: ${one.plan_reason}. Nobody was asked to carry it out.`));
  } else parts.push(heading("Plan", `${one.planner_tokens} planner tokens, ${Math.round(one.worker_tokens)} worker tokens`), planTree(one));
  if (one.answer) parts.push(heading("Worker's last answer"), block(one.answer));
  if (one.components.length) {
    parts.push(heading("Reward"), make("dl", { class: "verdict" }, one.components.map(([name, value]) => pair(name, value))));
  }
  return parts;
}

/** The plan as a tree: the planner's words, each sub-problem with the worker's answer, the combination. */
function planTree(one) {
  const { plan } = one, calls = one.calls || [];
  const answer = (call) => [make("p", { class: "about" }, `${ROLES[call.role] || call.role}, ${call.tokens} tokens${call.truncated ? ", cut at the limit" : ""}`), block(call.text)];
  const items = [];
  if (plan.plan) items.push(make("li", {}, make("p", {}, marked(plan.plan, terms(state.query)))));
  plan.subproblems.forEach((part, nth) => {
    const call = calls.filter((c) => c.role === "subproblem")[nth];
    items.push(make("li", {}, make("p", {}, make("strong", {}, `${nth + 1}. `), marked(part, terms(state.query))), call ? answer(call) : null));
  });
  for (const call of calls.filter((c) => c.role !== "subproblem")) items.push(make("li", {}, answer(call)));
  if (!items.length) items.push(make("li", {}, make("p", {}, "Solve the whole problem at once.")));
  return make("ul", { class: "tree" }, items);
}

const TURNS = { attempt: "Attempt", feedback: "Feedback", refinement: "Refined answer" };

function turnParts(id, one) {
  const parts = [];
  let attempt = null;
  for (const turn of one.turns) {
    const about = [turn.reason ? `${turn.outcome}: ${turn.reason}` : null, turn.extracted ? `answer ${turn.extracted}` : null,
      `${turn.tokens} tokens`, turn.finish === "length" ? "cut at the limit" : null].filter(Boolean).join(" · ");
    const head = heading(TURNS[turn.turn] || turn.turn, about);
    if (turn.outcome) head.prepend(markOf(turn.outcome));
    if (turn.turn === "refinement" && attempt !== null) {
      if (!one.turns.some((t) => t.turn === "feedback")) parts.push(...adviceParts(one));
      parts.push(head, make("pre", { class: "text diff", "aria-label": "What changed from the attempt" }, diffNodes(attempt, turn.text)),
        make("details", {}, make("summary", {}, "Without the marks"), block(turn.text)));
    } else parts.push(head, block(turn.text));
    if (turn.turn === "feedback" && one.leak) {
      parts.push(make("p", { class: "alarm" }, one.new_leak ? "The feedback gives the answer away." : "The feedback repeats the answer."));
    }
    if (turn.turn === "feedback" && one.advice && one.advice.trim() !== turn.text.trim()) parts.push(...adviceParts(one));
    if (turn.note) parts.push(heading("First failed test"), block(turn.note));
    if (turn.signs && turn.signs.length) parts.push(make("p", { class: "alarm" }, "Signs of an attack on the judge: " + turn.signs.join(", ")));
    if (turn.turn === "attempt") attempt = turn.text;
  }
  return parts;
}

const adviceParts = (one) => (one.advice ? [heading("Advice that the refinement was given"), block(one.advice)] : []);

const MOST_SAME = 60;

/** Who answered, with the strategy where there is one. */
const nameOf = (id) => (TITLES[word("strategy", id)] ? `${word("arm", id)} · ${title(word("strategy", id))}` : word("arm", id));

function sameProblem(id) {
  const problem = data.columns.problem[id], ids = [];
  for (let other = 0; other < data.rows; other++) if (data.columns.problem[other] === problem) ids.push(other);
  if (ids.length < 2) return [];
  const items = ids.slice(0, MOST_SAME).map((other) => make("li", {}, make("button", {
    type: "button", "aria-current": other === id ? "true" : null, onclick: () => openTrace(other),
  }, markOf(word("outcome", other)), make("span", {}, nameOf(other)))));
  const all = make("button", { type: "button", onclick: () => { state.problem = problem; closeTrace(); refresh(); } }, "List them");
  return [heading("The same problem", `${ids.length} trajectories`), make("ul", { class: "same" }, items), make("p", {}, all)];
}

// SPDX-License-Identifier: Apache-2.0
// The page of the explorer. It keeps its state in the address, queries the server, and draws the answers.
// Names and labels come from data and may contain anything, so they are only ever set as text.

// ---------------------------------------------------------------- elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(child => child != null && child !== false));
  return element;
}

const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const $ = id => document.getElementById(id);
const show = (...content) => $("page").replaceChildren(...content);
const shorten = (text, most) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const say = text => { $("status").textContent = text; };

function number(value, span) {
  if (value == null || !isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = span ? Math.abs(span) / 100 : Math.abs(value) / 100;
  const digits = clamp(Math.ceil(-Math.log10(size || 1)), 0, 12);
  if (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4) return value.toExponential(1).replace("e+", "e");
  return value.toLocaleString("en", { maximumFractionDigits: digits, signDisplay: "negative" });
}

const percent = p => (p >= 0.9995 ? "100 %" : p >= 0.0995 ? `${Math.round(100 * p)} %`
  : p >= 0.00095 ? `${(100 * p).toPrecision(2)} %` : p > 0 ? "< 0.1 %" : "0 %");

function ticks(low, high, most) {
  const raw = (high - low) / most;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * base).find(s => s >= raw * 0.999);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) found.push(Math.abs(t) < step / 1e6 ? 0 : t);
  return found;
}

const path = points => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

// ---------------------------------------------------------------- the server

async function fetchJson(name, body) {
  let response;
  try {
    response = await fetch(`api/${name}`, body === undefined ? {} : {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
  } catch {
    lost();
    throw new Error("lost");
  }
  $("lost").hidden = true;
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || `the server answered ${response.status}`);
  return answer;
}

function lost() {
  $("lost").replaceChildren(
    html("span", {}, "The explorer has stopped. Start it again with "), html("code", {}, "picirc explore"),
    html("span", {}, "; what you set is kept in this page’s address. "),
    html("button", { type: "button", onclick: () => current && current() }, "Try again"));
  $("lost").hidden = false;
}

function problem(error) {
  if (error.message === "lost") return;
  $("problem").replaceChildren(html("span", {}, error.message),
    html("button", { type: "button", class: "quiet", "aria-label": "Close this message", onclick: () => { $("problem").hidden = true; } }, "×"));
  $("problem").hidden = false;
}

// Only one question of a kind is asked at a time. Of those asked meanwhile only the latest is kept.
let underWay = 0;
const count = change => { underWay += change; if (underWay) document.body.dataset.busy = "yes"; else delete document.body.dataset.busy; };

function asker(name, then) {
  let busy = false, waiting = null, failed = false;
  const ask = async body => {
    if (busy) { waiting = body; return; }
    busy = true;
    count(1);
    try {
      const answer = await fetchJson(name, body);
      if (failed) $("problem").hidden = true;
      failed = false;
      then(answer, body);
    } catch (error) {
      failed = true;
      problem(error);
    }
    busy = false;
    if (waiting !== null) { const next = waiting; waiting = null; ask(next); }
    count(-1);
  };
  return ask;
}

let current = null; // asks the current question again

// ---------------------------------------------------------------- the address

const readHash = () => {
  if (location.hash.length < 2) return {};
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return found && typeof found === "object" ? found : {};
  } catch {
    if (location.hash !== "#main") problem(new Error("The address contains no valid state and is ignored."));
    return {};
  }
};
const writeHash = value => {
  const text = encodeURIComponent(JSON.stringify(value));
  history.replaceState(null, "", Object.keys(value).length ? `#${text}` : location.pathname);
};

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    say("The address is copied.");
  } catch {
    prompt("The address of this view:", location.href);
  }
}

const copyButton = () => html("button", { type: "button", onclick: copyLink }, "Copy link");

// ---------------------------------------------------------------- tables

function tablePage(model) {
  const { columns } = model;
  const place = new Map(columns.map((column, i) => [column.name, i]));
  const sets = [new Map(), null]; // evidence A, and B when two are compared: place → evidence
  let active = 0, prior = null, answers = [], row = null, surprises = new Map();
  const cards = columns.map((column, i) => (column.kind === "category" ? categoryCard : numberCard)(column, i));

  const asObject = known => {
    const found = Object.create(null); // a column may be called __proto__
    for (const [i, what] of known) found[columns[i].name] = what;
    return found;
  };
  const fromObject = object => {
    const known = new Map();
    for (const [name, what] of Object.entries(object || {})) if (place.has(name) && what && typeof what === "object") known.set(place.get(name), what);
    return known;
  };

  const ask = asker("answer", answer => {
    answers = answer.answers;
    if (!sets[0].size && answers.length) prior = answers[0];
    draw();
  });
  const begin = async () => {
    count(1);
    try { prior = (await fetchJson("answer", { evidence: [{}] })).answers[0]; changed(); } catch (error) { problem(error); }
    count(-1);
  };

  function changed() {
    const state = {};
    if (sets[0].size) state.a = asObject(sets[0]);
    if (sets[1]) { state.b = asObject(sets[1]); state.on = active; }
    writeHash(state);
    drawEvidence();
    ask({ evidence: sets.filter(set => set !== null).map(asObject) });
  }

  function set(i, what, keepRow) {
    if (what === null) sets[active].delete(i); else sets[active].set(i, what);
    if (!keepRow) surprises.delete(i);
    changed();
  }

  function restore() {
    const state = readHash();
    sets[0] = fromObject(state.a);
    sets[1] = state.b ? fromObject(state.b) : null;
    active = sets[1] && state.on === 1 ? 1 : 0;
  }

  // --- the parts around the cards

  const evidence = html("section", { class: "evidence", "aria-label": "What is known" });
  const drawnRows = html("section", { class: "drawn", "aria-label": "Rows drawn from the model", hidden: true });

  function words(i, what) {
    const column = columns[i], span = column.high - column.low;
    const label = value => (typeof value === "number" && column.kind !== "category" ? number(value, span) : String(value));
    if ("is" in what) return `${shorten(column.name, 24)} = ${shorten(label(what.is), 24)}`;
    if ("in" in what) return `${shorten(column.name, 24)} ∈ ${shorten(what.in.map(label).join(", "), 28)}`;
    if (what.from == null) return `${shorten(column.name, 24)} ≤ ${label(what.to)}`;
    if (what.to == null) return `${shorten(column.name, 24)} ≥ ${label(what.from)}`;
    return `${shorten(column.name, 24)} ${label(what.from)} – ${label(what.to)}`;
  }

  function drawEvidence() {
    const line = which => {
      const known = sets[which], answer = answers[which];
      const chips = [...known].map(([i, what]) => html("li", {}, html("button", {
        type: "button", class: "chip", "aria-label": `Remove ${columns[i].name}`,
        onclick: () => { active = which; set(i, null); },
      }, html("span", {}, words(i, what)), html("span", { class: "times", "aria-hidden": "true" }, "×"))));
      const facts = [];
      if (answer && known.size) {
        facts.push(answer.density ? `log density ${number(answer.log_evidence, 10)}` : `probability ${percent(Math.exp(answer.log_evidence))}`);
        if (answer.matching != null) facts.push(`${answer.matching.toLocaleString("en")} of ${model.rows.toLocaleString("en")} rows agree`);
      }
      const tab = sets[1] && html("button", {
        type: "button", class: `tab set${which}`, "aria-pressed": String(active === which),
        "aria-label": `Change evidence ${"AB"[which]}`, onclick: () => { active = which; changed(); },
      }, "AB"[which]);
      return html("div", { class: "known" }, tab,
        chips.length ? html("ul", { class: "chips" }, chips) : html("p", { class: "hint" },
          which === active ? "No evidence yet. Move a slider, drag over a histogram, or choose a category." : "No evidence."),
        html("p", { class: "facts" }, facts.join(" · ")));
    };
    evidence.replaceChildren(line(0), ...(sets[1] ? [line(1)] : []));
    const comparing = sets[1] !== null;
    compare.textContent = comparing ? "Stop comparing" : "Compare";
    compare.setAttribute("aria-pressed", String(comparing));
    $("page").classList.toggle("comparing", comparing);
    drawTree();
  }

  function draw() {
    cards.forEach((card, i) => card.draw(answers, prior && prior.cards[i], sets[active].get(i) || null, surprises.get(i)));
    drawEvidence();
    const answer = answers[active];
    if (answer && sets[active].size) say(`Updated. ${evidence.querySelectorAll(".facts")[sets[1] ? active : 0].textContent}`);
  }

  const compare = html("button", {
    type: "button", onclick: () => {
      sets[1] = sets[1] ? null : new Map(sets[0]);
      active = sets[1] ? 1 : 0;
      answers = answers.slice(0, 1);
      changed();
    },
  }, "Compare");
  const reset = html("button", {
    type: "button", onclick: () => { sets[0] = new Map(); sets[1] = null; active = 0; row = null; surprises = new Map(); changed(); },
  }, "Reset");
  const drawButton = html("button", { type: "button", onclick: () => sampleRows(0) }, "Draw ten rows");

  // --- rows drawn

  async function sampleRows(seed) {
    try {
      const found = await fetchJson("sample", { evidence: asObject(sets[active]), n: 10, seed });
      const cell = (value, i) => {
        const measured = columns[i].kind !== "category";
        return html("td", { class: measured ? "n" : "" }, value === null ? "" : measured ? number(value, columns[i].high - columns[i].low) : shorten(String(value), 40));
      };
      drawnRows.replaceChildren(
        html("div", { class: "head" }, html("h2", {}, sets[active].size ? "Ten rows drawn given the evidence" : "Ten rows drawn"),
          html("button", { type: "button", onclick: () => sampleRows(seed + 1) }, "Draw again"),
          html("button", { type: "button", onclick: () => download(found) }, "Download CSV"),
          html("button", { type: "button", class: "quiet", "aria-label": "Close the rows", onclick: () => { drawnRows.hidden = true; } }, "×")),
        html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows drawn, a table" },
          html("table", {}, html("thead", {}, html("tr", {}, found.columns.map(name => html("th", { scope: "col" }, shorten(name, 30))))),
            html("tbody", {}, found.rows.map(values => html("tr", {}, values.map(cell)))))));
      drawnRows.hidden = false;
      drawnRows.scrollIntoView({ block: "nearest" });
      say("Ten rows drawn.");
    } catch (error) { problem(error); }
  }

  function download(found) {
    const quote = value => { const text = value === null ? "" : String(value); return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
    const text = [found.columns, ...found.rows].map(line => line.map(quote).join(",")).join("\r\n") + "\r\n";
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    html("a", { href: url, download: "drawn.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // --- the tree of dependencies

  const tree = svg("svg", { class: "tree", role: "group", "aria-label": "Dependencies between columns" });
  const layout = treeLayout(columns.length, model.edges);

  function drawTree() {
    const step = 25, indent = 13, strongest = Math.max(...model.edges.map(edge => edge.nats), 1e-9);
    const x = i => 8 + indent * layout[i].depth, y = i => 14 + step * layout[i].row;
    const width = Math.max(250, ...columns.map((c, i) => x(i) + 20 + 7.1 * Math.min([...c.name].length, 24)));
    tree.setAttribute("viewBox", `0 0 ${width} ${step * columns.length + 4}`);
    tree.setAttribute("width", width);
    const edges = layout.filter(node => node.parent !== null).map(({ parent, child, nats }) => svg("path", {
      class: "edge", "stroke-width": (1 + 5 * nats / strongest).toFixed(2),
      d: `M${x(parent)} ${y(parent) + 5}V${y(child) - 6}q0 6 6 6H${x(child) - 4}`,
    }, svg("title", {}, `${columns[parent].name} – ${columns[child].name}: ${nats.toFixed(2)} nats`)));
    const nodes = columns.map((column, i) => {
      const select = () => { cards[i].element.scrollIntoView({ block: "center", behavior: "smooth" }); cards[i].focus(); };
      return svg("g", {
        class: `node ${sets[active].has(i) ? "known" : ""}`, tabindex: 0, role: "button", "aria-label": `Go to ${column.name}`, onclick: select,
        onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(); } },
      }, svg("rect", { x: x(i) - 6, y: y(i) - 11, width: 22 + 7.1 * Math.min([...column.name].length, 24), height: 22, rx: 11 }),
      svg("circle", { cx: x(i), cy: y(i), r: 4, class: column.kind }), svg("text", { x: x(i) + 10, y: y(i) + 4 }, shorten(column.name, 24)),
      svg("title", {}, column.name));
    });
    const focused = [...tree.querySelectorAll("g")].indexOf(document.activeElement);
    tree.replaceChildren(...edges, ...nodes);
    if (focused >= 0) nodes[focused].focus();
  }

  // --- rows of the data

  const rowInput = html("input", { type: "number", id: "row", min: 0, max: (model.rows || 1) - 1, step: 1, value: 0, onchange: () => useRow(+rowInput.value) });
  const rowNote = html("p", { class: "hint" });
  const surprisingList = html("ol", { class: "surprising" });

  async function useRow(which) {
    try {
      const found = await fetchJson("row", { row: which });
      row = which;
      rowInput.value = which;
      sets[active] = new Map();
      found.cells.forEach((value, i) => { if (value !== null && !columns[i].empty) sets[active].set(i, { is: value }); });
      surprises = new Map(found.surprises.map(cell => [cell.column, cell]));
      const worst = found.surprises.filter(cell => cell.tail < 0.05).map(cell => shorten(columns[cell.column].name, 24));
      rowNote.textContent = worst.length ? `Surprising: ${worst.join(", ")}. Remove a cell (×) to see its expected value.`
        : "Every cell fits the others. Remove a cell (×) to see its expected value.";
      changed();
    } catch (error) { problem(error); }
  }

  async function listSurprising() {
    try {
      const found = await fetchJson("surprising", { n: 12 });
      surprisingList.replaceChildren(...found.rows.map(({ row: which, surprise }) => html("li", {}, html("button", {
        type: "button", class: "link", onclick: () => useRow(which),
      }, `row ${which}`), html("span", {}, ` +${surprise.toFixed(1)} nats`))));
    } catch (error) { problem(error); }
  }

  const rowsPanel = model.rows && html("details", { class: "panel", open: true },
    html("summary", {}, html("h2", {}, "Rows of the data")),
    html("div", { class: "stepper" }, html("label", { for: "row" }, "Row"),
      html("button", { type: "button", "aria-label": "Previous row", onclick: () => useRow(clamp((row ?? 1) - 1, 0, model.rows - 1)) }, "‹"), rowInput,
      html("button", { type: "button", "aria-label": "Next row", onclick: () => useRow(clamp((row ?? -1) + 1, 0, model.rows - 1)) }, "›")),
    rowNote, html("button", { type: "button", onclick: listSurprising }, "Most surprising rows"), surprisingList);

  // --- cards

  function shell(column, i, ...body) {
    const clear = html("button", { type: "button", class: "quiet clear", "aria-label": `Remove ${column.name}`, hidden: true, onclick: () => { set(i, null); card.querySelector("h2").focus(); } }, "×");
    const note = html("p", { class: "note", hidden: true });
    const card = html("article", { class: "card", "aria-labelledby": `name${i}` },
      html("header", {}, html("h2", { id: `name${i}`, tabindex: -1, title: column.name }, column.name), clear), note, body);
    const mark = (known, surprise, label) => {
      card.classList.toggle("fixed", known !== null);
      clear.hidden = known === null;
      note.hidden = !surprise;
      note.classList.toggle("odd", Boolean(surprise) && surprise.tail < 0.05);
      if (surprise) note.textContent = `${surprise.tail < 0.05 ? "Surprising" : "Fits"} (p ${surprise.tail < 0.001 ? "< 0.001" : "= " + surprise.tail.toPrecision(2)}); expected given the others: ${label(surprise.expected)}`;
    };
    return { card, mark };
  }

  function numberCard(column, i) {
    const W = 300, H = 92, span = column.high - column.low || 1;
    const plot = svg("svg", { class: "plot", viewBox: `0 0 ${W} ${H + 18}`, role: "img" });
    const now = html("div", { class: "now" });
    const step = column.whole ? 1 : 10 ** Math.floor(Math.log10(span / 100));
    const slider = html("input", { type: "range", min: column.low, max: column.high, step: column.whole ? 1 : "any", "aria-label": `Value of ${column.name}`,
      oninput: () => set(i, { is: rounded(+slider.value) }) });
    slider.addEventListener("keydown", event => { // "any" has no step
      const move = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10 }[event.key];
      if (!move) return;
      event.preventDefault();
      slider.value = clamp(rounded(+slider.value + move * (column.whole ? 1 : span / 100)), column.low, column.high);
      set(i, { is: rounded(+slider.value) });
    });
    const bound = (name, text) => html("input", { type: "number", step: "any", placeholder: text, "aria-label": `${column.name}, ${text}`, onchange: range });
    const from = bound("from", "from"), to = bound("to", "to");
    const { card, mark } = shell(column, i, now, plot, html("div", { class: "control" }, slider,
      html("div", { class: "bounds" }, from, html("span", { "aria-hidden": "true" }, "–"), to)));
    const rounded = value => column.spikes.find(spike => Math.abs(spike - value) < step / 2) ?? (column.whole ? Math.round(value) : +(Math.round(value / step) * step).toPrecision(10));
    const x = value => W * (value - column.low) / span;

    function range() {
      const low = from.value === "" ? null : +from.value, high = to.value === "" ? null : +to.value;
      if (low === null && high === null) return set(i, null);
      if (low !== null && high !== null && low > high) return problem(new Error(`${column.name}: the first number of a range must not be above the second.`));
      return set(i, low === high ? { is: low } : { from: low, to: high });
    }

    let start = null;
    const at = event => {
      const box = plot.getBoundingClientRect(), px = W * (event.clientX - box.left) / box.width;
      return column.spikes.find(spike => Math.abs(x(spike) - px) < 5) ?? rounded(clamp(column.low + span * px / W, column.low, column.high));
    };
    plot.addEventListener("pointerdown", event => { if (column.empty) return; start = { x: event.clientX, value: at(event) }; plot.setPointerCapture(event.pointerId); });
    plot.addEventListener("pointermove", event => {
      if (!start || Math.abs(event.clientX - start.x) < 5) return;
      const [a, b] = [start.value, at(event)].sort((p, q) => p - q);
      if (a < b) set(i, { from: a, to: b });
    });
    plot.addEventListener("pointerup", event => {
      if (start && Math.abs(event.clientX - start.x) < 5) set(i, { is: start.value });
      start = null;
    });
    plot.addEventListener("pointercancel", () => { start = null; });

    const counts = column.kind === "count";
    const outline = heights => { // of bars that fill the axis
      const width = W / heights.length;
      return heights.flatMap((h, k) => [[k * width, h], [(k + 1) * width, h]]);
    };
    const curve = heights => { // through the middles of the bins, to look like a density
      if (counts) return outline(heights);
      const width = W / heights.length;
      return [[0, heights[0]], ...heights.map((h, k) => [(k + 0.5) * width, h]), [W, heights.at(-1)]];
    };

    function draw(answers, before, known, surprise) {
      mark(known, surprise, value => number(value, span));
      const found = answers.map(answer => answer && answer.cards[i]);
      const curves = [column.data, before && before.heights, ...found.map(f => f && f.heights)];
      const top = Math.max(...curves.flatMap(heights => heights || [0]), 1e-12) * 1.06;
      const y = h => H - (H - 4) * h / top;
      const line = heights => path(curve(heights).map(([px, h]) => [px, y(h)]));
      const parts = [];
      if (column.data) parts.push(svg("path", { class: "data", d: `${path(outline(column.data).map(([px, h]) => [px, y(h)]))}V${H}H0Z` }));
      const evident = sets.some(s => s && s.size);
      found.forEach((f, k) => { if (f) parts.push(svg("path", { class: `area set${k}`, d: `${line(f.heights)}V${H}H0Z` })); });
      if (before && evident) parts.push(svg("path", { class: "before", d: line(before.heights) }));
      found.forEach((f, k) => { if (f) parts.push(svg("path", { class: `curve set${k}`, d: line(f.heights) })); });
      // Atoms have a probability: a bar whose full height is 100 %.
      const spike = (name, share, value, shift) => svg("line", { class: `spike ${name}`, x1: clamp(x(value) + shift, 3, W - 3), x2: clamp(x(value) + shift, 3, W - 3), y1: H, y2: H - (H - 14) * share });
      column.spikes.forEach((value, j) => {
        if (value < column.low || value > column.high) return;
        if (column.single) parts.push(spike("data", column.single[j], value, 0));
        const shares = found.map(f => f && f.spikes[j]);
        if (before && evident) parts.push(spike("prior", before.spikes[j], value, 0));
        shares.forEach((share, k) => { if (share != null) parts.push(spike(`set${k}`, share, value, shares.length > 1 ? 4 * k - 2 : 0)); });
        const told = shares.filter(share => share != null);
        const end = x(value) > W - 60 ? "end" : x(value) < 60 ? "start" : "middle";
        if (told.length) parts.push(svg("text", { class: "share", x: clamp(x(value), 1, W - 1), y: H - (H - 14) * Math.max(...told) - 4, "text-anchor": end }, told.map(percent).join(" · ")));
      });
      sets.forEach((s, k) => {
        const what = s && s.get(i);
        if (!what) return;
        if ("is" in what) parts.push(svg("line", { class: `value set${k}`, x1: clamp(x(what.is), 1, W - 1), x2: clamp(x(what.is), 1, W - 1), y1: 0, y2: H }));
        else if ("from" in what) {
          const a = clamp(x(what.from ?? column.low), 0, W), b = clamp(x(what.to ?? column.high), 0, W);
          parts.push(svg("rect", { class: `range set${k}`, x: a, y: 0, width: Math.max(1, b - a), height: H }));
        }
      });
      parts.push(svg("line", { class: "axis", x1: 0, x2: W, y1: H, y2: H }));
      for (const t of ticks(column.low, column.high, 4)) {
        const px = x(t);
        if (px < 12 || px > W - 12) continue;
        parts.push(svg("line", { class: "axis", x1: px, x2: px, y1: H, y2: H + 3 }), svg("text", { x: px, y: H + 15, "text-anchor": "middle" }, number(t, span)));
      }
      plot.replaceChildren(...parts);
      const spoken = [];
      now.replaceChildren(...sets.filter(s => s).map((s, k) => {
        const what = s.get(i), f = found[k];
        if (what && "is" in what) { spoken.push(`known to be ${what.is}`); return html("p", { class: `set${k}` }, html("b", {}, number(what.is, span)), " known"); }
        if (!f) return html("p", {}, "…");
        const [low, , middle, , high] = f.quantiles;
        const single = column.spikes.map((value, j) => `, ${percent(f.spikes[j])} exactly ${number(value, span)}`).join("");
        spoken.push(`expected ${number(f.mean, span)}, 90 percent between ${number(low, span)} and ${number(high, span)}${single}`);
        return html("p", { class: `set${k}`, title: `median ${number(middle, span)}, half between ${number(f.quantiles[1], span)} and ${number(f.quantiles[3], span)}` },
          html("b", {}, number(f.mean, span)), html("small", {}, ` 90 %: ${number(low, span)} – ${number(high, span)}`));
      }));
      plot.setAttribute("aria-label", `Distribution of ${column.name}: ${spoken.join("; second: ") || "loading"}`);
      const mine = found[active] || before;
      if (document.activeElement !== slider || !known) slider.value = known && "is" in known ? known.is : mine ? mine.mean : 0;
      slider.classList.toggle("loose", !(known && "is" in known));
      slider.setAttribute("aria-valuetext", known && "is" in known ? `${number(known.is, span)}, known` : mine ? `unknown, expected ${number(mine.mean, span)}` : "unknown");
      for (const [input, key] of [[from, "from"], [to, "to"]]) if (document.activeElement !== input) input.value = known && known[key] != null ? known[key] : "";
    }
    return { element: card, draw, focus: () => slider.focus({ preventScroll: true }) };
  }

  function categoryCard(column, i) {
    const buttons = column.labels.map((label, k) => html("button", { type: "button", class: "category", "aria-pressed": "false", disabled: column.empty, onclick: () => toggle(k) },
      html("span", { class: "label" }, label === "" ? "(empty text)" : String(label)), html("span", { class: "share" }),
      html("span", { class: "bars", "aria-hidden": "true" }, html("i", { class: "data" }), html("i", { class: "set0" }), html("i", { class: "set1" }))));
    const { card, mark } = shell(column, i, column.empty ? html("p", { class: "hint" }, "This column has no values.") : null,
      html("div", { class: "categories", role: "group", "aria-label": `Categories of ${column.name}` }, buttons));

    const chosen = what => (!what ? [] : "is" in what ? [what.is] : what.in || []);
    const same = (a, b) => a === b || Number(a) === Number(b) && typeof a !== "string" && typeof b !== "string";

    function toggle(k) {
      const label = column.labels[k];
      const before = chosen(sets[active].get(i));
      const after = before.some(v => same(v, label)) ? before.filter(v => !same(v, label)) : [...before, label];
      if (!after.length || after.length === column.labels.length) set(i, null);
      else set(i, after.length === 1 ? { is: after[0] } : { in: after });
    }

    function draw(answers, before, known, surprise) {
      mark(known, surprise, value => String(value));
      const shares = [0, 1].map(k => {
        if (!sets[k]) return null;
        const what = sets[k].get(i), f = answers[k] && answers[k].cards[i];
        if (f) return f.heights;
        return what && "is" in what ? column.labels.map(label => (same(label, what.is) ? 1 : 0)) : null;
      });
      const active_ = chosen(known);
      buttons.forEach((button, k) => {
        button.setAttribute("aria-pressed", String(active_.some(v => same(v, column.labels[k]))));
        const [first, second] = shares.map(s => (s ? s[k] : null));
        const [data, a, b] = button.querySelectorAll("i");
        data.style.setProperty("--w", column.data ? column.data[k] : 0);
        a.style.setProperty("--w", first ?? 0);
        b.style.setProperty("--w", second ?? 0);
        const texts = [first, second].map(share => (share === null ? "" : percent(share)));
        button.querySelector(".share").replaceChildren(...texts.map((text, which) => html("span", { class: `set${which}` }, text)));
        button.setAttribute("aria-label", `${column.labels[k]}: ${texts.filter(Boolean).join(", second ") || "…"}`);
      });
    }
    return { element: card, draw, focus: () => buttons[0].focus({ preventScroll: true }) };
  }

  // --- all together

  const rowsText = model.rows ? `${model.rows.toLocaleString("en")} rows of data, ` : "";
  show(html("header", { class: "top" },
    html("div", {}, html("h1", {}, model.name), html("p", { class: "hint" }, `${rowsText}${columns.length} columns`)),
    html("div", { class: "tools" }, compare, drawButton, copyButton(), reset)), evidence,
  html("div", { class: "layout" },
    html("main", { id: "main", class: "cards", tabindex: -1 }, cards.map(card => card.element)),
    html("aside", { "aria-label": "Tree and rows" },
      html("details", { class: "panel", open: true }, html("summary", {}, html("h2", {}, "Dependencies")), html("div", { class: "scroll" }, tree),
        html("p", { class: "hint" }, "Thicker lines mean more mutual information.")), rowsPanel)), drawnRows, legend(model));
  restore();
  current = changed;
  addEventListener("hashchange", () => { restore(); changed(); });
  drawEvidence();
  begin();
}

function legend(model) {
  return html("footer", { class: "legend" },
    model.rows ? html("span", {}, html("i", { class: "key data" }), "data") : null,
    html("span", {}, html("i", { class: "key set0" }), "model given the evidence"),
    html("span", { class: "only-two" }, html("i", { class: "key set1" }), "the second evidence"),
    html("span", {}, html("i", { class: "key before" }), "model without evidence"),
    model.columns.some(column => column.spikes?.length) ? html("span", {}, html("i", { class: "key spike" }), "probability of a single value, up to 100 %") : null);
}

// The rows and depths of an outline of the tree; the root is the column with the most neighbours.
function treeLayout(n, edges) {
  const near = Array.from({ length: n }, () => []);
  for (const { ends: [a, b], nats } of edges) { near[a].push({ to: b, nats }); near[b].push({ to: a, nats }); }
  const root = near.reduce((best, own, i) => (own.length > near[best].length ? i : best), 0);
  const found = Array(n).fill(null);
  let row = 0;
  const visit = (child, parent, depth, nats) => {
    found[child] = { child, parent, depth, nats, row: row++ };
    near[child].filter(({ to }) => to !== parent).sort((a, b) => b.nats - a.nats).forEach(({ to, nats: own }) => visit(to, child, depth + 1, own));
  };
  visit(root, null, 0, 0);
  return found;
}

// ---------------------------------------------------------------- images

function imagePage(model) {
  const { width, height, levels } = model, size = width * height;
  let pixels = Array(size).fill(null), tool = "draw", brush = width > 12 ? 2 : 1, example = -1, seed = 0, cursor = { x: width >> 1, y: height >> 1 };
  const canvas = html("canvas", { class: "editor", tabindex: 0, role: "application", "aria-roledescription": "image",
    "aria-label": "The image. Arrow keys move the cursor, space draws, backspace erases." });
  const picture = label => { const c = html("canvas", { width, height, role: "img", "aria-label": label }); return { element: html("figure", {}, c, html("figcaption", {}, label)), canvas: c }; };
  const mean = picture("Mean of the missing pixels"), spread = picture("Standard deviation"), latents = picture("Latents along their tree");
  const samples = Array.from({ length: 6 }, (_, k) => picture(`Sample ${k + 1}`));
  const facts = html("p", { class: "facts big" });
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const shade = value => { const t = clamp(value / (levels - 1), 0, 1); return dark.matches ? 24 + 231 * t : 255 - 240 * t; };
  function paint(canvas, colour) {
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    for (let k = 0; k < size; k++) image.data.set([...colour(k), 255], 4 * k);
    context.putImageData(image, 0, 0);
  }
  const grey = values => k => { const s = shade(values[k] ?? 0); return [s, s, s]; };
  // From blue over grey to orange along the grid of the latent; paler if less certain.
  const hue = ([where, certain]) => {
    const ends = [[43, 108, 176], [150, 150, 150], [217, 115, 22]], t = clamp(where, 0, 1) * 2, k = Math.min(1, Math.floor(t));
    const strong = 0.25 + 0.75 * clamp(certain, 0, 1), paper = dark.matches ? 27 : 255;
    return ends[k].map((c, j) => (c + (ends[k + 1][j] - c) * (t - k)) * strong + paper * (1 - strong));
  };

  function drawEditor() {
    const scale = Math.max(4, Math.floor(336 / Math.max(width, height)));
    canvas.width = width * scale; canvas.height = height * scale;
    const context = canvas.getContext("2d");
    for (let k = 0; k < size; k++) {
      const x = (k % width) * scale, y = Math.floor(k / width) * scale;
      if (pixels[k] === null) {
        context.fillStyle = dark.matches ? "#1c3148" : "#e6eff8"; context.fillRect(x, y, scale, scale);
        context.fillStyle = dark.matches ? "#27456a" : "#cfe1f3"; context.fillRect(x, y, scale / 2, scale / 2); context.fillRect(x + scale / 2, y + scale / 2, scale / 2, scale / 2);
      } else { const s = shade(pixels[k]); context.fillStyle = `rgb(${s},${s},${s})`; context.fillRect(x, y, scale, scale); }
    }
    if (document.activeElement === canvas) { context.strokeStyle = "#d97316"; context.lineWidth = 2; context.strokeRect(cursor.x * scale + 1, cursor.y * scale + 1, scale - 2, scale - 2); }
  }

  // Each pixel has the colour of its latent. The tree of the latents is drawn on top.
  function drawLatents(values) {
    const scale = Math.max(8, Math.floor(280 / Math.max(width, height))), middle = k => [(k % width + 0.5) * scale, (Math.floor(k / width) + 0.5) * scale];
    latents.canvas.width = width * scale; latents.canvas.height = height * scale;
    const context = latents.canvas.getContext("2d");
    const colours = values.map(value => `rgb(${hue(value).map(Math.round).join(",")})`);
    colours.forEach((colour, k) => { context.fillStyle = colour; context.fillRect(middle(k)[0] - scale / 2, middle(k)[1] - scale / 2, scale, scale); });
    context.strokeStyle = dark.matches ? "#e8ebef66" : "#1b202666"; context.lineWidth = Math.max(1, scale / 24);
    context.beginPath();
    for (const [a, b] of model.edges) { context.moveTo(...middle(a)); context.lineTo(...middle(b)); }
    context.stroke();
  }

  const ask = asker("complete", answer => {
    paint(mean.canvas, grey(answer.mean));
    const most = Math.max(...answer.spread, 1e-9);
    paint(spread.canvas, k => { const s = shade((levels - 1) * answer.spread[k] / most); return [s, s, s]; });
    answer.samples.forEach((image, k) => paint(samples[k].canvas, grey(image)));
    latents.element.hidden = !answer.latents;
    if (answer.latents) drawLatents(answer.latents);
    facts.textContent = `log-likelihood ${answer.log_prob.toFixed(1)}` + (answer.bits === null ? "" : ` · ${answer.bits.toFixed(2)} bits per known pixel`) + ` · ${answer.missing} of ${size} pixels unknown`;
    say(facts.textContent);
  });

  function changed() {
    const pack = pixels.every(p => p === null) ? {} : { p: pixels.map(p => (p === null ? "--" : p.toString(16).padStart(2, "0"))).join("") };
    writeHash(pack);
    drawEditor();
    ask({ pixels, samples: 6, seed });
  }
  function restore() {
    const text = readHash().p;
    if (typeof text !== "string" || text.length !== 2 * size) return;
    pixels = Array.from({ length: size }, (_, k) => { const v = parseInt(text.slice(2 * k, 2 * k + 2), 16); return Number.isNaN(v) || v >= levels ? null : v; });
  }
  function dab(x, y, erase) {
    for (let dy = 1 - brush; dy < brush; dy++) for (let dx = 1 - brush; dx < brush; dx++) {
      const px = x + dx, py = y + dy;
      if (px < 0 || py < 0 || px >= width || py >= height) continue;
      const edge = Math.abs(dx) + Math.abs(dy) >= brush && brush > 1;
      const ink = Math.round((levels - 1) * (edge && levels > 2 ? 0.6 : 1));
      pixels[py * width + px] = erase ? null : Math.max(pixels[py * width + px] ?? 0, ink);
    }
  }
  let down = false;
  const at = event => { const box = canvas.getBoundingClientRect(); return [Math.floor(width * (event.clientX - box.left) / box.width), Math.floor(height * (event.clientY - box.top) / box.height)]; };
  canvas.addEventListener("pointerdown", event => { down = true; canvas.setPointerCapture(event.pointerId); dab(...at(event), tool === "erase"); changed(); });
  canvas.addEventListener("pointermove", event => { if (down) { dab(...at(event), tool === "erase"); changed(); } });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { down = false; });
  for (const name of ["focus", "blur"]) canvas.addEventListener(name, drawEditor);
  canvas.addEventListener("keydown", event => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (moves) cursor = { x: clamp(cursor.x + moves[0], 0, width - 1), y: clamp(cursor.y + moves[1], 0, height - 1) };
    else if (event.key === " " || event.key === "Backspace" || event.key === "Delete") { dab(cursor.x, cursor.y, event.key !== " "); changed(); }
    else return;
    event.preventDefault();
    drawEditor();
  });
  const hide = test => { for (let k = 0; k < size; k++) if (test(k % width, Math.floor(k / width))) pixels[k] = null; changed(); };
  const button = (text, onclick, attributes = {}) => html("button", { type: "button", onclick, ...attributes }, text);
  const tools = ["draw", "erase"].map(name => button(name === "draw" ? "Draw" : "Erase", () => { tool = name; tools.forEach((b, k) => b.setAttribute("aria-pressed", String(["draw", "erase"][k] === name))); }, { "aria-pressed": String(name === "draw") }));

  async function load(which) {
    try { pixels = (await fetchJson("example", { number: which })).pixels.map(p => (p === null ? null : Math.round(p))); example = which; changed(); } catch (error) { problem(error); }
  }
  async function open(file) {
    try {
      const bitmap = await createImageBitmap(file), small = html("canvas", { width, height }), context = small.getContext("2d");
      context.fillStyle = "#000"; context.fillRect(0, 0, width, height); context.drawImage(bitmap, 0, 0, width, height);
      const found = context.getImageData(0, 0, width, height).data;
      pixels = Array.from({ length: size }, (_, k) => Math.round((levels - 1) * (0.2126 * found[4 * k] + 0.7152 * found[4 * k + 1] + 0.0722 * found[4 * k + 2]) / 255));
      changed();
    } catch { problem(new Error("The browser cannot read this file as an image.")); }
  }
  show(html("header", { class: "top" }, html("div", {}, html("h1", {}, model.name), html("p", { class: "hint" }, `images of ${height} × ${width} pixels, ${levels} levels`)), html("div", { class: "tools" }, copyButton())),
    html("main", { id: "main", class: "image", tabindex: -1 },
      html("section", { class: "card", "aria-label": "The image" }, html("h2", {}, "What is known"), canvas,
        html("p", { class: "hint" }, "The checked pattern marks unknown pixels, which the model completes."),
        html("div", { class: "tools" }, tools, html("label", { class: "inline" }, "Brush ", html("input", { type: "range", min: 1, max: 4, value: brush, oninput: event => { brush = +event.target.value; } }))),
        html("div", { class: "tools" }, button("Hide top", () => hide((x, y) => y < height / 2)), button("Hide bottom", () => hide((x, y) => y >= height / 2)), button("Hide left", () => hide(x => x < width / 2)), button("Hide right", () => hide(x => x >= width / 2))),
        html("div", { class: "tools" }, model.examples ? [button("‹ Example", () => load((example - 1 + model.examples) % model.examples)), button("Example ›", () => load((example + 1) % model.examples))] : null,
          button("All unknown", () => hide(() => true)), button("Blank", () => { pixels = Array(size).fill(0); changed(); }),
          html("label", { class: "file" }, "Load an image", html("input", { type: "file", accept: "image/*", onchange: event => event.target.files[0] && open(event.target.files[0]) })))),
      html("section", { class: "card results", "aria-label": "What the model says" }, html("div", { class: "head" }, html("h2", {}, "What the model says"), button("Other samples", () => { seed += 1; changed(); })), facts,
        html("div", { class: "pictures few" }, mean.element, spread.element, latents.element), html("p", { class: "hint" }, model.edges.length ? "The colour of a latent shows the position of its posterior, from blue to orange. Pale means uncertain." : ""), html("h3", {}, "Samples of the missing pixels"), html("div", { class: "pictures" }, samples.map(s => s.element)))));
  latents.element.hidden = true;
  restore();
  current = changed;
  addEventListener("hashchange", () => { restore(); changed(); });
  dark.addEventListener("change", changed);
  changed();
}

// ---------------------------------------------------------------- sequences

function sequencePage(model) {
  const W = innerWidth < 700 ? 340 : 640, L = 44, R = W - 8; // so that text on a phone is as large as elsewhere
  const { columns } = model;
  let sequence = 0, until = 1, steps = 12, row = 0, series = null, answer = null, cells = new Map(); // row → place → value
  const numbers = columns.map((column, i) => ({ ...column, i })).filter(column => !column.labels);

  const changedCells = () => {
    const found = Object.create(null);
    for (const [r, own] of cells) {
      found[r] = Object.create(null);
      for (const [i, value] of own) found[r][columns[i].name] = value;
    }
    return found;
  };
  const valueOf = (r, i) => { const own = cells.get(r); return own && own.has(i) ? own.get(i) : series.values[columns[i].name][r]; };
  const change = (r, i, value) => {
    const own = cells.get(r) || new Map();
    if (value === undefined || value === series.values[columns[i].name][r]) own.delete(i); else own.set(i, value);
    if (own.size) cells.set(r, own); else cells.delete(r);
    changed();
  };

  const ask = asker("look", found => { answer = found; draw(); });
  function changed() {
    const state = { s: sequence, u: until, h: steps };
    if (cells.size) state.c = changedCells();
    writeHash(state);
    drawRow();
    ask({ sequence, until, steps, cells: changedCells() });
  }
  const place = new Map(columns.map((column, i) => [column.name, i]));
  async function open(number, state = {}) {
    count(1);
    try {
      series = await fetchJson("series", { sequence: number });
      sequence = number;
      const rows = series.at.length, whole = (value, low, high, usual) => (Number.isInteger(value) ? clamp(value, low, high) : usual);
      until = whole(state.u, 1, rows, rows > 4 ? Math.ceil(0.75 * rows) : rows);
      steps = whole(state.h, 1, model.most, clamp(rows - until, 12, 60));
      cells = new Map();
      for (const [r, own] of Object.entries(state.c && typeof state.c === "object" ? state.c : {})) {
        const known = Object.entries(own || {}).filter(([name]) => place.has(name)).map(([name, value]) => [place.get(name), value]);
        if (/^[0-9]+$/.test(r) && +r < rows && known.length) cells.set(+r, new Map(known));
      }
      row = until - 1;
      answer = null;
      untilSlider.max = rows;
      rowInput.max = rows - 1;
      untilSlider.value = until; stepsSlider.value = steps; select.value = sequence;
      changed();
    } catch (error) { problem(error); }
    count(-1);
  }
  const restore = () => { const state = readHash(); open(Number.isInteger(state.s) ? clamp(state.s, 0, model.sequences.length - 1) : 0, state); };

  // --- charts, which share one time axis

  const frame = () => { const low = series.at[0], high = Math.max(series.at.at(-1), answer.at.at(-1)), span = high - low || 1; return value => L + (R - L) * (value - low) / span; };
  const chart = (name, H) => { const plot = svg("svg", { class: "plot chart", viewBox: `0 0 ${W} ${H + 18}`, role: "img" }); return { plot, H, element: html("section", { class: "card series", "aria-label": name }, html("h2", {}, name), plot) }; };
  function timeAxis(x, H) {
    const times = [...series.at.slice(0, until), ...answer.at], told = [...series.times.slice(0, until), ...answer.times];
    const marks = [], room = 7 * Math.max(...told.map(text => text.length)) + 16, seam = x(series.at[until - 1]);
    let right = -Infinity;
    times.forEach((t, k) => { if (x(t) - room / 2 > right && x(t) + room / 2 < W + 6) { marks.push(svg("text", { x: x(t), y: H + 15, "text-anchor": "middle" }, told[k])); right = x(t) + room / 2; } });
    return [svg("line", { class: "axis", x1: L, x2: R, y1: H, y2: H }), svg("line", { class: "seam", x1: seam, x2: seam, y1: 0, y2: H }), ...marks];
  }
  const strip = (x, at, low, high, y) => path([...at.map((t, k) => [x(t), y(low[k])]), ...at.map((t, k) => [x(t), y(high[k])]).reverse()]) + "Z";
  function levels(low, high, H, y) {
    return ticks(low, high, 4).filter(t => y(t) > 6 && y(t) < H).flatMap(t => [svg("line", { class: "grid", x1: L, x2: R, y1: y(t), y2: y(t) }), svg("text", { x: L - 6, y: y(t) + 4, "text-anchor": "end" }, number(t, high - low))]);
  }
  const nearest = (x, px) => series.at.reduce((best, t, r) => (Math.abs(x(t) - px) < Math.abs(x(series.at[best]) - px) ? r : best), 0);

  const numberCharts = numbers.map(column => {
    const made = chart(column.name, 150);
    let x = null, y = null, back = null, dragged = null;
    const at = event => { const box = made.plot.getBoundingClientRect(); return [W * (event.clientX - box.left) / box.width, (made.H + 18) * (event.clientY - box.top) / box.height]; };
    made.plot.addEventListener("pointerdown", event => {
      if (!x) return;
      const [px, py] = at(event);
      row = nearest(x, px);
      const value = valueOf(row, column.i);
      if (row < until && value !== null && Math.abs(y(value) - py) < 14) { dragged = row; made.plot.setPointerCapture(event.pointerId); }
      changed();
    });
    made.plot.addEventListener("pointermove", event => { if (dragged !== null) change(dragged, column.i, +back(at(event)[1]).toPrecision(4)); });
    for (const name of ["pointerup", "pointercancel"]) made.plot.addEventListener(name, () => { dragged = null; });
    made.draw = () => {
      const H = made.H, { quantiles, mean } = answer.numbers[column.name];
      const values = series.at.map((_, r) => valueOf(r, column.i));
      const known = [...values, ...quantiles[0], ...quantiles[4]].filter(value => value !== null && isFinite(value));
      const low = Math.min(...known), high = Math.max(...known), room = 0.06 * (high - low) || 1;
      x = frame();
      if (dragged === null || !y) { // the axis stays where it is while a point is moved
        y = value => H - (H - 4) * (value - low + room) / (high - low + 2 * room);
        back = py => low - room + (high - low + 2 * room) * (H - clamp(py, 0, H)) / (H - 4);
      }
      const dots = values.map((value, r) => value !== null && svg("circle", { class: r >= until ? "later" : cells.get(r)?.has(column.i) ? "mark edited" : "mark set0", cx: x(series.at[r]), cy: y(value), r: r === row ? 5 : 2.6 })).filter(Boolean);
      made.plot.replaceChildren(...levels(low - room, high + room, H, y),
        svg("path", { class: "area fan", d: strip(x, answer.at, quantiles[0], quantiles[4], y) }), svg("path", { class: "area fan", d: strip(x, answer.at, quantiles[1], quantiles[3], y) }),
        svg("path", { class: "curve set1", d: path(answer.at.map((t, k) => [x(t), y(quantiles[2][k])])) }), ...timeAxis(x, H), ...dots);
      const last = mean.length - 1;
      made.plot.setAttribute("aria-label", `${column.name}: ${until} rows known; forecast ${number(mean[0], high - low)} at ${answer.times[0]}, ${number(mean[last], high - low)} with 90 percent between ${number(quantiles[0][last], high - low)} and ${number(quantiles[4][last], high - low)} at ${answer.times[last]}`);
    };
    return made;
  });

  const categoryCharts = columns.map((column, i) => ({ ...column, i })).filter(column => column.labels).map(column => {
    const shown = column.labels.slice(0, 12), made = chart(column.name, 22 * shown.length + 6);
    made.plot.addEventListener("pointerdown", event => { const box = made.plot.getBoundingClientRect(); row = nearest(frame(), W * (event.clientX - box.left) / box.width); changed(); });
    made.draw = () => {
      const x = frame(), y = k => 14 + 22 * k, shares = answer.categories[column.name], parts = [];
      const gap = answer.at.length > 1 ? x(answer.at[1]) - x(answer.at[0]) : 8;
      shown.forEach((label, k) => {
        parts.push(svg("text", { x: L - 6, y: y(k) + 4, "text-anchor": "end" }, shorten(String(label), 6), svg("title", {}, String(label))));
        answer.at.forEach((t, j) => parts.push(svg("rect", { class: "chance", x: x(t) - gap / 2, y: y(k) - 9 * shares[k][j], width: Math.max(1, 0.9 * gap), height: 18 * shares[k][j] })));
        series.at.forEach((t, r) => { if (valueOf(r, column.i) === label) parts.push(svg("circle", { class: r >= until ? "later" : cells.get(r)?.has(column.i) ? "mark edited" : "mark set0", cx: x(t), cy: y(k), r: r === row ? 5 : 2.6 })); });
      });
      made.plot.replaceChildren(...parts, ...timeAxis(x, made.H));
      const first = shares.map((own, k) => `${column.labels[k]} ${percent(own[0])}`).join(", ");
      made.plot.setAttribute("aria-label", `${column.name}: ${until} rows known; forecast at ${answer.times[0]}: ${first}`);
    };
    return made;
  });

  const latentCharts = Array.from({ length: model.latents }, (_, j) => {
    const made = chart(model.latents > 1 ? `Filtered latent ${j + 1}` : "Filtered latent", 90);
    made.draw = () => {
      const H = made.H, mean = answer.filter.mean[j], std = answer.filter.std[j], at = series.at.slice(0, mean.length), x = frame();
      const under = mean.map((m, k) => m - 2 * std[k]), over = mean.map((m, k) => m + 2 * std[k]), low = Math.min(...under), high = Math.max(...over);
      const y = value => H - (H - 4) * (value - low) / (high - low || 1);
      made.plot.replaceChildren(...levels(low, high, H, y), svg("path", { class: "area set0", d: strip(x, at, under, over, y) }), svg("path", { class: "curve set0", d: path(at.map((t, k) => [x(t), y(mean[k])])) }), ...timeAxis(x, H));
      made.plot.setAttribute("aria-label", `The filtered latent; at the last row ${mean.at(-1).toFixed(2)} plus or minus ${(2 * std.at(-1)).toFixed(2)}`);
    };
    return made;
  });

  const surpriseChart = chart("Surprise of each row given those before it, in nats", 70);
  surpriseChart.draw = () => {
    const H = surpriseChart.H, x = frame(), { surprise } = answer, low = Math.min(0, ...surprise), high = Math.max(...surprise, low + 1e-9);
    const y = value => H - (H - 4) * (value - low) / (high - low);
    surpriseChart.plot.replaceChildren(...levels(low, high, H, y), ...surprise.map((value, r) => svg("line", { class: "stem", x1: x(series.at[r]), x2: x(series.at[r]), y1: y(low), y2: y(value) })), ...timeAxis(x, H));
    const worst = surprise.indexOf(Math.max(...surprise));
    surpriseChart.plot.setAttribute("aria-label", `Surprise: largest ${surprise[worst].toFixed(1)} nats at ${series.times[worst]}`);
  };
  const charts = [...numberCharts, ...categoryCharts, ...latentCharts, surpriseChart];

  // --- controls

  const select = html("select", { id: "sequence", onchange: () => open(+select.value) }, model.sequences.map((name, k) => html("option", { value: k }, shorten(name, 40))));
  const untilText = html("output", { for: "until" }), stepsText = html("output", { for: "steps" });
  const untilSlider = html("input", { type: "range", id: "until", min: 1, max: 1, value: 1, oninput: () => { until = +untilSlider.value; row = Math.min(row, until - 1); changed(); } });
  const stepsSlider = html("input", { type: "range", id: "steps", min: 1, max: model.most, value: steps, oninput: () => { steps = +stepsSlider.value; changed(); } });
  const rowInput = html("input", { type: "number", id: "row", min: 0, step: 1, onchange: () => { row = clamp(Math.round(+rowInput.value) || 0, 0, series.at.length - 1); changed(); } });
  const rowNote = html("p", { class: "hint" });
  const facts = html("p", { class: "facts" });
  const editors = columns.map((column, i) => {
    const input = column.labels
      ? html("select", { "aria-label": `Value of ${column.name}`, onchange: () => change(row, i, input.value === "" ? null : column.labels[+input.value]) }, html("option", { value: "" }, "unknown"), column.labels.map((label, k) => html("option", { value: k }, shorten(String(label), 40))))
      : html("input", { type: "number", step: "any", placeholder: "unknown", "aria-label": `Value of ${column.name}`, onchange: () => change(row, i, input.value === "" ? null : +input.value) });
    const undo = html("button", { type: "button", class: "link", "aria-label": `Restore ${column.name} from the data`, onclick: () => change(row, i, undefined) }, "undo");
    const refresh = () => {
      const value = valueOf(row, i);
      if (document.activeElement !== input || column.labels) input.value = value === null ? "" : column.labels ? column.labels.indexOf(value) : value;
      input.disabled = row >= until;
      undo.hidden = !cells.get(row)?.has(i);
    };
    return { refresh, element: html("div", { class: "variable" }, html("span", { title: column.name }, shorten(column.name, 24)), input, undo) };
  });

  function drawRow() {
    untilText.textContent = `${until} (${series.times[until - 1]})`;
    stepsText.textContent = steps;
    if (document.activeElement !== rowInput) rowInput.value = row;
    rowNote.textContent = row >= until ? `Row ${row} (${series.times[row]}) comes after the known rows.` : `Row ${row}: ${series.times[row]}. Change or clear a value to update the forecast.`;
    editors.forEach(editor => editor.refresh());
  }
  function draw() {
    charts.forEach(made => made.draw());
    const edited = [...cells.values()].reduce((sum, own) => sum + own.size, 0);
    facts.textContent = `log density of the ${plural(until, "row")} ${number(answer.log_prob, 10)}` + (edited ? ` · ${plural(edited, "cell")} changed` : "");
    say(facts.textContent);
  }

  const reset = html("button", { type: "button", onclick: () => open(sequence) }, "Reset");
  show(html("header", { class: "top" }, html("div", {}, html("h1", {}, model.name), html("p", { class: "hint" }, model.drawn ? "a sequence drawn from the model; start the explorer with --data to see others" : `${plural(model.sequences.length, "sequence")}, ${plural(columns.length, "column")}`)), html("div", { class: "tools" }, copyButton(), reset)),
    html("div", { class: "layout" },
      html("main", { id: "main", class: "charts", tabindex: -1 }, charts.map(made => made.element)),
      html("aside", { class: "first", "aria-label": "What is known" },
        html("section", { class: "panel", "aria-label": "Evidence" }, html("h2", {}, "Evidence"),
          model.sequences.length > 1 ? html("div", { class: "variable" }, html("label", { for: "sequence" }, "Sequence"), select) : null,
          html("div", { class: "stacked" }, html("label", { for: "until" }, "Rows known ", untilText), untilSlider),
          html("div", { class: "stacked" }, html("label", { for: "steps" }, "Steps ahead ", stepsText), stepsSlider), facts),
        html("section", { class: "panel", "aria-label": "A row" }, html("h2", {}, "A row"),
          html("div", { class: "stepper" }, html("label", { for: "row" }, "Row"),
            html("button", { type: "button", "aria-label": "Previous row", onclick: () => { row = clamp(row - 1, 0, series.at.length - 1); changed(); } }, "‹"), rowInput,
            html("button", { type: "button", "aria-label": "Next row", onclick: () => { row = clamp(row + 1, 0, series.at.length - 1); changed(); } }, "›")),
          rowNote, editors.map(editor => editor.element), html("p", { class: "hint" }, "You can also drag a dot of a series up and down.")))),
    html("footer", { class: "legend" }, html("span", {}, html("i", { class: "key dot" }), "known"), html("span", {}, html("i", { class: "key dot edited" }), "changed"), html("span", {}, html("i", { class: "key dot hollow" }), "in the data, hidden from the model"),
      html("span", {}, html("i", { class: "key set1" }), "forecast: median, 50 % and 90 %")));
  current = () => (series ? changed() : restore());
  addEventListener("hashchange", restore);
  restore();
}

// ---------------------------------------------------------------- circuits

function circuitPage(model) {
  const x = { ...model.start };
  let n = 16, rule = model.rules[0], curve = null;
  const facts = html("dl", { class: "readings" }), posteriors = html("div", { class: "posteriors" });
  const chart = svg("svg", { class: "plot chart", viewBox: "0 0 420 210", role: "img" });
  const ask = asker("integrate", draw), askCurve = asker("curve", answer => { curve = answer; drawCurve(); });

  const state = () => { const values = {}; for (const name of model.variables) values[name] = x[name]; return values; };
  function changed(newCurve = true) {
    writeHash({ x: state(), n, rule });
    ask({ x: state(), n, rule });
    if (newCurve) askCurve({ x: state(), rule });
  }
  function restore() {
    const found = readHash();
    if (found.x && typeof found.x === "object") for (const name of model.variables) if (found.x[name] === null || Number.isFinite(found.x[name])) x[name] = found.x[name];
    if (Number.isInteger(found.n)) n = clamp(found.n, model.least, model.most);
    if (model.rules.includes(found.rule)) rule = found.rule;
    slider.value = n; select.value = rule; nText.textContent = n;
    for (const name of model.variables) inputs[name].refresh();
  }

  const digits = value => (value === null || value === undefined ? "–" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toPrecision(4));
  function draw(answer) {
    const rows = [["log p̂(x)", answer.log_prob === null ? "−∞" : answer.log_prob.toFixed(6)], ["estimated error", digits(answer.estimate)]];
    if (model.exact) rows.push(["true error", digits(answer.error)], ["closed form", answer.exact.toFixed(6)]);
    rows.push(["sum weights", answer.cost.weights.toLocaleString("en")], ["largest tensor", `${answer.cost.largest.toLocaleString("en")} (${answer.cost.widest})`]);
    facts.replaceChildren(...rows.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
    posteriors.replaceChildren(...answer.latents.map(drawPosterior));
    say(`N = ${n}: estimated error ${digits(answer.estimate)}`);
    drawCurve();
  }
  function drawPosterior({ name, grid, density, mean }) {
    const W = 300, H = 84, low = grid[0], high = grid.at(-1), span = high - low || 1, top = Math.max(...density) * 1.08;
    const px = z => W * (z - low) / span, py = d => H - (H - 4) * d / top;
    const points = grid.map((z, k) => [px(z), py(density[k])]);
    return html("figure", {}, svg("svg", { class: "plot", viewBox: `0 0 ${W} ${H + 18}`, role: "img", "aria-label": `Posterior of ${name} at ${grid.length} points, mean ${mean.toFixed(2)}` },
      svg("path", { class: "area set0", d: `${path(points)}L${W} ${H}H0Z` }), svg("path", { class: "curve set0", d: path(points) }),
      grid.length <= 64 ? points.map(([a, b]) => svg("g", {}, svg("line", { class: "stem", x1: a, x2: a, y1: H, y2: b }), svg("circle", { class: "dot", cx: a, cy: b, r: 2.2 }))) : [],
      svg("line", { class: "axis", x1: 0, x2: W, y1: H, y2: H }),
      ticks(low, high, 5).filter(t => px(t) > 8 && px(t) < W - 8).map(t => svg("text", { x: px(t), y: H + 15, "text-anchor": "middle" }, number(t, span)))), html("figcaption", {}, `p(${name} | x) at its ${grid.length} points`));
  }
  function drawCurve() {
    if (!curve) return;
    const L = 46, R = 408, T = 12, B = 172, lows = -16, highs = 2;
    const px = v => L + (R - L) * Math.log2(v / curve.points[0]) / Math.log2(model.most / curve.points[0]);
    const py = e => T + (B - T) * (highs - clamp(Math.log10(Math.max(e, 1e-17)), lows, highs)) / (highs - lows);
    const series = (values, name) => { const own = values.map((e, k) => (e === null ? null : [px(curve.points[k]), py(e)])).filter(Boolean); return [svg("path", { class: `curve ${name}`, d: path(own) }), ...own.map(([a, b]) => svg("circle", { class: `mark ${name}`, cx: a, cy: b, r: 3 }))]; };
    const parts = [];
    for (let e = lows; e <= highs; e += 4) parts.push(svg("line", { class: "grid", x1: L, x2: R, y1: py(10 ** e), y2: py(10 ** e) }), svg("text", { x: L - 6, y: py(10 ** e) + 4, "text-anchor": "end" }, e === 0 ? "1" : `1e${e}`));
    for (const v of [4, 8, 16, 32, 64, 128]) parts.push(svg("text", { x: px(v), y: B + 16, "text-anchor": "middle" }, v));
    parts.push(svg("text", { x: (L + R) / 2, y: B + 34, "text-anchor": "middle" }, "points N for each latent"));
    if (model.exact) parts.push(...series(curve.error, "set1"));
    parts.push(...series(curve.estimate, "set0"), svg("line", { class: "value set0", x1: px(n), x2: px(n), y1: T, y2: B }));
    chart.setAttribute("aria-label", `Error against the number of points; with ${n} points see the readings`);
    chart.replaceChildren(...parts);
  }

  const nText = html("output", { for: "points" }, n);
  const slider = html("input", { type: "range", id: "points", min: model.least, max: model.most, value: n, oninput: () => { n = +slider.value; nText.textContent = n; changed(false); } });
  const select = html("select", { id: "rule", onchange: () => { rule = select.value; changed(); } }, model.rules.map(name => html("option", { value: name }, name)));
  const inputs = Object.create(null);
  const variable = name => {
    const number = html("input", { type: "number", step: 0.1, "aria-label": `Value of ${name}`, oninput: () => { if (number.value !== "") { x[name] = +number.value; changed(); } } });
    const unknown = html("input", { type: "checkbox", onchange: () => { x[name] = unknown.checked ? null : model.start[name]; inputs[name].refresh(); changed(); } });
    inputs[name] = { refresh: () => { unknown.checked = x[name] === null; number.disabled = unknown.checked; if (x[name] !== null) number.value = x[name]; else number.value = ""; } };
    return html("div", { class: "variable" }, html("span", {}, name), number, html("label", { class: "inline" }, unknown, " unknown"));
  };
  const titles = { smooth: "smooth", decomposable: "decomposable", structured_decomposable: "structured-decomposable", tree_shaped: "tree-shaped" };
  const properties = html("ul", { class: "properties" }, Object.entries(model.properties).map(([name, broken]) => html("li", { class: broken ? "no" : "yes", title: broken }, `${broken ? "✗" : "✓"} ${broken ? "not " : ""}${titles[name]}`)));
  const kinds = ["input", "integral", "sum", "product"].map(kind => [kind, model.units.nodes.filter(node => node.kind === kind).length]).filter(([, count]) => count).map(([kind, count]) => `${count} ${kind}`).join(", ");
  show(html("header", { class: "top" }, html("div", {}, html("h1", {}, model.name), html("p", { class: "hint" }, `${model.variables.length} observed variables; units: ${kinds}`)), html("div", { class: "tools" }, copyButton())),
    html("main", { id: "main", class: "circuit", tabindex: -1 }, html("div", {},
      html("section", { class: "card controls", "aria-label": "Quadrature" }, html("h2", {}, "Quadrature"),
        html("div", { class: "variable" }, html("label", { for: "rule" }, "Rule"), select), html("div", { class: "variable" }, html("label", { for: "points" }, "N"), slider, nText),
        html("h3", {}, "Data point"), model.variables.map(variable), facts),
      model.net ? html("section", { class: "card", "aria-label": "Bayesian network" }, html("h2", {}, "Bayesian network"), html("div", { class: "scroll" }, networkGraph(model.net)), html("p", { class: "hint" }, "Shaded: observed. White: latent, integrated out.")) : null), html("div", {},
      html("section", { class: "card", "aria-label": "Error against N" }, html("h2", {}, "Error of log p(x)"), chart,
        html("p", { class: "legend" }, html("span", {}, html("i", { class: "key set0" }), "estimated by refinement"), model.exact ? html("span", {}, html("i", { class: "key set1" }), "against the closed form") : null)),
      html("section", { class: "card", "aria-label": "Circuit" }, html("h2", {}, "Integral circuit"), html("div", { class: "scroll" }, unitGraph(model.units)), properties)), html("div", {},
      html("section", { class: "card", "aria-label": "Posteriors" }, html("h2", {}, "Latents given x"), posteriors))));
  restore();
  current = changed;
  addEventListener("hashchange", () => { restore(); changed(); });
  changed();
}

function networkGraph(net) {
  const place = new Map(net.nodes.map((node, k) => [node.name, k]));
  const nodes = net.nodes.map(node => ({ label: node.name, title: `${node.name}, ${node.observed ? "observed" : "latent"}`, kind: node.observed ? "observed" : "latent" }));
  return graph(nodes, net.edges.map(([a, b]) => [place.get(a), place.get(b)]), "The Bayesian network");
}

function unitGraph(units) {
  const nodes = units.nodes.map(node => ({ label: node.name, kind: node.kind, title: `${node.name}: a function of ${[...node.scope, ...node.free].join(", ")}` }));
  return graph(nodes, units.edges, "The units of the circuit, inputs at the bottom");
}

// Layers by the longest path from a root; within a layer nodes are centred below their parents.
function graph(nodes, edges, label) {
  const depth = nodes.map(() => 0);
  for (let round = 0; round < nodes.length; round++) {
    let moved = false;
    for (const [a, b] of edges) if (depth[b] < depth[a] + 1) { depth[b] = depth[a] + 1; moved = true; }
    if (!moved) break;
  }
  const wide = nodes.map(node => Math.max(40, 18 + 7.4 * Math.min(26, [...node.label].length)));
  const layers = [];
  nodes.forEach((_, k) => (layers[depth[k]] ||= []).push(k));
  const x = nodes.map(() => 0);
  for (let round = 0; round < 4; round++) for (const layer of layers) {
    const middle = k => { const own = edges.filter(([a, b]) => b === k && depth[a] < depth[k]).map(([a]) => x[a]); return own.length ? own.reduce((s, v) => s + v, 0) / own.length : x[k]; };
    const wanted = new Map(layer.map((k, i) => [k, round || depth[k] ? middle(k) + i / 1000 : i * 80]));
    layer.sort((a, b) => wanted.get(a) - wanted.get(b));
    let right = -Infinity, shift = 0;
    layer.forEach(k => { x[k] = Math.max(wanted.get(k), right + wide[k] / 2 + 16); right = x[k] + wide[k] / 2; shift += (wanted.get(k) - x[k]) / layer.length; });
    layer.forEach(k => { x[k] += shift; });
  }
  const left = Math.min(...nodes.map((_, k) => x[k] - wide[k] / 2)) - 48, width = Math.max(...nodes.map((_, k) => x[k] + wide[k] / 2)) + 48 - left;
  const y = k => 26 + 68 * depth[k], height = 52 + 68 * (layers.length - 1);
  const lines = edges.map(([a, b]) => {
    const dx = x[b] - x[a], dy = y(b) - y(a), long = Math.hypot(dx, dy) || 1;
    const crossed = bend => nodes.some((_, k) => k !== a && k !== b && [0.2, 0.35, 0.5, 0.65, 0.8].some(t =>
      Math.abs(x[a] + t * dx + 2 * t * (1 - t) * bend - x[k]) < wide[k] / 2 + 6 && Math.abs(y(a) + t * dy - y(k)) < 24));
    const bend = [0, 40, -40, 80, -80, 130, -130, 190, -190].find(way => !crossed(way)) ?? 0;
    return svg("path", { class: "edge", "stroke-width": 1.5, "marker-end": "url(#arrow)", d: `M${x[a] + 20 * dx / long} ${y(a) + 18 * dy / long}Q${(x[a] + x[b]) / 2 + bend} ${(y(a) + y(b)) / 2} ${x[b] - 20 * dx / long} ${y(b) - 19 * dy / long}` });
  });
  const shapes = nodes.map((node, k) => svg("g", { class: `unit ${node.kind}` }, svg("title", {}, node.title),
    svg("rect", { x: x[k] - wide[k] / 2, y: y(k) - 16, width: wide[k], height: 32, rx: node.kind === "input" ? 6 : 16 }), svg("text", { x: x[k], y: y(k) + 5, "text-anchor": "middle" }, shorten(node.label, 26))));
  return svg("svg", { class: "graph", viewBox: `${left} 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${label}: ${nodes.map(node => node.label).join(", ")}` },
    svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, svg("path", { class: "tip", d: "M0 0L8 4L0 8Z" }))), lines, shapes);
}

// ---------------------------------------------------------------- start

const pages = { table: tablePage, image: imagePage, sequence: sequencePage, circuit: circuitPage };

async function start() {
  current = start;
  try {
    const model = await fetchJson("model");
    document.title = `${model.name} – picirc`;
    pages[model.kind](model);
  } catch (error) { problem(error); }
}
start();

// The page says everything without this script. It adds sorting and choosing rows, reading cells of heat maps, showing rows
// in drawings, and moving by keyboard.
(() => {
  "use strict";
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // What a cell sorts by: its number, or else its words.
  const key = (cell) => {
    if (!cell) return -Infinity;
    const text = cell.dataset.value ?? cell.textContent;
    const number = parseFloat(text);
    if (!Number.isNaN(number)) return number;
    return text === "–" || text === "" ? -Infinity : text;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? (a < b ? -1 : a > b ? 1 : 0) : String(a).localeCompare(String(b));

  const sort = (table, heading, column) => {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows];
    rows.sort((a, b) => compare(key(a.cells[column]), key(b.cells[column])) * (ascending ? 1 : -1));
    body.append(...rows);
  };

  const makeSortable = (table) => {
    all("thead th", table).forEach((heading, column) => {
      if (all("tbody tr:last-child svg", table).some((svg) => svg.closest("td")?.cellIndex === column)) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => sort(table, heading, column));
    });
  };

  // A list for each column of choices; rows that have another choice are hidden, and their marks in drawings faded.
  const makeChoosable = (table) => {
    const rows = [...table.tBodies[0].rows];
    const tools = document.createElement("div");
    tools.className = "tools choices";
    const count = document.createElement("output");
    const lists = [];
    const choose = () => {
      for (const row of rows) {
        row.hidden = lists.some(({ list, column }) => list.value !== "" && row.cells[column].textContent !== list.value);
        for (const mark of marksOf(row)) mark.classList.toggle("faded", row.hidden);
      }
      const shown = rows.filter((row) => !row.hidden);
      count.textContent = `${shown.length} of ${rows.length} rows`;
      if (!shown.some((row) => row.tabIndex === 0)) {
        rows.forEach((row) => { row.tabIndex = -1; });
        if (shown[0]) shown[0].tabIndex = 0;
      }
    };
    all("thead th", table).forEach((heading, column) => {
      if (heading.dataset.column !== "choice") return;
      const values = [...new Set(rows.map((row) => row.cells[column].textContent))];
      if (values.length < 2 || values.length > 40) return;
      const label = document.createElement("label");
      const list = document.createElement("select");
      list.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
      list.addEventListener("change", choose);
      label.append(heading.textContent, " ", list);
      lists.push({ list, column });
      tools.append(label);
    });
    if (lists.length === 0) return;
    const reset = document.createElement("button");
    reset.type = "button";
    reset.textContent = "Show all";
    reset.addEventListener("click", () => { lists.forEach(({ list }) => { list.value = ""; }); choose(); });
    tools.append(reset, count);
    table.closest(".scroll").before(tools);
    choose();
  };

  // Marks of drawings that stand for a row.
  const marks = new Map();
  for (const mark of all("svg [data-key]")) {
    if (!marks.has(mark.dataset.key)) marks.set(mark.dataset.key, []);
    marks.get(mark.dataset.key).push(mark);
  }
  const marksOf = (row) => (row.dataset.key ? marks.get(row.dataset.key) ?? [] : []);
  const showMarks = (row, picked) => marksOf(row).forEach((mark) => {
    mark.classList.toggle("picked", picked);
    if (picked) mark.parentNode.append(mark);
  });
  const makeVisible = (table) => all("tbody tr[data-key]", table).forEach((row) => {
    for (const [event, picked] of [["focus", true], ["blur", false], ["pointerenter", true], ["pointerleave", false]])
      row.addEventListener(event, () => showMarks(row, picked));
  });

  // Rows take the focus one at a time; arrows move it, Enter follows the row's link.
  const makeRowsFocusable = (table) => {
    const rows = () => [...table.tBodies[0].rows].filter((row) => !row.hidden);
    if (rows().length === 0) return;
    rows().forEach((row, i) => { row.tabIndex = i === 0 ? 0 : -1; });
    table.tBodies[0].addEventListener("keydown", (event) => {
      const row = event.target.closest("tr");
      if (event.target !== row) return;
      const list = rows();
      const at = list.indexOf(row);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.length - 1 }[event.key];
      if (event.key === "Enter") row.querySelector("a")?.click();
      if (to === undefined || !list[to]) return;
      event.preventDefault();
      row.tabIndex = -1;
      list[to].tabIndex = 0;
      list[to].focus();
    });
  };

  // A link to a layer opens it.
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target?.tagName !== "DETAILS") return;
    target.open = true;
    target.scrollIntoView();
    target.querySelector("summary").focus({ preventScroll: true });
  };

  const addLayerTools = (section) => {
    const layers = all("details.layer", section);
    if (layers.length < 2) return;
    const tools = document.createElement("div");
    tools.className = "tools";
    for (const [words, open] of [["Open all layers", true], ["Close all layers", false]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      button.addEventListener("click", () => layers.forEach((layer) => { layer.open = open; }));
      tools.append(button);
    }
    section.querySelector("h2").after(tools);
  };

  // Cells of a heat map are read from the table of its numbers: under the pointer, and by arrow keys.
  const makeReadable = (blocks) => {
    const table = document.getElementById(blocks.dataset.numbers);
    if (!table) return;
    const rows = [...table.tBodies[0].rows];
    const heads = table.tHead.rows[0].cells.length - 1;
    const drawings = all("svg", blocks);
    const readout = document.createElement("output");
    readout.className = "readout";
    readout.textContent = "Point at a cell, or focus the map and use the arrow keys.";
    blocks.before(readout);
    const left = 34, top = 22, height = 17, most = 32;
    const width = (drawings[0].viewBox.baseVal.width - left - 2) / heads;
    const cursor = document.createElementNS(drawings[0].namespaceURI, "rect");
    cursor.setAttribute("class", "cursor");
    let at = { row: 0, head: 0 };
    const show = (row, head) => {
      if (!rows[row]?.cells[head + 1]) return;
      at = { row, head };
      readout.textContent =
        `${table.caption.textContent.replace(" by layer and head", "")}, layer ${rows[row].cells[0].textContent}, ` +
        `head ${head}: ${rows[row].cells[head + 1].textContent}`;
      cursor.setAttribute("x", left + width * head);
      cursor.setAttribute("y", top + height * (row % most));
      cursor.setAttribute("width", width);
      cursor.setAttribute("height", height);
      drawings[Math.floor(row / most)].append(cursor);
    };
    drawings.forEach((drawing, block) => drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect();
      const scale = drawing.viewBox.baseVal.width / box.width;
      const head = Math.floor(((event.clientX - box.left) * scale - left) / width);
      const row = Math.floor(((event.clientY - box.top) * scale - top) / height);
      if (head >= 0 && head < heads && row >= 0 && row < most) show(block * most + row, head);
    }));
    blocks.tabIndex = 0;
    blocks.setAttribute("role", "group");
    blocks.setAttribute("aria-label", `${table.caption.textContent}; arrow keys read its cells`);
    readout.setAttribute("aria-live", "polite");
    blocks.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      show(at.row + step[0], at.head + step[1]);
    });
  };

  all('table[data-sortable="yes"]').forEach((table) => {
    makeSortable(table);
    makeRowsFocusable(table);
    makeChoosable(table);
    makeVisible(table);
  });
  all("[data-numbers]").forEach(makeReadable);
  const layers = document.getElementById("layers");
  if (layers) addLayerTools(layers);
  addEventListener("hashchange", openTarget);
  openTarget();
})();

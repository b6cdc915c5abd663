// Tables that sort by their headings, are filtered by a field, and are taken away as CSV.
function element(name, words, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(words || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function cellValue(row, at) {
  const cell = row.cells[at];
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  return text === "–" || text === "" ? null : text;
}

function compared(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

// What is not known comes last in either order.
function sortTable(table, at, down) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [row, cellValue(row, at)]);
  rows.sort(([, one], [, other]) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return down ? compared(other, one) : compared(one, other);
  });
  body.append(...rows.map(([row]) => row));
  Array.from(table.tHead.rows[0].cells).forEach((head, number) => {
    if (number === at) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

function sortable(table) {
  Array.from(table.tHead.rows[0].cells).forEach((head, at) => {
    const button = element("button", { type: "button" }, head.textContent);
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      sortTable(table, at, before ? before === "ascending" : head.classList.contains("n"));
    });
  });
}

// A text that a spreadsheet would take for a formula gets an apostrophe; figures are given in SI units.
function csvCell(cell) {
  if (cell.dataset.v !== undefined) return cell.dataset.v;
  const bar = cell.querySelector("[aria-label]");
  const text = (bar ? bar.getAttribute("aria-label") : cell.textContent).trim();
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text === "–" ? "" : text;
  return `"${safe.replaceAll('"', '""')}"`;
}

function csvOf(table) {
  const rows = [table.tHead.rows[0], ...Array.from(table.tBodies[0].rows).filter((row) => !row.hidden)];
  return rows.map((row) => Array.from(row.cells, csvCell).join(",")).join("\r\n") + "\r\n";
}

function tools(table) {
  const bar = element("div", { class: "tools" });
  const name = table.dataset.name;
  if (table.dataset.filter !== undefined) {
    const field = element("input", { type: "search", placeholder: "filter rows", "aria-label": `filter ${name}` });
    const told = element("span", { role: "status" });
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      told.textContent = wanted ? `${shown} of ${table.tBodies[0].rows.length}` : "";
    });
    bar.append(field, told);
  }
  const copy = element("button", { type: "button" }, "save as CSV");
  copy.setAttribute("aria-label", `save ${name} as CSV`);
  copy.addEventListener("click", () => {
    const link = element("a", { download: `rooflens-${name.replaceAll(" ", "-")}.csv` });
    link.href = URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  bar.append(copy);
  table.closest(".wide").after(bar);
}

function readyTables() {
  for (const table of document.querySelectorAll("table")) {
    if (table.classList.contains("sortable")) sortable(table);
    tools(table);
  }
}

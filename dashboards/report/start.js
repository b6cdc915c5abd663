// Reads the data of the page and brings its recordings to life; without uPlot the still pictures stay.
function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const lines = new Map();
  readyTables();
  for (const article of document.querySelectorAll("article[data-recording]")) {
    const number = Number(article.dataset.recording), place = article.querySelector(".charts");
    if (typeof uPlot === "undefined" || !place || !data[number]) continue;
    place.hidden = false;
    place.parentElement.classList.add("drawn");
    lines.set(article, new TimeLine(place, { ...data[number], number }));
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-from]");
    const line = link && lines.get(link.closest("article"));
    if (!line) return;
    line.jump(Number(link.dataset.from), Number(link.dataset.to), link.dataset.engine);
    document.querySelectorAll("tr.marked").forEach((row) => row.classList.remove("marked"));
    link.closest("tr").classList.add("marked");
    line.panels.focus({ preventScroll: true });
  });
  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => lines.forEach((line) => line.resize()), 100);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => lines.forEach((line) => { line.draw(); line.paint(); }));
  document.documentElement.dataset.ready = "yes";
}
start();

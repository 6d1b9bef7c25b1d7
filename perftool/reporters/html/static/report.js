"use strict";
(() => {
  const root = document.documentElement;

  // The page follows the theme of the system until the reader chooses light or dark.
  const button = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const remember = {
    get: () => { try { return localStorage.getItem("habana_perf_tool.theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("habana_perf_tool.theme", value); } catch { /* storage is blocked */ } },
  };
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  const kept = remember.get();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  button.hidden = false;
  name();
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remember.set(root.dataset.theme);
    name();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });

  // A link to a finding or a section opens it; printing opens all.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const fold = target.tagName === "DETAILS" ? target : target.querySelector(":scope > details.fold");
    if (fold) { fold.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) reveal();
  });
  reveal();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => { closed.forEach((one) => { one.open = false; }); });

  // A click on a column header sorts by it: numbers by their value, whatever their unit.
  const units = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, min: 6e10, h: 3.6e12,
    B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const worth = (cell) => {
    const found = cell.textContent.trim().match(/^[^\d-]*(-?[\d,]+(?:\.\d+)?)\s*(\S*)/);
    return found ? parseFloat(found[1].replace(/,/g, "")) * (units[found[2]] ?? 1) : -Infinity;
  };
  const sorted = (table, head) => {
    const column = [...head.parentElement.children].indexOf(head);
    const numeric = head.classList.contains("n");
    const down = head.ariaSort ? head.ariaSort !== "descending" : numeric;
    head.parentElement.querySelectorAll("th").forEach((other) => { other.ariaSort = null; });
    head.ariaSort = down ? "descending" : "ascending";
    const body = table.tBodies[0];
    const order = (one, other) => {
      const [a, b] = [one.cells[column], other.cells[column]];
      const way = numeric ? worth(a) - worth(b) || 0 : a.textContent.trim().localeCompare(b.textContent.trim());
      return down ? -way : way;
    };
    body.append(...[...body.rows].sort(order));
  };
  const narrowed = (input, items, status) => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const item of items) {
      const text = item.textContent.toLowerCase();
      item.hidden = !words.every((word) => text.includes(word));
      shown += !item.hidden;
    }
    status.textContent = words.length ? `${shown} of ${items.length}` : "";
  };
  const least = 8;
  document.querySelectorAll("main table").forEach((table) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 2) return;
    for (const head of table.tHead?.rows[0].cells ?? []) {
      if (!head.textContent.trim()) continue;
      head.tabIndex = 0;
      head.classList.add("sorts");
      head.title = "Sort by this column";
      head.addEventListener("click", () => sorted(table, head));
      head.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sorted(table, head); }
      });
    }
    if (rows.length < least) return;
    const line = document.createElement("p");
    line.className = "search";
    const input = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter", ariaLabel: "Filter the rows" });
    const status = document.createElement("span");
    line.append(input, " ", status);
    table.closest(".wide").before(line);
    input.addEventListener("input", () => narrowed(input, rows, status));
  });
  const search = document.querySelector("#findings > .search");
  if (search) {
    search.hidden = false;
    const items = [...document.querySelectorAll("#findings > .finding, #findings > .wide tbody tr")];
    const input = search.querySelector("input");
    input.addEventListener("input", () => narrowed(input, items, search.querySelector("span")));
  }

  // In a page opened from a local file, a link to a line of code opens the editor.
  if (location.protocol === "file:") {
    document.querySelectorAll("a.source").forEach((link) => {
      link.href = `vscode://file${new URL(link.getAttribute("href"), location).pathname}${link.dataset.line ? `:${link.dataset.line}` : ""}`;
    });
  }

  // A chart becomes interactive when it scrolls into view; the first one unpacks the library.
  const packed = document.getElementById("plotly");
  if (!packed || !("DecompressionStream" in window) || !("IntersectionObserver" in window)) return;
  let library = null;
  const unpack = () => library ??= (async () => {
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const source = await new Response(stream).blob();
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    await new Promise((done, failed) => {
      const script = document.createElement("script");
      script.onload = done;
      script.onerror = failed;
      script.src = url;
      document.head.append(script);
    });
    URL.revokeObjectURL(url);
    packed.remove();
  })();

  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (variable) => {
    probe.style.color = `var(${variable})`;
    return getComputedStyle(probe).color;
  };
  const kindColour = (kind) => {
    probe.className = "k-" + kind.replace(/[^A-Za-z0-9]/g, "-");
    const found = getComputedStyle(probe).backgroundColor;
    probe.className = "";
    return found;
  };
  // Plotly interprets some HTML in names; text from a trace must stay plain text.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // Columns with names are at 0, 1, 2 ...; other columns are at their times.
  const names = (data, width) => {
    if (data.x_unit) return { ticksuffix: " " + data.x_unit };
    const every = Math.max(1, Math.ceil(data.x.length * 90 / width));
    const at = data.x.map((_, index) => index).filter((index) => index % every === 0);
    return { tickvals: at, ticktext: at.map((index) => plain(data.x[index])), range: [-0.5, data.x.length - 0.5] };
  };

  const layout = (data, width, height) => {
    const axis = { gridcolor: colour("--line"), zeroline: false, tickfont: { size: 11.5 } };
    return {
      height, margin: { l: 64, r: 0, t: 6, b: 22 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: colour("--soft") }, showlegend: false, barmode: "stack",
      bargap: data.gap ?? 0, hovermode: "x unified", dragmode: "zoom",
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink"), size: 12 } },
      xaxis: { ...axis, type: "linear", nticks: Math.max(3, Math.floor(width / 110)), showgrid: false, tickangle: 0, ...names(data, width) },
      yaxis: { ...axis, ticksuffix: " " + data.unit, rangemode: "tozero", ticklabelstandoff: 6, ticklabeloverflow: "allow",
        nticks: height < 150 ? 4 : 6,
        ...(data.unit === "%" ? { range: [0, 100.5], tickvals: [0, 50, 100], ticktext: ["0", "50 %", "100 %"] } : {}) },
    };
  };
  const traces = (data) => data.series.map((series) => {
    const shade = kindColour(series.kind);
    const hovertemplate = `%{y:.4~g} ${data.unit}<extra>${plain((series.idle ? "idle: " : "") + series.label)}</extra>`;
    if (data.type === "lines") {
      return { type: "scatter", mode: "lines", x: data.x, y: series.y, hovertemplate,
        line: { color: shade, width: 1.6, shape: "hv", dash: series.kind === "kernel" ? "solid" : "dash" } };
    }
    return { type: "bar", x: data.x_unit ? data.x : data.x.map((_, at) => at), y: series.y, hovertemplate,
      marker: { color: shade, opacity: series.idle ? 0.55 : 1, line: { width: 0 } } };
  });
  const alive = new Map();
  const draw = async (figure) => {
    await unpack();
    const data = JSON.parse(document.getElementById("data-" + figure.dataset.chart).textContent);
    const height = parseFloat(getComputedStyle(figure).getPropertyValue("--height")) + 22;
    figure.classList.add("is-live");
    await Plotly.react(figure.querySelector(".live"), traces(data), layout(data, figure.clientWidth, height),
      { displaylogo: false, responsive: true, displayModeBar: false });
    alive.set(figure, true);
  };
  const redraw = () => { for (const figure of alive.keys()) draw(figure); };
  const watcher = new IntersectionObserver((seen) => {
    for (const one of seen) {
      if (!one.isIntersecting) continue;
      watcher.unobserve(one.target);
      draw(one.target).catch(() => one.target.classList.remove("is-live"));
    }
  }, { rootMargin: "200px" });
  document.querySelectorAll("[data-chart]").forEach((figure) => watcher.observe(figure));
})();

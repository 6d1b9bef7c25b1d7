"use strict";
(() => {
  const root = document.documentElement;

  // Light and dark: the system decides until the reader does.
  const button = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const remember = {
    get: () => { try { return localStorage.getItem("habana_perf_tool.theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("habana_perf_tool.theme", value); } catch { /* not allowed: forget it */ } },
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

  // A link to a finding opens it; printing opens all.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
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

  // Charts come alive when they come into view; the library is unpacked once, and only then.
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
  // Plotly reads some of HTML in names; nothing from a trace may be more than text.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // Columns with names are at 0, 1, 2 ...; the others are at a time.
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

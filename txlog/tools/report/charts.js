// Draws the charts of a report: their values are in the element "charts", their places by its keys.
const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const draw = () => {
  const style = getComputedStyle(document.documentElement);
  const [text, line, bar] = ["--text", "--line", "--bar"].map((name) => style.getPropertyValue(name).trim());
  const axis = { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line };
  const config = { background: "transparent", axis: axis, legend: { labelColor: text, titleColor: text }, view: { stroke: null }, bar: { color: bar } };
  // The page's own style sheet has the styles, so that no other one is put in.
  const options = { actions: false, config: config, ast: true, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true } };
  for (const [id, chart] of Object.entries(charts)) {
    vegaEmbed(document.getElementById(id), chart, options);
  }
};
dark.addEventListener("change", draw);
draw();

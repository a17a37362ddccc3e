// Draws the charts of a job, and says what a slow form is doing. The pages work without it.
"use strict";

const COLORS = { light: ["#1a56b0", "#a31621", "#14653a", "#7a4a00", "#6b2fa0", "#50565e"],
                 dark: ["#8ab8ff", "#ff9a9f", "#7fd6a2", "#f3c273", "#c9a6ff", "#aab2bb"] };
const REFRESH_MS = 2000;
const FEW = 40;
const LABEL_WIDTH = 30;
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: "UTC" });

function colors() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? COLORS.dark : COLORS.light;
}

function createChart(box, names, data) {
  const style = getComputedStyle(document.body);
  const axis = { stroke: style.color, grid: { stroke: "rgba(128,128,128,.25)" }, ticks: { stroke: "rgba(128,128,128,.25)" } };
  const series = names.map((label, at) => ({ label, stroke: colors()[at], width: 1.5, points: { show: data[0].length < FEW } }));
  const clock = { ...axis, space: 80, values: (_, ticks) => ticks.map((at) => CLOCK.format(at * 1000)) };
  const amount = { ...axis, size: 60, values: (_, ticks) => ticks.map((each) => COMPACT.format(each)) };
  const time = { label: "time (UTC)", value: (_, at) => at == null ? "" : CLOCK.format(at * 1000) };
  const options = { width: box.clientWidth, height: 190, series: [time, ...series], axes: [clock, amount],
                    hooks: { draw: [(chart) => markVersions(chart, box.versions)] },
                    scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } } };
  return new uPlot(options, data, box);
}

// Marks where versions of the job began: a line and the number of the version. Lines that are close
// to each other share a label.
function markVersions(chart, versions) {
  chart.over.querySelectorAll(".version").forEach((mark) => mark.remove());
  const { min, max } = chart.scales.x;
  let label = null, labelAt = -Infinity;
  for (const { number, time } of versions) {
    if (time < min || time > max) continue;
    const mark = document.createElement("div");
    mark.className = "version";
    const at = chart.valToPos(time, "x");
    mark.style.left = `${at}px`;
    if (at - labelAt > LABEL_WIDTH) {
      [label, labelAt] = [mark, at];
      mark.textContent = `v${number}`;
    } else {
      label.textContent += `, v${number}`;
    }
    chart.over.append(mark);
  }
}

async function drawCharts(area) {
  const answer = await fetch(area.dataset.batches);
  if (!answer.ok) return;
  const batches = await answer.json();
  for (const box of area.querySelectorAll(".chart")) {
    const names = box.dataset.series.split(",");
    box.versions = batches.versions;
    const data = [batches.time, ...names.map((name) => batches[name])];
    if (box.chart) box.chart.setData(data);
    else box.chart = createChart(box, names, data);
  }
}

function resizeCharts(area) {
  for (const box of area.querySelectorAll(".chart")) {
    if (box.chart) box.chart.setSize({ width: box.clientWidth, height: 190 });
  }
}

const area = document.querySelector("[data-batches]");
if (area) {
  drawCharts(area);
  setInterval(() => { if (!document.hidden) drawCharts(area).catch(() => {}); }, REFRESH_MS);
  addEventListener("resize", () => resizeCharts(area));
}
for (const form of document.querySelectorAll("form[data-busy]")) {
  form.addEventListener("submit", () => { document.querySelector(".busy").textContent = form.dataset.busy; });
}

// The public format of charts (E2B's extractor), drawn anew: no picture of it is needed, and no code of it runs.

import { h, plain, svg, table } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 320, 64, 16, 28, 48];
const COLOURS = ["var(--accent)", "#b4690e", "#7c4dbe", "#c0392b", "#2f6fb5", "#5d7a1f"];

export function chart(data) {
  const drawn = data.type === "bar" ? bars(data) : data.type === "line" || data.type === "scatter" ? lines(data) : undefined;
  if (!drawn) return undefined;
  const title = plain(data.title ?? `${data.type} chart`);
  return h("details", {}, h("summary", {}, "The chart in numbers"), svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
    svg("text", { x: WIDTH / 2, y: 18, "text-anchor": "middle" }, title),
    svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, plain(data.x_label ?? "")),
    svg("text", { x: 12, y: HEIGHT / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${HEIGHT / 2})` }, plain(data.y_label ?? "")), drawn.marks),
  table("Numbers of the chart", drawn.heads, drawn.rows.slice(0, 500).map((row) => h("tr", {}, row.map((cell) => h("td", { class: "number" }, plain(cell)))))));
}

const number = (value) => (Number.isFinite(Number(value)) ? Number(value) : undefined);
const short = (value) => (Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(Number(value.toFixed(3))));

function scale(values, from, to, zero) {
  const low = Math.min(...values, ...(zero ? [0] : []));
  const high = Math.max(...values, ...(zero ? [0] : []));
  const width = high - low || 1;
  const at = (value) => from + ((value - low) / width) * (to - from);
  return Object.assign(at, { ticks: Array.from({ length: 5 }, (_, index) => low + (width * index) / 4) });
}

function axes(x, y) {
  const base = HEIGHT - BOTTOM;
  return [
    svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: base, y2: base }), svg("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: base }),
    y.ticks.map((tick) => [svg("line", { class: "axis", x1: LEFT - 4, x2: LEFT, y1: y(tick), y2: y(tick) }), svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick))]),
    x?.ticks.map((tick) => svg("text", { x: x(tick), y: base + 16, "text-anchor": "middle" }, short(tick))),
  ];
}

function lines(data) {
  const series = data.elements.slice(0, 20).map((element) => ({
    label: plain(element.label ?? ""),
    points: (Array.isArray(element.points) ? element.points : []).slice(0, 5000).map(([x, y], index) => [number(x) ?? index, number(y), x]).filter(([, y]) => y !== undefined),
  })).filter(({ points }) => points.length);
  if (!series.length) return undefined;
  const all = series.flatMap(({ points }) => points);
  const x = scale(all.map(([value]) => value), LEFT, WIDTH - RIGHT);
  const y = scale(all.map(([, value]) => value), HEIGHT - BOTTOM, TOP);
  const marks = series.map(({ points }, index) => (data.type === "scatter"
    ? points.map(([a, b]) => svg("circle", { cx: x(a), cy: y(b), r: 2.5, fill: COLOURS[index % COLOURS.length] }))
    : svg("polyline", { points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "), fill: "none", stroke: COLOURS[index % COLOURS.length], "stroke-width": 2 })));
  return { marks: [axes(x, y), marks], heads: ["Series", "x", "y"], rows: series.flatMap(({ label, points }) => points.map(([, b, a]) => [label, a, b])) };
}

function bars(data) {
  const all = data.elements.slice(0, 200).map((element) => ({ label: plain(element.label ?? ""), group: plain(element.group ?? ""), value: number(element.value) })).filter(({ value }) => value !== undefined);
  if (!all.length) return undefined;
  const y = scale(all.map(({ value }) => value), HEIGHT - BOTTOM, TOP, true);
  const step = (WIDTH - LEFT - RIGHT) / all.length;
  const groups = [...new Set(all.map(({ group }) => group))];
  const marks = all.map(({ label, group, value }, index) => {
    const [at, other] = [y(value), y(0)];
    return [svg("rect", { x: LEFT + step * index + step * 0.15, y: Math.min(at, other), width: step * 0.7, height: Math.abs(other - at), fill: COLOURS[groups.indexOf(group) % COLOURS.length] }),
      all.length <= 20 && svg("text", { x: LEFT + step * (index + 0.5), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, label.slice(0, 12))];
  });
  return { marks: [axes(undefined, y), marks], heads: ["Label", "Group", "Value"], rows: all.map(({ label, group, value }) => [label, group, value]) };
}

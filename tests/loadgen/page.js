// What stands at the end of a report page that tests/loadgen/page.sh opens in a browser: reads the curves back from
// what the browser made of them, computes the same from the records of `--json --save-detailed` (`records`), and puts
// a line per check into the page.
'use strict';

// The plot's frame in html.c, and what two digits after the point may be off.
const LEFT = 60, RIGHT = 890, TOP = 10, BASE = 210, ROUNDED = 0.0051, POINTS_MAX = 400, LAG_S = 0.2;
const lines = [];
const check = (what, holds) => lines.push((holds ? 'ok      ' : 'FAILED  ') + what);

const looked = new Set();

// From zero on, each at its place, a step of 1, 2 or 5 times a power of ten apart, and enough of them.
function round(ticks, max, place) {
    const step = max > 0 ? ticks[1].value : 1, digit = step / 10 ** Math.floor(Math.log10(step * (1 + 1e-9)));
    return [1, 2, 5].some(d => Math.abs(digit - d) < 1e-6) && ticks.length >= (max > 0 ? 3 : 1) && ticks.length <= 12 &&
        ticks.every((tick, i) => Math.abs(tick.value - i * step) <= 1e-9 * max &&
            (max === 0 || Math.abs(tick.place - place(tick.value)) <= 0.1)) && max - ticks[ticks.length - 1].value < step;
}

// A curve's points in its axes' own units, with how far each may be off.
function read(name) {
    const curves = [...document.querySelectorAll(`polyline[data-metric="${name}"]`)];
    if (curves.length === 0)
        return null;
    const axes = curves[0].ownerSVGElement, xMax = Number(axes.dataset.xMax), yMax = Number(axes.dataset.yMax);
    const style = getComputedStyle(curves[0]);
    check(`${name} can be seen`, curves.some(curve => curve.getBoundingClientRect().width > 0 && curve.getTotalLength() > 0) &&
        style.stroke !== 'none' && style.visibility === 'visible' && Number(style.strokeOpacity) === 1 &&
        style.strokeLinecap === 'round');
    looked.add(name);
    const ticks = which => [...axes.querySelectorAll(`text.${which}`)].map(text => ({
        value: Number(text.textContent), place: Number(text.getAttribute(which)) - (which === 'y' ? 4 : 0)}));
    check(`${name}: the axes' labels are round numbers of its scale`,
        round(ticks('x'), xMax, x => LEFT + x / xMax * (RIGHT - LEFT)) && round(ticks('y'), yMax, y => BASE - y / yMax * (BASE - TOP)));
    // One that stands alone is a line to itself.
    const points = curves.flatMap(curve => [...curve.points].slice(0, curve.points.length === 2 &&
        curve.points[0].x === curve.points[1].x && curve.points[0].y === curve.points[1].y ? 1 : undefined));
    return {
        xMax, yMax, span: Number(axes.dataset.span), xSlack: ROUNDED / (RIGHT - LEFT) * xMax, ySlack: ROUNDED / (BASE - TOP) * yMax,
        points: points.map(point => ({x: (point.x - LEFT) / (RIGHT - LEFT) * xMax,
            y: (BASE - point.y) / (BASE - TOP) * yMax})),
    };
}

const near = (a, b, slack) => Math.abs(a - b) <= slack + 1e-6 * Math.abs(b);

// numpy's: linear between the two nearest.
function percentile(sorted, percent) {
    const rank = (sorted.length - 1) * percent / 100, low = Math.floor(rank);
    return sorted[low] + (rank - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

const sort = values => values.slice().sort((a, b) => a - b);

function checkDistribution(name, values) {
    const curve = read(name), sorted = sort(values), count = sorted.length;
    const points = Math.min(count, POINTS_MAX);
    if (!curve) {
        check(`${name} is drawn`, count === 0);
        return;
    }
    check(`${name} ends at its P99.9`, near(curve.xMax, percentile(sorted, 99.9), 1e-3) &&
        near(curve.xMax, records[`p99.9_${name}_ms`], 1e-3));
    check(`${name}: ${points} points of ${count} values`, curve.points.length === points &&
        curve.points.every((point, i) => {
            const at = points > 1 ? Math.floor(i * (count - 1) / (points - 1)) : 0;
            return near(point.x, Math.min(sorted[at], curve.xMax), curve.xSlack + 1e-3) &&
                near(point.y, 100 * (at + 1) / count, curve.ySlack);
        }));
}

// `expected(from, to)` of each span, null: a gap; a point stands in the middle of its span.
function checkSpans(name, expected) {
    const curve = read(name), width = curve.span, count = Math.round(curve.xMax / width), points = curve.points.slice();
    let bad = -1, gaps = 0;
    for (let i = 0; i < count && bad < 0; i++) {
        const right = expected(i * width, (i + 1) * width);
        gaps += right === null;
        if (right === null)
            continue;
        const point = points.shift();
        if (!point || !near(point.x, (i + 0.5) * width, curve.xSlack) || !near(point.y, right, curve.ySlack + 1e-3))
            bad = i;
    }
    check(`${name}: ${count} spans of ${width.toFixed(1)} s, ${gaps > 0 ? 'some' : 'none'} empty` +
        (bad < 0 ? '' : `, not the one at ${bad}`), bad < 0 && points.length === 0);
}

// What came until the end of each span lies between two counts, and in the end it is all.
function checkUntil(name, least, most, all) {
    const curve = read(name), width = curve.xMax / curve.points.length;
    let sum = 0;
    const bad = curve.points.findIndex((point, i) => {
        sum += point.y * width;
        const slack = (i + 1) * curve.ySlack * width, edge = (i + 1) * width;
        return sum < least(edge) - slack || sum > most(edge) + slack;
    });
    check(`${name}: by each of ${curve.points.length} spans` + (bad < 0 ? '' : `, not the one at ${bad}`), bad < 0);
    check(`${name}: ${all} in all`, near(sum, all, curve.points.length * curve.ySlack * width));
}

const r = records, all = r.ttfts.map((_, i) => i), sum = values => values.reduce((a, b) => a + b, 0);
const within = (values, from, to) => values.filter(value => value >= from - 1e-9 && value < to - 1e-9).length;
const due = all.map(i => r.arrival_times[i]), first = all.map(i => r.start_times[i] + r.ttfts[i]);
const last = all.map(i => r.start_times[i] + r.latencies[i]);
const ofSpan = (values, percent) => (from, to) => {
    const chosen = sort(all.filter(i => due[i] >= from - 1e-9 && due[i] < to - 1e-9).map(i => values[i]));
    return chosen.length ? percentile(chosen, percent) : null;
};
const ttftDue = all.map(i => 1000 * (r.ttfts[i] + r.queue_times[i])), e2elDue = all.map(i => 1000 * (r.latencies[i] + r.queue_times[i]));

check('all requests were completed', r.completed === r.num_prompts && all.length === r.num_prompts);
checkDistribution('ttft', r.ttfts.map(s => 1000 * s));
checkDistribution('e2el', r.latencies.map(s => 1000 * s));
checkDistribution('itl', r.itls.flat().map(s => 1000 * s));
checkDistribution('tpot', all.filter(i => r.output_lens[i] > 1).map(i => 1000 * (r.latencies[i] - r.ttfts[i]) / (r.output_lens[i] - 1)));
checkDistribution('ttft_including_client_queue', ttftDue);
checkDistribution('e2el_including_client_queue', e2elDue);
checkSpans('arrivals_over_time', (from, to) => within(due, from, to) / (to - from));
checkSpans('sent_over_time', (from, to) => within(r.start_times, from, to) / (to - from));
checkSpans('failed_over_time', () => 0);
checkSpans('ttft_p50_over_time', ofSpan(ttftDue, 50));
checkSpans('ttft_p99_over_time', ofSpan(ttftDue, 99));
checkSpans('e2el_p50_over_time', ofSpan(e2elDue, 50));
checkSpans('e2el_p99_over_time', ofSpan(e2elDue, 99));
// A request's end comes after its last token, and how many tokens a chunk held is not in the records.
checkUntil('completed_over_time', edge => within(last, 0, edge - LAG_S), edge => within(last, 0, edge), r.completed);
checkUntil('tokens_over_time', edge => sum(all.filter(i => last[i] < edge - LAG_S).map(i => r.output_lens[i])),
    edge => sum(all.filter(i => first[i] <= edge).map(i => r.output_lens[i])), r.total_output_tokens);
check('every curve was looked at', looked.size === 15 && [...document.querySelectorAll('polyline')].every(curve => looked.has(curve.dataset.metric)));

const told = document.createElement('pre');
told.id = 'checks';
told.textContent = '\n' + lines.join('\n') + '\n';
document.body.append(told);

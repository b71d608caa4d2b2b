#!/usr/bin/env python3
"""That the pages are what the records make of them, and what records are made of: tests/bench/results_test.py"""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(sys.path.pop(0))  # Python's own tokenize goes before ours
import unittest
from unittest import mock

import gpu
import gpu_experts
import gpu_jobs
import gpu_latency
import record
import results
import techniques

HERE = os.path.dirname(os.path.abspath(__file__))


def some(rows, **more):
    return {"command": "tests/x.py", "commit": "abc", "date": "2026-01-01", "machine": "one GPU", "rows": rows, **more}


class Pages(unittest.TestCase):
    def test_they_are_what_the_records_make_of_them(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "results.py"), "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_every_run_and_row_is_told_what_is_short_in_bold(self):
        text = results.page({"gpu": some([record.row("a|b", "5 us", "4 us", good=False)], read_gb_s=4651),
                             "serve": some([record.row("c", "6 us")])})
        self.assertIn("| gpu | a\\|b | **5 us** | 4 us |  |", text)
        self.assertIn("| serve | c | 6 us |  |  |", text)
        self.assertIn("- **gpu**: `tests/x.py`, commit abc, 2026-01-01, one GPU, read rate 4,651 GB/s", text)

    def test_records_of_one_run_are_told_once(self):
        text = results.page({"gpu-b": some([record.row("x", "1")], date="2026-01-01 00:02 UTC"),
                             "gpu-a": some([record.row("y", "2")], date="2026-01-01 00:01 UTC"),
                             "gpu-c": some([record.row("z", "3")], commit="def")})
        self.assertIn("- **gpu-a**, **gpu-b**: `tests/x.py`, commit abc, 2026-01-01 00:01 UTC to 2026-01-01 00:02 UTC, one GPU\n", text)
        self.assertIn("- **gpu-c**: `tests/x.py`, commit def, 2026-01-01, one GPU\n", text)

    def test_a_long_record_is_cut_and_says_so(self):
        text = results.page({"gpu": some([record.row(f"row {i}", "1") for i in range(40)])})
        self.assertIn(f"and {40 - results.ROWS_MAX} more", text)
        self.assertNotIn("row 39", text)

    def test_what_was_not_measured_is_told_so(self):
        self.assertEqual(results.figures({}).count("not measured"), len(results.HEADLINES))
        text = results.figures({"gpu": some([record.row("decode, batch 256", "9 tok/s (1 ms, 5 steps)", "8")])})
        self.assertIn("| 8B decode, batch 256 | 9 tok/s | 8 |", text)


    def test_each_technique_has_its_figures_its_test_or_is_not_measured(self):
        timed = sum(not isinstance(rows, str) for *_, rows in techniques.ROWS)
        self.assertEqual(techniques.page({}).count("| not measured |"), timed)
        text = techniques.page({"programs": some([record.row("gemm 4096, gains", "1 %"), record.row("gemm 4096", "785"),
                                                  record.row("gemm 8192", "700")])})
        self.assertIn("| `bench_programs` | gemm 4096: 785; gemm 8192: 700 |", text)
        self.assertIn("| `bench_programs` | gemm 4096, gains: 1 % |", text)
        self.assertEqual(len(re.findall(r"^\| [^-]", text, re.MULTILINE)), len(techniques.ROWS) + 1)


class Records(unittest.TestCase):
    def test_one_is_kept_where_asked_for_and_only_there(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"SLUICE_COMMIT": "c0ffee"}):
            os.environ.pop("SLUICE_RECORDS", None)
            record.keep("x", [record.row("a", "1")])
            self.assertEqual(os.listdir(folder), [])
            os.environ["SLUICE_RECORDS"] = folder
            record.keep("x", [record.row("a", "1"), record.row("it ended", "")])
            with open(os.path.join(folder, "x.json")) as file:
                kept = json.load(file)
        self.assertEqual((kept["commit"], len(kept["rows"]), kept["read_gb_s"]), ("c0ffee", 1, None))

    def test_any_program_s_last_lines_can_be_kept_with_its_status(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, os.path.join(HERE, "record.py"), "x", "--as", "tests/y.sh", "sh", "-c",
                                   "echo ratio: 1.5; exit 3"], capture_output=True, text=True,
                                  env={**os.environ, "SLUICE_RECORDS": folder})
            with open(os.path.join(folder, "x.json")) as file:
                kept = json.load(file)
        self.assertEqual((done.returncode, done.stdout), (3, "ratio: 1.5\n"))
        self.assertEqual((kept["command"], kept["rows"]), ("tests/y.sh", [record.row("ratio", "1.5", good=False)]))

    def test_floors_of_two_sizes_are_in_proportion(self):
        with mock.patch.dict(gpu.limits, {"read": 1e12, "flops": 1e15}):
            self.assertAlmostEqual(gpu.floor_rate(128, weights=1e10, kv=1e5), 2 * gpu.floor_rate(128, weights=2e10, kv=2e5))
            self.assertAlmostEqual(gpu.floor_rate(1, weights=1e10, kv=0), 100)
            self.assertAlmostEqual(gpu.floor_rate(10000, weights=1e10, kv=0), 1e5)

    def test_a_mixture_reads_the_experts_that_some_row_takes(self):
        plain = {"parameters": 130, "step_parameters": 100, "vocabulary": 10, "hidden": 3, "experts": 0, "experts_per_token": 0}
        self.assertEqual(gpu.step_bytes(plain, 64), 200)
        mixed = dict(plain, experts=8, experts_per_token=2, parameters=1030)  # 1,200 of experts, of which a token takes 300
        self.assertAlmostEqual(gpu.step_bytes(mixed, 1), 2 * 100)
        self.assertAlmostEqual(gpu.step_bytes(mixed, 2), 2 * (100 + 225))
        self.assertAlmostEqual(gpu.step_bytes(mixed, 1000), 2 * (100 + 900))
        narrow = dict(mixed, formats={"weights": {"bf16": 2 * mixed["vocabulary"] * mixed["hidden"],
                                                  "e4m3": mixed["parameters"] - mixed["vocabulary"] * mixed["hidden"]}})
        self.assertAlmostEqual(gpu.step_bytes(narrow, 2), 100 + 225)
        beside = dict(mixed, parameters=870, step_parameters=240,  # 800 of experts in four bits, 40 beside them in 16
                      formats={"weights": {"bf16": 2 * (30 + 40), "mxfp4": 400}})
        self.assertAlmostEqual(gpu.step_bytes(beside, 1), 2 * 40 + 100)
        self.assertAlmostEqual(gpu.step_bytes(beside, 2), 2 * 40 + 175)


class Families(unittest.TestCase):
    """What gpu.py measures beside the 8B."""

    MODELS = os.path.join(HERE, "../../gpu/models")
    BEFORE = {"llama", "mistral", "qwen2", "qwen3"}  # that have rows of their own, or had none asked for

    LARGE = {"glm4_moe"}  # whose least published one is more than a device holds
    HEADS = {"eagle3"}  # that guess for other models, measured by bench_step --draft
    ALIKE = {"granite_moe_shared"}  # granite_moe with an MLP beside

    def text(self, name):
        with open(os.path.join(self.MODELS, name)) as file:
            return file.read()

    def shapes(self):
        source = re.sub(r'"\s+"', "", self.text("synthetic.c")).replace('\\"', '"')
        return dict(re.findall(r'\{"([^"]+)",[^{]*"\{"architectures":\["(\w+)"\]', source))

    def test_each_family_has_a_shape_that_is_measured(self):
        shapes, lacking = self.shapes(), []
        self.assertEqual(shapes["llama-3.1-8b"], "LlamaForCausalLM")
        measured = {shapes.get(name.partition(":")[0]) for name in gpu.FAMILIES}
        self.assertNotIn(None, measured)
        files = {name: self.text("families/%s.c" % name) for name in re.findall(r"FAMILY\((\w+)\)", self.text("families/families.def"))}
        said = {name: dict(re.findall(r'\.(\w+) = "(\w+)"', text)) for name, text in files.items()}
        # what a measured one has as its text's part is the same model
        texts = {of.get("text_type") for of in said.values() if of.get("architecture") in measured}
        for name, of in said.items():
            if name not in self.BEFORE | self.LARGE | self.HEADS | self.ALIKE and of["architecture"] not in measured and of["type"] not in texts:
                lacking.append(name)
        self.assertEqual(lacking, [])


class Experts(unittest.TestCase):
    """What gpu.py says of a layer's experts."""

    FORM = "%-14s %-7s %5u rows, %-8s %5.1f experts: route %7.1f, segments %6.1f, products %9.1f, sum %6.1f us; " \
           "%5.0f GB/s = %4.1f %% of the read rate, %4.0f TFLOP/s"

    def good(self, distinct, rate, dense):
        lines, rows = [], []
        for size in (64, 2048, 8192):
            for skew in ("uniform", "zipf", "alike"):
                lines.append(self.FORM % ("qwen3-30b-a3b", "16 bits", size, skew, distinct if size == 64 else 128, 9, 8,
                                          size / 4, 7, 4000, 88.5, rate))
        lines.append("qwen3-30b-a3b  a dense product of 65536 rows: %.0f TFLOP/s" % dense)
        gpu_experts.layer_rows("\n".join(lines), 128, lambda *given: rows.append(given))
        self.assertEqual(len(rows), 4)
        self.assertIn("zipf 512.0 us, 128.0 experts, 88.5 % of the read rate", rows[3][1])
        return [given[3] for given in rows[:2]]

    def test_a_layer_is_held_to_the_experts_taken_and_to_a_dense_product(self):
        self.assertEqual(self.good(122, 490, 700), [True, True])
        self.assertEqual(self.good(121, 489, 700), [False, False])

    def test_the_lines_are_those_that_the_program_prints(self):
        with open(os.path.join(HERE, "kernels_experts.cu")) as file:
            text = re.sub(r'"\s+"', "", file.read())
        self.assertIn(self.FORM + "\\n", text)
        self.assertIn("a dense product of %u rows: %.0f TFLOP/s\\n", text)


class Latency(unittest.TestCase):
    """What gpu.py says of loads."""

    def setUp(self):
        self.rows = []

    def row(self, *row):
        self.rows.append(row)

    def rate(self, ttft, failed=0):
        """Of three runs, whose first tokens' 99th percentiles are these."""
        answers = [{"completed": 5, "failed": failed, "unsent": 0,
                    **{gpu_latency.key_of(metric): 1 for metric in gpu_latency.METRICS},
                    "p99_ttft_including_client_queue_ms": value} for value in (0, *ttft)]  # the first warms up
        program = "import os, sys\nwith open(sys.argv[sys.argv.index('--json') + 1], 'w') as file:\n    file.write(%r)"
        daemon = mock.Mock()
        daemon.command.side_effect = lambda *args: [sys.executable, "-c", program % json.dumps(answers.pop(0)), *args]
        gpu_latency.rate(daemon, self.row, 10, 1, len(ttft))
        return self.rows[-1]

    def test_a_rate_is_judged_by_the_median_of_its_seeds(self):
        what, figure, _, good = self.rate((500, 70, 80))
        self.assertIn("10 requests/s", what)
        self.assertIn("1 / 80 ms; 1 ms; 1 / 1 ms (15 requests", figure)
        self.assertTrue(good)
        self.assertFalse(self.rate((500, 70, 91))[3])

    def test_what_fails_is_no_figure(self):
        with self.assertRaisesRegex(RuntimeError, "1 failed"):
            self.rate((1, 1, 1), failed=1)

    def test_the_peer_s_arrivals_are_its_own_and_its_figures_the_measure(self):
        loads = gpu_latency.peer_arrivals()
        for rate, load in loads.items():  # within three deviations of what the rates and lengths say
            mean = rate * gpu_latency.PEER_SECONDS
            self.assertLess(abs(len(load) - mean), 3 * mean**0.5)
            self.assertEqual([at for at, _, _ in load], sorted(at for at, _, _ in load))
            self.assertTrue(all(512 <= tokens <= 1536 and 64 <= out <= 192 for _, tokens, out in load))
        figures = dict(zip(gpu_latency.METRICS, gpu_latency.PEER[20]))
        answer = {"completed": 1, **{gpu_latency.key_of(metric): value for metric, value in figures.items()}}
        for change, good in ((0, True), (1, False)):
            answer["p99_itl_ms"] = figures["p99_itl"] + change
            with mock.patch.object(gpu_latency, "bench", lambda *args: answer):
                gpu_latency.beside_peer(None, self.row, 20)
            self.assertEqual(self.rows[-1][3], good)

    def test_a_full_load_is_told_without_its_ends(self):
        answer = {"start_times": [0] * 10, "latencies": [9, 10, 10.5, 11, 11.5, 12, 12.5, 13, 90, 99]}
        self.assertAlmostEqual(gpu_latency.middle_rate(answer), 5 / 2.5)

    def test_each_row_is_selected_by_name(self):
        done = []
        with mock.patch.object(gpu, "Daemon"), mock.patch.object(gpu, "latency", lambda daemon, name, args: done.append(name)):
            gpu.latency_run("", gpu.LATENCY, None, [])
        self.assertEqual(sorted(done), sorted(gpu.LATENCY))


class Jobs(unittest.TestCase):
    """What gpu_jobs.py says of a model beside a flood."""

    def rows(self, loaded, held, free, rate=20):
        """Alone 5,000 us in all; microseconds, as histograms have them: of a bucket its edge."""
        def gaps(us, copied=0.0):
            bucket = next(bucket for bucket in range(10000) if gpu.edge(bucket) >= us)
            return gpu_jobs.Gaps(gpu.Hist(100, 100 * us, {bucket: 100}), copied)
        runs = [(gaps(5000), gaps(loaded, rate), [gaps(us, 25.0) for us in held]), (gaps(5000), gaps(loaded, 20.0), [gaps(us, 50.0) for us in free])]
        rows = []
        with mock.patch.object(gpu_jobs, "beside_floods", lambda *args: runs.pop(0)):
            gpu_jobs.beside(None, None, lambda *row: rows.append(row), None)
        return rows

    def test_a_flood_at_its_rate_may_cost_so_much_and_has_to_have_run(self):
        same = [5000] * 3
        self.assertTrue(self.rows(5500, same, same)[0][3])
        self.assertFalse(self.rows(6000, same, same)[0][3])
        self.assertFalse(self.rows(5500, same, same, rate=18)[0][3])

    def test_priority_and_budget_are_worth_what_one_flood_shows_beyond_a_bucket(self):
        self.assertTrue(self.rows(5000, [5000, 5000, 5100], [5000, 5100, 6000])[1][3])
        self.assertFalse(self.rows(5000, [5000, 5000, 6000], [5000, 5100, 6000])[1][3])
        self.assertIn("1200: +0.0 % (mean +2.0 %, 25.0 GB/s), without +17.5 % (mean +20.0 %, 50.0 GB/s)",
                      self.rows(5000, [5000, 5000, 5100], [5000, 5100, 6000])[1][1])


if __name__ == "__main__":
    unittest.main()

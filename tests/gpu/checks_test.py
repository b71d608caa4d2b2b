#!/usr/bin/env python3
"""The GPU checks' own logic, where there is no GPU: tests/gpu/checks_test.py BUILD

What compute-sanitizer says is told apart by its wording, what is served by its values: both are tried on output with
and without something wrong in it, the second on the CPU device as it is, and mistaken on purpose.
"""

import copy
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import operate
import sanitize
import sanitizer
import served

BUILD = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else ".build/dev")

CLEAN = """========= COMPUTE-SANITIZER
compute per step: 1.0 us
========= ERROR SUMMARY: 0 errors
"""
RACE_CLEAN = """========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
REPORTS = {
    "memcheck": """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at planted_overrun_kernel(char *, unsigned long)+0x50
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7f3a24a00000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3a249e0000 of size 131,072 bytes
========= ERROR SUMMARY: 1 error
""",
    "racecheck": """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at gemm_race_kernel(volatile unsigned int *)+0x70
=========     and Read access at gemm_race_kernel(volatile unsigned int *)+0xb0 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
""",
    "initcheck": """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at planted_unwritten_kernel(volatile unsigned int *)+0x30
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
""",
    "synccheck": """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block
=========     at planted_barrier_kernel(volatile unsigned int *)+0x40
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 48 errors
""",
}


class Output(unittest.TestCase):
    def test_what_found_nothing_is_clean(self):
        self.assertTrue(sanitizer.clean(CLEAN) and sanitizer.clean(RACE_CLEAN))

    def test_what_found_something_or_did_not_end_is_not(self):
        for output in (*REPORTS.values(), "", CLEAN.splitlines()[0], CLEAN.replace("0 errors", "1 error"),
                       CLEAN + "========= Internal Sanitizer Error\n"):
            self.assertFalse(sanitizer.clean(output), output)

    def test_each_tool_s_planted_fault_is_known_by_its_report(self):
        for tool, output in REPORTS.items():
            _, kernel, words = sanitizer.PLANTED[tool]
            self.assertTrue(sanitizer.reported(output, kernel, words), tool)

    def test_nothing_else_is_taken_for_it(self):
        for tool, output in REPORTS.items():
            _, kernel, words = sanitizer.PLANTED[tool]
            for other in (CLEAN, RACE_CLEAN, "", output.replace(kernel, "another_kernel"), re.sub(words, "Something else", output),
                          *(text for name, text in REPORTS.items() if name != tool)):
                self.assertFalse(sanitizer.reported(other, kernel, words), (tool, other))

    def test_every_tool_has_a_planted_fault(self):
        self.assertEqual(set(sanitizer.PLANTED), set(sanitizer.TOOLS))


class Names(unittest.TestCase):
    def hidden(self, text):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\0\1" + text.encode() + b"\0\2")
            file.flush()
            return sanitizer.hidden(file.name)

    def test_kernels_of_ours_are_not_hidden_by_common_words(self):
        for name in ("_Z16gemm_race_kernelPVj", "_Z11gemm_kernelPf", "_Z14cublas_like_opv", "_Z9nvjet9opv"):
            self.assertEqual(self.hidden(name), [])

    def test_a_kernel_that_would_be_hidden_is_named(self):
        for name in ("nvjet_sm90_tst_128x64", "_ZN7cutlass6KernelIiEEvi", "_ZN8cublasLt19splitKreduce_kernelE"):
            self.assertEqual(self.hidden(name), [name])

    def test_no_exclusion_is_a_common_word(self):
        self.assertTrue(all("_" in part and len(part) > 5 for part in sanitizer.LIBRARY))

    def test_what_the_product_is_built_of_is_not_hidden(self):
        for name in ("gpu/sluice-cuda.so", "tests/gpu/kernels/test_kernels_cuda"):
            path = os.path.join(BUILD, name)
            if not os.path.exists(path):
                print(f"SKIPPED {self._testMethodName}: {name} is not built here")
                self.skipTest("not built")
            self.assertEqual(sanitizer.hidden(path), [])


class Clients(unittest.TestCase):
    def test_results_come_in_the_order_of_what_was_asked(self):
        self.assertEqual(served.whole([{"index": 1}, {"index": 0}], 0), [{"index": 0}, {"index": 1}])

    def test_an_answer_that_ended_in_error_is_no_result(self):
        for wrong in ({"index": 0, "finish_reason": "error"}, {"index": 0, "error": {"code": "device"}}):
            self.assertRaises(RuntimeError, served.whole, [wrong], 0)

    def test_a_client_that_ended_in_error_has_no_results(self):
        self.assertRaises(RuntimeError, served.whole, [{"index": 0, "finish_reason": "length"}], 1)


class Values(unittest.TestCase):
    """On the CPU device."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = served.Daemon(BUILD, "synthetic:tiny", device="cpu")
        cls.results = sanitize.served(cls.daemon)
        cls.again = {command: cls.daemon.run(command, lines)
                     for command, lines in sanitize.repeated(cls.results).items()}

    @classmethod
    def tearDownClass(cls):
        cls.assertEqual(cls(), cls.daemon.stop(), 0)

    def test_an_undisturbed_run_has_its_values(self):
        self.assertIsNone(sanitize.compare(self.results, self.again))

    def mistaken(self, change):
        results = copy.deepcopy(self.results)
        change(results)
        return sanitize.compare(results, self.again)

    def test_mistaken_values_are_seen(self):
        def one(results):
            results["generate"][9]["logprobs"][2] += 0.2

        def many(results):
            for result in results["generate"]:
                result["logprobs"] = [value + 0.06 for value in result["logprobs"]]

        def none(results):
            results["score"][1]["logprobs"][3] = float("nan")

        def embedding(results):
            results["embed"][2]["embedding"][7] += 0.1

        def missing(results):
            results["generate"].pop()

        def short(results):
            results["generate"][0]["tokens"].pop()

        for change in (one, many, none, embedding, missing, short):
            self.assertIsNotNone(self.mistaken(change), change.__name__)

    def test_a_request_that_fails_is_an_error(self):
        good = {"tokens": [1, 2, 3], "max_tokens": 2, "ignore_eos": True}
        self.assertEqual(len(self.daemon.run("generate", [good])), 1)
        with self.assertRaises(RuntimeError):
            self.daemon.run("generate", [good, {"tokens": [1, 99999], "max_tokens": 2}])


class Operated(unittest.TestCase):
    def test_buckets_are_counted_once_each(self):
        log = "".join(f"graph bucket: rows {rows}, context {context}, counts 0\n" for rows in range(3)
                      for context in range(2)) * 20 + "notice loop: ready\n"
        self.assertEqual(len(operate.buckets(log)), 6)
        self.assertEqual(operate.buckets("80 graphs"), set())


class Run(unittest.TestCase):
    """run.sh over programs that stand for ours."""

    def run_over(self, programs, *parts):
        with tempfile.TemporaryDirectory() as build:
            for name, text in programs.items():
                path = os.path.join(build, "tests", name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write("#!/bin/sh\n" + text)
                os.chmod(path, 0o755)
            with open(os.path.join(build, "nvidia-smi"), "w") as file:
                file.write("#!/bin/sh\nexit 9\n")
            os.chmod(file.name, 0o755)
            done = subprocess.run(["tests/gpu/run.sh", build, *parts], capture_output=True, text=True,
                                  env={**os.environ, "PATH": build + ":" + os.environ["PATH"]})
            return done.returncode, done.stdout

    GOOD = {"gpu/test_gpu_cuda": "echo '100%: Checks: 5, Failures: 0'"}

    def test_what_passes_and_what_is_not_there_are_named_and_counted(self):
        code, text = self.run_over(self.GOOD)
        self.assertEqual(code, 0)
        self.assertIn("ok      gpu/test_gpu_cuda: 100%: Checks: 5", text)
        self.assertIn("1 passed, 0 failed, 15 skipped", text)
        for name in ("gpu/kernels/test_kernels_cuda", "runtime/test_runtime_cuda_sticky", "sanitize.py"):
            self.assertEqual(text.count(f"SKIPPED {name}"), 2, name)

    def test_what_fails_is_named_whatever_else_passes(self):
        code, text = self.run_over({**self.GOOD, "gpu/test_more_cuda": "echo broken; exit 3"})
        self.assertEqual(code, 1)
        self.assertIn("FAILED  gpu/test_more_cuda: status 3\nbroken", text)
        self.assertIn("1 passed, 1 failed", text)

    def test_a_part_is_run_alone(self):
        code, text = self.run_over({**self.GOOD, "gpu/test_more_cuda": "exit 3"}, "sanitize")
        self.assertEqual((code, text.count("SKIPPED")), (77, 2), text)
        self.assertEqual(self.run_over(self.GOOD, "sanitise")[0], 2)

    def test_a_run_of_nothing_is_skipped(self):
        self.assertEqual(self.run_over({"gpu/test_gpu_cuda": "echo 'SKIPPED: no GPU here'; exit 77"})[0], 77)


class Tools(unittest.TestCase):
    def test_without_the_tools_it_is_skipped(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run([sys.executable, os.path.join(folder, "sanitize.py"), BUILD], capture_output=True,
                              text=True, env={**os.environ, "PATH": "/nowhere"})
        self.assertEqual((done.returncode, done.stdout[:8]), (77, "SKIPPED:"))

    def test_a_tool_that_does_not_report_what_was_planted_fails(self):
        """With something that stands for compute-sanitizer, over the CPU device."""
        for said, well in ((REPORTS["memcheck"], True), (CLEAN, False)):
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as tool:
                tool.write(f"cat << 'END'\n{said}END\nexit 9\n")
                tool.flush()
                with mock.patch.object(sanitizer, "command", lambda *_: ("bash", tool.name)), \
                        mock.patch.object(sanitize, "BUILD", BUILD), mock.patch("builtins.print"):
                    served.failures.clear()
                    sanitize.plant("memcheck")
                    self.assertEqual(not served.failures, well)
        served.failures.clear()


if __name__ == "__main__":
    unittest.main()

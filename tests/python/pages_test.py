"""The examples of client/python/README.md: each prints what stands behind its `#`."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from daemon_test import BUILD, TOP, Daemon
from peer import LIVE_S

PAGE = TOP / "client/python/README.md"
BLOCKS = re.findall(r"^```python( program)?\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


class Page(unittest.TestCase):
    def run_blocks(self, kind, *options):
        daemon = Daemon(*options)
        environment = {**os.environ, "SLUICE_SOCKET": daemon.path, "PYTHONPATH": str(TOP / "client/python")}
        try:
            for which, block in BLOCKS:
                if which.strip() != kind:
                    continue
                with self.subTest(block=block):
                    said = subprocess.run([sys.executable, "-c", block], env=environment, capture_output=True, text=True, timeout=LIVE_S)
                    expected = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.M)
                    self.assertEqual(len(expected), block.count("print("), "each print() says what it prints")
                    self.assertTrue(expected)
                    self.assertEqual((said.stderr, said.stdout.splitlines()), ("", expected))
        finally:
            status, log = daemon.stop()
        self.assertEqual(status, 0, log)

    def test_examples_with_a_model(self):
        self.assertGreaterEqual(len(BLOCKS), 8)
        self.run_blocks("", "--model", str(TOP / "deploy/demo-model"))

    def test_examples_with_a_program(self):
        self.run_blocks("program", "--program", str(pathlib.Path(BUILD, "gpu/programs/affine-cpu.so").resolve()))


if __name__ == "__main__":
    unittest.main()

"""How the tests of the Python client run: python3 tests/python/suite.py wire|session|peer|daemon [TEST...]

What could not be run is a line that begins with SKIPPED; where nothing but such was, the exit status is 77."""

import pathlib
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / "client/python"), str(TOP / "tests/python")]

if __name__ == "__main__":
    names = [f"{sys.argv[1]}_test.{test}" for test in sys.argv[2:]]
    tests = unittest.defaultTestLoader.loadTestsFromNames(names or [f"{sys.argv[1]}_test"])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1, buffer=False).run(tests)
    for test, reason in result.skipped:
        print(f"SKIPPED {test.id()}: {reason}")
    ran = result.testsRun - len(result.skipped)
    failed = len(result.failures) + len(result.errors)
    print(f"{ran - failed} passed, {failed} failed")
    if failed or result.testsRun == 0:
        sys.exit(1)
    sys.exit(0 if ran else 77)

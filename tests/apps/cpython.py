"""Runs tests of CPython by their names, quietly, and writes down what became of each: FILE NAME... [-LEFT_OUT...]"""
import faulthandler
import sys
import time
import unittest

from test import support


class Outcomes(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        # What tests print is kept from the terminal, as CPython's own runner does.
        self.buffer, self.file, self.began, self.outcome = True, file, None, None

    def startTest(self, test):
        super().startTest(test)
        self.began, self.outcome = time.monotonic(), "passed"

    def stopTest(self, test):
        super().stopTest(test)
        self.tell(test)
        self.began = None

    def tell(self, test):
        took = time.monotonic() - self.began if self.began else 0
        # Nothing may be left in the buffer: many tests fork.
        print(test.id(), self.outcome, f"{took:.2f}", sep="\t", file=self.file, flush=True)

    def became(outcome):
        def became(self, test, *_):
            self.outcome = outcome
            if not self.began:  # A module or class could not be prepared.
                self.tell(test)

        return became

    addError = addFailure = became("failed")
    addSkip = became("skipped")
    addExpectedFailure = became("failed as expected")
    addUnexpectedSuccess = became("passed unexpectedly")

    def addSubTest(self, test, subtest, error):
        if error:
            self.outcome = "failed"


def single(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from single(test)
        else:
            yield test


def main():
    names = [name for name in sys.argv[2:] if not name.startswith("-")]
    left_out = tuple(name[1:] for name in sys.argv[2:] if name.startswith("-"))
    # None of those that need the network, a gigabyte, or a screen.
    support.use_resources = []
    faulthandler.dump_traceback_later(240, exit=True)
    tests = single(unittest.defaultTestLoader.loadTestsFromNames(names))
    suite = unittest.TestSuite(test for test in tests if not test.id().startswith(left_out))
    with open(sys.argv[1], "w") as file:
        suite.run(Outcomes(file))


# Processes of multiprocessing import this file again.
if __name__ == "__main__":
    main()

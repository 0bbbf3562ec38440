# Ten tests, of which three are skipped.
# RUN: %python %s

import unittest


class CasesTest(unittest.TestCase):
    pass


for number in range(10):
    test = unittest.skipIf(number % 4 == 1, "one in four")(lambda self: None)
    setattr(CasesTest, f"test_{number}", test)

unittest.main()

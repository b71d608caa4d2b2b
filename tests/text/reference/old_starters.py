#!/usr/bin/env python3
"""Prints daemon/text/nfc_reference.def: the combining marks that the reference's normalisation takes for
starters, since its Unicode tables are older. Needs a Python whose unicodedata is of Unicode 14 (3.11)."""
import unicodedata

from tokenizers import normalizers


def main():
    nfc, ranges = normalizers.NFC().normalize_str, []
    for code in range(0x110000):
        combining = 0 if 0xD800 <= code < 0xE000 else unicodedata.combining(chr(code))
        if combining == 0 or unicodedata.decomposition(chr(code)):
            continue
        # An order that normalisation changes, if it knows the class of the mark.
        probe = "_" + chr(code) + "\u0334" if combining > 1 else "_\u0301" + chr(code)
        if nfc(probe) != probe:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    for first, last in ranges:
        print("OLD_STARTERS(0x%x, 0x%x)" % (first, last))


if __name__ == "__main__":
    main()

"""Half of tokenize.sh: makes the text, times the reference, runs our program, prints the ratio."""
import subprocess
import sys
import time

from tokenizers import Tokenizer

RUNS, SIZE = 7, 1 << 20


def main():
    program, data, folder = sys.argv[1:4]
    sys.path.insert(0, data + "/../reference")
    from strings import Strings

    strings, parts, size = Strings(5), [], 0
    while size < SIZE:
        parts.append(strings.next() + "\n")
        size += len(parts[-1].encode())
    text, path = "".join(parts), folder + "/mixed.txt"
    with open(path, "w", newline="") as out:
        out.write(text)
    print("%-8s %10s %12s %7s   (1 MiB, quickest of %d)" % ("style", "ours ms", "tokenizers ms", "ratio", RUNS))
    failed = False
    for style in sys.argv[4:]:
        name = "%s/%s.json" % (data, style)
        tokenizer = Tokenizer.from_file(name)
        best, count = float("inf"), 0
        for _ in range(RUNS):
            begin = time.perf_counter()
            count = len(tokenizer.encode(text).ids)
            best = min(best, (time.perf_counter() - begin) * 1000)
        ours, ids = subprocess.run([program, name, path], check=True, capture_output=True, text=True).stdout.split()
        if int(ids) != count:
            sys.exit("%s: %s ids, the reference has %d" % (style, ids, count))
        failed = failed or float(ours) * 2 > best
        print("%-8s %10.1f %12.1f %7.2f" % (style, float(ours), best, float(ours) / best))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Seeded test strings of every kind that tokenizers stumble over; code points of Unicode 14."""
import random
import unicodedata

SPECIAL = ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>",
           "<tool_call>", "</tool_call>", "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<0x41>",
           "<mask>", "word", "Éclair", "<l>", "<r>", "<0xE2>", "<|", "|>"]
LATER_SPECIAL = ["<start_of_turn>", "<end_of_turn>", "<bos>", "<unused1>", "<unused12>", "<table>", "<h1>", "[@BOS@]", "\n\n\n",
                 "▁▁▁", "</s>", "<s>", "<|user|>", "<|end|>", "<|assistant|>", "<|tag|>", "a<|tag|>", "<|im_start|>", "<|im_sep|>",
                 "<|im_end|>", "<|dummy_0|>", "<|endoftext|>", "<|tool|>", "<|/tool|>", "|||IP_ADDRESS|||", "<fim_prefix>",
                 "<|start_of_role|>", "<|end_of_role|>", "<file_sep>", "<think>", "</think>", "<tool_call>", "[gMASK]<sop>",
                 "[gMASK]", "<sop>", "<eop>", "<|system|>", "<|observation|>", "[MASK]", "<0xE2>", "<unk>", "<|", "|||"]
CODE = ["int main(void)\n{\n    return 0;\n}\n", "for (size_t i = 0; i < n; i++)\n\tsum += a[i];\n",
        "def f(x, *args, **kw):\n    return x ** 2 # square\n", "#include <stdio.h>\n",
        "if (a && b || !c) { goto out; }", "std::vector<std::pair<int, char>> v{{1, 'a'}};",
        "SELECT a.id, count(*) FROM t AS a WHERE a.x >= 10 GROUP BY 1;", "x = [i for i in y if i%2==0]",
        "<div class=\"a b\">&nbsp;</div>", "\\frac{1}{2}\\alpha^{n+1}", "{\"key\": [1, 2.5e-3, null]}",
        "let x: &'static str = \"hi\";", "0x1F & ~mask | (1<<3)", "a->b.c[3]--;", "\t\t\tbreak;\r\n",
        "https://example.org/a?b=c&d=%20e#f", "user@host:~$ ls -la | grep '^d'", "@Override public void"]
WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have "
         "from or had an they which one you were all her she there would their we him been has when "
         "who will no more if out so said what up its about than into them can only other time new "
         "some could these two may first then do any like my now over such our man me even most "
         "tokenizer daemon inference request kernel stream memory Buffer Queue HTTP JSON "
         "naïve café Straße Ångström déjà señor coöperate").split()
CONTRACTIONS = ["I'm", "don't", "we'll", "They'VE", "it'S", "you'd", "IT'S", "he’s", "'re", "'Tis", "'ſ", "K'S",
                "rock'n'roll", "o'clock", "'LL", "'''", "d'être", "'d've"]
CJK = ["你好，世界。", "今天天气不错", "東京都に行きました。", "カタカナとひらがな", "한국어 문장입니다.", "안녕하세요",
       "中文English混排123", "「引用」、『書名』", "ﾊﾝｶｸ", "１２３４５", "㈱㍻℃", "豈更車", "　全角　空白", "각", "각"]
EMOJI = ["👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇫🇷", "❤️‍🔥", "🏳️‍🌈", "1️⃣", "😀😃😄", "🧑🏿‍💻", "☕️", "👨‍🦰", "🫠", "©®™", "𝕳𝖊𝖑𝖑𝖔", "🅰🅱Ⓜ"]
MARKS = ["é", "é", "ñ", "ñ", "Å", "Å", "ậ", "ậ", "q̣̇", "q̣̇", "นี่", "กำ", "हिन्दी", "क्षि",
         "Z͑ͫ̓a̴̡", "ö̲", "ẛ̣", "ΐ", "ऩ", "ೊ", "가", "ཷ", "𑂚", "𝅗𝅥", "a֮\u1abf", "x\u0898\u0316\u0301"]
RTL = ["שלום עולם", "שָׁלוֹם", "مرحبا بالعالم", "اَلسَّلَامُ", "١٢٣٤", "۱۲۳", "\u202eabc\u202c", "سلام دنیا", "ﷺ", "עברית and English"]
SPACES = [" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u180e", "\u200b", "\u2028", "\u200d", "\ufeff", "\v", "\f", "\x1c"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "—", "–", "„“", "«»", "¿¡", "…", "·", "▁", "Ġ", "Ċ", "�"]


def assigned():
    return [c for c in range(0x110000)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")] + [0xE000, 0x10FFFD]


class Strings:
    def __init__(self, seed, special=SPECIAL):
        self.random = random.Random(seed)
        self.special_texts = special
        self.assigned = assigned()

    def spaces(self):
        r = self.random
        kind = r.choice([" ", " ", "\n", "\t", "mixed", "mixed"])
        count = int(2 ** r.uniform(0, 6.5))
        if kind == "mixed":
            return "".join(r.choice(SPACES[:5] if r.random() < 0.7 else SPACES) for _ in range(min(count, 12)))
        return kind * count

    def digits(self):
        r = self.random
        kind = r.random()
        if kind < 0.6:
            return str(r.randrange(10 ** r.randrange(1, 14)))
        if kind < 0.8:
            return "%d.%02d" % (r.randrange(100000), r.randrange(100))
        return "".join(r.choice(["½", "²", "٣", "Ⅷ", "①", "７", "𝟘", "1", "2", "৩", "〇", "㊿"]) for _ in range(r.randrange(1, 6)))

    def words(self):
        r = self.random
        out = []
        for _ in range(r.randrange(1, 7)):
            word = r.choice(WORDS)
            out.append(r.choice([word, word, word, word.capitalize(), word.upper()]))
        return " ".join(out)

    def unbroken(self):
        """A word longer than any other path than the long one takes."""
        r = self.random
        return "".join(r.choice(WORDS) for _ in range(r.randrange(8, 30)))

    def long(self):
        """Up to 8 KiB that end nowhere: a character, a word or a few of them, again and again, or any words."""
        r = self.random
        unit = r.choice([lambda: r.choice("a1-é你▁\n "), lambda: r.choice(WORDS), lambda: r.choice(WORDS) + r.choice(WORDS),
                         lambda: r.choice(CJK), lambda: "".join(r.choice("abcdefgh") for _ in range(r.randrange(2, 6)))])()
        whole = unit * (r.randrange(1000, 8000) // len(unit.encode()))
        if r.random() < 0.5:
            return whole
        return "".join(r.choice(WORDS + [unit]) for _ in range(r.randrange(200, 1500)))[:7000]

    def noise(self):
        r = self.random
        return "".join(chr(r.choice(self.assigned)) for _ in range(r.randrange(1, 9)))

    def low_noise(self):
        r = self.random
        return "".join(chr(r.randrange(0, 0x250)) for _ in range(r.randrange(1, 12)))

    def code(self):
        r = self.random
        text = r.choice(CODE)
        start = r.randrange(len(text))
        return text[start:start + r.randrange(4, 40)] if r.random() < 0.6 else text

    def special(self):
        r = self.random
        return r.choice(["", " ", "  ", "\n"]) + r.choice(self.special_texts) + r.choice(["", "", " ", " \n"])

    def marks(self):
        r = self.random
        if r.random() < 0.7:
            return r.choice(MARKS)
        low = [0x300, 0x301, 0x323, 0x327, 0x308, 0x345, 0x5b0, 0x5bc, 0x64b, 0x94d, 0x93c, 0x3099, 0x1dc0, 0x20d0]
        return r.choice("aeoqxcÅか") + "".join(chr(r.choice(low)) for _ in range(r.randrange(1, 7)))

    def piece(self):
        r = self.random
        kinds = [(self.words, 6), (self.spaces, 3), (self.digits, 2), (self.code, 3), (self.special, 2),
                 (self.noise, 2), (self.unbroken, 0.5), (self.low_noise, 1), (self.marks, 2),
                 (lambda: r.choice(CONTRACTIONS), 2), (lambda: r.choice(CJK), 2), (lambda: r.choice(EMOJI), 2),
                 (lambda: r.choice(RTL), 1), (lambda: r.choice(PUNCT) * r.choice([1, 1, 1, 2, 3, 9]), 2)]
        return r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()

    def next(self):
        r = self.random
        pieces = [self.piece() for _ in range(r.choice([1, 1, 2, 2, 3, 4]))]
        return r.choice(["", "", " "]).join(pieces)

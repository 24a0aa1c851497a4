"""Reads the number that an answer consists of.  A text that may mean another number has none."""

import decimal
import re

_MAX_CHARS = 400
# LaTeX and Markdown that only change how a number looks, and what they become.
_MARKUP = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"^\s*\$+(.+?)\$+\.?\s*$", r"\1"),
        (r"\{,\}|,\\!", ","),
        (r"\\(?:left|right|displaystyle)\b", ""),
        (r"\\\$", "$"),
        (r"\\[,;: ()\[\]]|\\(?:q?quad|thinspace)\b|(?<=[0-9])~", " "),
        (r"\^\s*(?:\\circ\b|\{\\circ\})|\\degree\b", "°"),
        (r"(?<!\w)(\*\*|__|[`\"*])([^`\"*_]*)\1(?!\w)", r"\2"),
    )
]
_APART = re.compile(r"[\t\r\n]|[0-9]\s{2,}[0-9]")  # perhaps two numbers
_BRACED = re.compile(r"(?:\\(?:(?:text|math)(?:rm|bf|it|sf)?|mbox|boxed|num)\s*)?\{([^{}]*)\}")
_MONEY = r"(?:(?:US|CA|AU|NZ|HK|[ACRS])?[$€£¥₹₩₽₺₪฿]|USD|EUR|GBP|JPY|CHF|INR|CNY|CAD|AUD)"
_NUMBER = re.compile(
    rf"""(?:(?:so\s|the\s|my\s|final\s)*answer(?:\sis\s?:?|\s?[:=])|[a-z]?\s?=)?\s?
    (?:{_MONEY}\s?)?
    (?P<sign>[-+\u2010-\u2015\u2212\ufe63\uff0d]|(?:minus|negative)(?![a-z]))?\s?
    (?:{_MONEY}\s?)?
    (?P<digits>
      (?:[1-9][0-9]{{0,2}}(?P<mark>[,\ ])[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*(?:\.[0-9]+)?
        |[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[-+]?[0-9]{{1,3}})?)
    (?P<unit>[^0-9.]*(?:\^[23])?)\.?""",
    re.VERBOSE | re.I,
)
# Units that leave a number as it is.  "5k" and "5m" may be thousands and millions, and "5%" a hundredth of 5.
_UNITS = frozenset(
    "mm cm dm m km nm in ft yd mi mg g kg lb oz ml cl dl l L ms s sec min h hr Hz kHz MHz GHz W kW kWh J kJ "
    "N Pa kPa V mol ha kB MB GB TB kph mph rpm inch foot yard mile metre meter kilometre kilometer "
    "centimetre centimeter millimetre millimeter gram kilogram kilo ounce pound ton tonne litre liter "
    "gallon second minute hour day week month months year °C °F C F degree celsius fahrenheit dollar "
    "euro rupee yen yuan point item unit person people child children man men woman women".split()
)
_PLURAL = re.compile(r"[a-z]{2,}[a-hj-rtv-z]s")  # such as "apples"
_AMOUNTS = re.compile(  # plurals that change a number
    r"(?:.*(?:illion|illiard|th)|thousand|hundred|dozen|lakh|lac|crore|myriad|googol|grand|mil|score|pair|couple"
    r"|third|halve|quarter|percent|time|zero|one|two|three|four|five|sixe|seven|eight|nine|ten|eleven|twelve"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)tie)e?s"
)


def read(text: str) -> decimal.Decimal | None:
    """The number in a text that is a number, perhaps with a sign, a currency, a unit, or "The answer is".

    None if the text is anything else: "5 million", "5!", "5%", "not 5", "6 or 7".  Commas or spaces may
    separate thousands, also in LaTeX.  Every digit is kept.
    """
    if len(text) > _MAX_CHARS or _APART.search(text):
        return None
    for pattern, by in _MARKUP:
        text = pattern.sub(by, text)
    before = ""
    while before != text:  # commands may be nested
        before, text = text, _BRACED.sub(r" \1 ", text)
    text = " ".join(text.split()).replace(" ^", "^").replace("° ", "°")
    enclosed = text.startswith("(") and text.endswith(")")
    found = _NUMBER.fullmatch(text[1:-1].strip() if enclosed else text)
    # "(5)" is minus five to accountants.
    if not found or (enclosed and not found["sign"]):
        return None
    unit, paid = found["unit"], re.search(_MONEY, found.string[: found.start("digits")], re.I)
    if not _is_unit(unit) or (paid and unit == " m"):
        return None
    number = decimal.Decimal(found["digits"].replace(found["mark"] or ",", ""))
    return number if found["sign"] in (None, "+") else number.copy_negate()


def _is_unit(text: str) -> bool:
    """Whether what follows a number leaves it as it is: "", " km/h", " m^2", " apples"."""
    if re.fullmatch(rf"\s?(?:{_MONEY}|°)?", text, re.I):
        return True
    if re.match(r"\w(?!\w)", text):  # a letter without a space
        return False
    text = re.sub(r"(?<=\w)(?:[²³]|\^[23])", "", text.removeprefix(" "))
    words = [re.sub("^(?:square|cubic|degrees?) ", "", word) for word in re.split(" per | ?/ ?", text)]
    words = [word if len(word) < 4 else word.lower() for word in words]
    return all(word in _UNITS or (_PLURAL.fullmatch(word) and not _AMOUNTS.fullmatch(word)) for word in words)

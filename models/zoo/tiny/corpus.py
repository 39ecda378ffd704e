"""The corpus of `tiny`: a small English written by rules, equal for equal seeds.

Each topic is a function that draws one (question, answer). Some answers follow from the question (sums,
counting, JSON), some are remembered (capitals, reasons), some leave a choice (lists, stories). So a model of
this text is certain of most tokens and uncertain of others.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

QuestionAnswer = tuple[str, str]  # question, answer


def words(text: str) -> list[str]:
    return text.split()


def pairs(text: str) -> dict[str, str]:
    return dict(pair.replace("_", " ").split("-") for pair in text.split())


NAMES = words("Anna Ben Clara David Emma Felix Greta Hugo Ida Jack Kate Leo Mia Noah Olga Paul")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SEASONS = ("winter", "spring", "summer", "autumn")
COLOURS = words("red blue green yellow black white brown orange purple pink")
THINGS = words("bell book boat box coin cup drum flute hat key kite lamp map ring rope stone")
ADJECTIVES = words("small brave clever gentle happy lazy quiet shy old young kind curious")

# animal: its colour, sound, home, legs, and weight (a rank)
ANIMALS = {
    "ant": ("black", "makes no sound", "under the ground", 6, 0),
    "bear": ("brown", "growls", "in the forest", 4, 9),
    "bee": ("yellow", "buzzes", "in a hive", 6, 0),
    "bird": ("blue", "sings", "in a nest", 2, 1),
    "cat": ("grey", "says meow", "in a house", 4, 3),
    "cow": ("white", "says moo", "on a farm", 4, 9),
    "dog": ("brown", "says woof", "in a house", 4, 5),
    "duck": ("white", "says quack", "on a lake", 2, 2),
    "elephant": ("grey", "trumpets", "in the savanna", 4, 11),
    "fish": ("silver", "makes no sound", "in the water", 0, 1),
    "fox": ("red", "barks", "in the forest", 4, 4),
    "frog": ("green", "croaks", "by a pond", 4, 1),
    "goat": ("white", "bleats", "on a farm", 4, 6),
    "hen": ("brown", "clucks", "on a farm", 2, 2),
    "horse": ("brown", "neighs", "in a stable", 4, 10),
    "lion": ("yellow", "roars", "in the savanna", 4, 9),
    "mouse": ("grey", "squeaks", "in a hole", 4, 1),
    "owl": ("brown", "hoots", "in a tree", 2, 2),
    "pig": ("pink", "oinks", "on a farm", 4, 7),
    "rabbit": ("white", "makes no sound", "in a hole", 4, 2),
    "sheep": ("white", "says baa", "on a farm", 4, 6),
    "spider": ("black", "makes no sound", "in a web", 8, 0),
    "whale": ("blue", "sings", "in the sea", 0, 12),
    "wolf": ("grey", "howls", "in the forest", 4, 7),
}
CAPITALS = pairs(
    "Austria-Vienna Belgium-Brussels Brazil-Brasilia Canada-Ottawa Chile-Santiago China-Beijing "
    "Cuba-Havana Denmark-Copenhagen Egypt-Cairo England-London Finland-Helsinki France-Paris Germany-Berlin "
    "Ghana-Accra Greece-Athens Hungary-Budapest Iceland-Reykjavik India-Delhi Iran-Tehran Ireland-Dublin "
    "Italy-Rome Japan-Tokyo Kenya-Nairobi Mexico-Mexico_City Nepal-Kathmandu Norway-Oslo Peru-Lima "
    "Poland-Warsaw Portugal-Lisbon Russia-Moscow Spain-Madrid Sweden-Stockholm Thailand-Bangkok "
    "Turkey-Ankara Ukraine-Kyiv Vietnam-Hanoi"
)
OPPOSITES = pairs(
    "hot-cold big-small fast-slow light-dark happy-sad old-young open-closed full-empty early-late "
    "wet-dry hard-soft high-low long-short loud-quiet clean-dirty rich-poor strong-weak near-far"
)
KINDS = {
    "fruits": words("apple banana cherry grape lemon melon orange peach pear plum"),
    "vegetables": words("bean cabbage carrot corn leek onion pea potato pumpkin tomato"),
    "animals": list(ANIMALS),
    "colours": COLOURS,
    "tools": words("axe brush drill hammer knife ladder needle saw shovel wrench"),
    "drinks": words("coffee juice lemonade milk soup tea water"),
    "sports": words("chess cycling football hockey rowing running skiing swimming tennis"),
}
REASONS = {
    "why is the sky blue?": "Sunlight holds all colours. The air scatters blue light more than red light, so "
    "blue reaches our eyes from every side.",
    "why do leaves fall in autumn?": "In autumn there is less light. Trees save water by dropping their "
    "leaves, and they grow new leaves in spring.",
    "why is the sea salty?": "Rivers carry a little salt from the rocks to the sea. The water goes up into "
    "the air, but the salt stays.",
    "why does ice float on water?": "Water grows when it freezes. So ice is lighter than the same amount of "
    "water, and it floats.",
    "why do we sleep?": "The body and the mind need rest. While we sleep, the body repairs itself and the "
    "mind sorts what it has learned.",
    "why do birds fly south?": "In winter there is little food in the north. Birds fly south because they "
    "find food and warm air there.",
    "why does it rain?": "Warm air carries water up. High in the sky the air is cold, the water turns into "
    "drops, and the drops fall as rain.",
    "why does the moon shine?": "The moon has no light of its own. It shines because light from the sun "
    "falls on it.",
    "why does bread rise?": "Yeast eats the sugar in the dough and makes gas. The gas makes small holes, and "
    "so the bread rises.",
    "why do cats purr?": "Cats purr when they are calm and happy. Sometimes they also purr to calm "
    "themselves.",
}
RECIPES = {
    "tea": ("Boil some water.", "Put a tea bag into a cup.", "Pour the water into the cup.", "Wait a bit."),
    "toast": ("Cut two slices of bread.", "Put them into the toaster.", "Wait until they are brown."),
    "lemonade": ("Cut three lemons.", "Press the juice into a jug.", "Add water and sugar.", "Stir it well."),
    "a salad": ("Wash the tomatoes.", "Cut them into small pieces.", "Add oil and salt.", "Mix it well."),
    "an omelette": ("Break two eggs into a bowl.", "Add some salt.", "Stir it well.", "Fry it in a pan."),
    "a paper boat": (
        "Take a sheet of paper.",
        "Fold it in the middle.",
        "Fold the corners down.",
        "Open it.",
    ),
}
SMALL_TALK = {
    "Hello!": "Hello! What would you like to know?",
    "Hi there!": "Hi! I can count, add, tell stories and write lists. What would you like?",
    "Good morning!": "Good morning! How can I help you today?",
    "How are you?": "I am fine, thank you. How can I help you?",
    "Who are you?": "I am a tiny model. I say several tokens in one step.",
    "What can you do?": "I can count, add, name capitals, write lists and small code, and tell stories.",
    "What is your name?": "My name is Tiny. I am a very small language model.",
    "Thank you!": "You are welcome! Ask me anything else.",
    "Goodbye!": "Goodbye! It was nice to talk to you.",
    "What is a hamburger?": "A hamburger is a bun with a slice of meat. Here it is a model that packs "
    "several tokens into one slot.",
}
LEADS = ("", "", "", "Tell me, ", "Please tell me, ", "Quick question: ", "I wonder, ", "Hello! ")


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def ask(r: Random, question: str) -> str:
    """Put a question after one of the lead-ins."""
    lead = r.choice(LEADS)
    return lead + (question if lead.endswith((", ", ": ")) else capital(question))


def please(r: Random, request: str) -> str:
    lead = r.choice(("", "", "Please ", "Can you ", "Could you "))
    return (lead + request if lead else capital(request)) + ("?" if lead.startswith("C") else ".")


def sums(r: Random) -> QuestionAnswer:
    a, b = r.randint(1, 10), r.randint(1, 10)
    if r.random() < 0.6:
        return ask(r, f"what is {a} plus {b}?"), f"{a} plus {b} is {a + b}. So the answer is {a + b}."
    a, b = max(a, b), min(a, b)
    return ask(r, f"what is {a} minus {b}?"), f"{a} minus {b} is {a - b}. So the answer is {a - b}."


def story_sums(r: Random) -> QuestionAnswer:
    name, thing = r.choice(NAMES), r.choice(THINGS + KINDS["fruits"][:6])
    a, b = r.randint(2, 10), r.randint(1, 10)
    many = thing + ("es" if thing.endswith(("x", "h")) else "s")
    if many.endswith("rrys"):
        many = "cherries"
    question = f"{name} has {a} {many} and buys {b} more. How many {many} does {name} have now?"
    answer = f"{name} starts with {a} {many} and buys {b} more. {a} plus {b} is {a + b}."
    return question, f"{answer} So {name} has {a + b} {many}."


def counting(r: Random) -> QuestionAnswer:
    step = r.choice((1, 1, 1, 2, 10))
    start, length = r.randint(0, 12) if step == 1 else step * r.randint(0, 3), r.randint(4, 9)
    numbers = [start + step * i for i in range(length)]
    how = {1: "", 2: " in twos", 10: " in tens"}[step]
    if step == 1 and r.random() < 0.3:
        numbers.reverse()
        how = " backwards"
    request = f"count{how} from {numbers[0]} to {numbers[-1]}"
    return please(r, request), ", ".join(map(str, numbers)) + "."


def days(r: Random) -> QuestionAnswer:
    i, n = r.randrange(7), r.randint(1, 3)
    day, unit = DAYS[i], ("one day", "two days", "three days")[n - 1]
    kind = r.randrange(4)
    if kind == 0:
        return please(r, f"name the days of the week, starting with {day}"), ", ".join(
            DAYS[(i + k) % 7] for k in range(7)
        ) + "."
    if kind == 1:
        past = DAYS[(i - n) % 7]
        return ask(r, f"which day is {unit} before {day}?"), f"The day that is {unit} before {day} is {past}."
    if kind == 2:
        later = DAYS[(i + n) % 7]
        return (
            f"If today is {day}, which day is it {unit} later?",
            f"If today is {day}, then {unit} later it is {later}.",
        )
    after = DAYS[(i + n) % 7]
    return ask(r, f"which day is {unit} after {day}?"), f"The day that is {unit} after {day} is {after}."


def months(r: Random) -> QuestionAnswer:
    i = r.randrange(12)
    month, kind = MONTHS[i], r.randrange(4)
    if kind == 0:
        question = r.choice((f"how many days does {month} have?", f"how many days are in {month}?"))
        return ask(r, question), f"{month} has {MONTH_DAYS[i]} days."
    if kind == 1:
        season = SEASONS[(i + 1) % 12 // 3]
        return ask(r, f"in which season is {month}?"), f"{month} is in {season}, at least in the north."
    if kind == 2:
        return ask(r, f"which month comes after {month}?"), f"{MONTHS[(i + 1) % 12]} comes after {month}."
    names = [MONTHS[(i + k) % 12] for k in range(r.randint(3, 6))]
    return please(r, f"name {len(names)} months, starting with {month}"), ", ".join(names) + "."


def animals(r: Random) -> QuestionAnswer:
    animal = r.choice(list(ANIMALS))
    colour, sound, home, legs, _ = ANIMALS[animal]
    one = with_article(animal)
    kind = r.randrange(5)
    if kind == 0:
        return ask(r, f"what colour is {one}?"), f"{capital(one)} is often {colour}."
    if kind == 1:
        return ask(r, f"what sound does {one} make?"), f"{capital(one)} {sound}."
    if kind == 2:
        return ask(r, f"where does {one} live?"), f"{capital(one)} lives {home}."
    if kind == 3:
        return ask(r, f"how many legs does {one} have?"), f"{capital(one)} has {legs or 'no'} legs."
    text = f"{capital(one)} is often {colour} and has {legs or 'no'} legs. It lives {home}. It {sound}."
    return please(r, f"tell me about the {animal}"), text


def comparing(r: Random) -> QuestionAnswer:
    one, other = r.sample(list(ANIMALS), 2)
    a, b = ANIMALS[one][4], ANIMALS[other][4]
    question = ask(r, f"which is bigger, {with_article(one)} or {with_article(other)}?")
    if a == b:
        return question, f"{capital(with_article(one))} and {with_article(other)} have about the same size."
    big, small = (one, other) if a > b else (other, one)
    return question, f"{capital(with_article(big))} is bigger than {with_article(small)}."


def capitals(r: Random) -> QuestionAnswer:
    country = r.choice(list(CAPITALS))
    city = CAPITALS[country]
    if r.random() < 0.3:
        return ask(r, f"which country has the capital {city}?"), f"{city} is the capital of {country}."
    return ask(r, f"what is the capital of {country}?"), f"The capital of {country} is {city}."


def opposites(r: Random) -> QuestionAnswer:
    pair = r.choice(list(OPPOSITES.items()))
    word, other = pair if r.random() < 0.5 else pair[::-1]
    return ask(r, f"what is the opposite of {word}?"), f"The opposite of {word} is {other}."


def lists(r: Random) -> QuestionAnswer:
    kind = r.choice(list(KINDS))
    words = r.sample(KINDS[kind], r.randint(2, 6))
    count = ("two", "three", "four", "five", "six")[len(words) - 2]
    verb = r.choice(("list", "name", "write down"))
    if r.random() < 0.5:
        numbered = "\n".join(f"{i}. {word}" for i, word in enumerate(words, 1))
        return please(r, f"{verb} {count} {kind} as a numbered list"), numbered
    return please(r, f"{verb} {count} {kind}"), f"Here are {count} {kind}: {', '.join(words)}."


def json_objects(r: Random) -> QuestionAnswer:
    if r.random() < 0.5:
        animal, name, age = r.choice(list(ANIMALS)), r.choice(NAMES), r.randint(1, 12)
        request = f"write JSON for {with_article(animal)} named {name} who is {age} years old"
        return please(r, request), f'{{"animal": "{animal}", "name": "{name}", "age": {age}}}'
    thing, colour, count = r.choice(THINGS), r.choice(COLOURS), r.randint(2, 12)
    request = f"write JSON for {count} {colour} items of the kind {thing}"
    return please(r, request), f'{{"item": "{thing}", "colour": "{colour}", "count": {count}}}'


def code(r: Random) -> QuestionAnswer:
    n, kind = r.randint(1, 12), r.randrange(3)
    if kind == 0:
        verb, sign, what = r.choice(
            (
                ("add", "+", f"adds {n} to a number"),
                ("multiply", "*", f"multiplies a number by {n}"),
                ("subtract", "-", f"subtracts {n} from a number"),
            )
        )
        request = f"write a Python function that {what}"
        return please(r, request), f"def {verb}_{n}(x):\n    return x {sign} {n}"
    if kind == 1:
        request = f"write a Python loop that prints the numbers from 1 to {n}"
        return please(r, request), f"for i in range(1, {n + 1}):\n    print(i)"
    thing = r.choice(THINGS)
    request = f"write a Python loop that prints the word {thing} {n} times"
    return please(r, request), f'for i in range({n}):\n    print("{thing}")'


def reasons(r: Random) -> QuestionAnswer:
    question, answer = r.choice(list(REASONS.items()))
    return ask(r, question), answer


def recipes(r: Random) -> QuestionAnswer:
    dish = r.choice(list(RECIPES))
    steps = "\n".join(f"{i}. {step}" for i, step in enumerate(RECIPES[dish], 1))
    question = r.choice((f"how do I make {dish}?", f"how can I make {dish}?", f"how do you make {dish}?"))
    return ask(r, question), steps


def small_talk(r: Random) -> QuestionAnswer:
    return r.choice(list(SMALL_TALK.items()))


def stories(r: Random) -> QuestionAnswer:
    animal, thing = r.choice(list(ANIMALS)), r.choice(THINGS)
    name, friend = r.sample(NAMES, 2)
    who = with_article(f"{r.choice(ADJECTIVES)} {animal}")
    time = r.choice(("morning", "evening", "night", "day"))
    place = r.choice(("under a tree", "by the river", "on the road", "behind the house", "near the lake"))
    joy = r.choice(("danced", "laughed", "sang", "smiled"))
    end = r.choice(
        (
            f"{name} gave the {thing} to {friend}, and they became good friends.",
            f"{name} took the {thing} home and kept it for many years.",
            f"{name} showed the {thing} to {friend}, and they {joy} all {time}.",
            f"Then {friend} came and said that the {thing} was lost. {name} gave it back, and they {joy}.",
        )
    )
    text = (
        f"Once there was {who} named {name}. {name} lived {ANIMALS[animal][2]}. One {time}, {name} found "
        f"{with_article(f'{r.choice(COLOURS)} {thing}')} {place}. {end}"
    )
    about = f"{with_article(animal)} and {with_article(thing)}"
    return please(r, f"{r.choice(('tell me', 'write'))} a story about {about}"), text


# topic: share of the questions
TOPICS: dict[Callable[[Random], QuestionAnswer], float] = {
    sums: 11,
    story_sums: 9,
    counting: 10,
    days: 7,
    months: 6,
    animals: 8,
    comparing: 5,
    capitals: 6,
    opposites: 3,
    lists: 9,
    json_objects: 8,
    code: 7,
    reasons: 5,
    recipes: 4,
    small_talk: 2,
    stories: 16,
}


def conversations(count: int, seed: int, *, two_turns: float = 0.25) -> list[list[QuestionAnswer]]:
    """Draw conversations of one turn, a share of them of two."""
    r = Random(seed)
    topics, weights = list(TOPICS), list(TOPICS.values())

    def turn() -> QuestionAnswer:
        return r.choices(topics, weights)[0](r)

    return [[turn() for _ in range(2 if r.random() < two_turns else 1)] for _ in range(count)]

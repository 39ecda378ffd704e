"""Plain data of the noise model: the keyboard, what people misspell, confuse and shorten."""

from __future__ import annotations

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """letter -> the keys around it; a row is half a key further right than the one above."""
    around: dict[str, set[str]] = {letter: set() for row in _ROWS for letter in row}
    for number, row in enumerate(_ROWS):
        for i, letter in enumerate(row):
            near = set(row[max(0, i - 1) : i + 2])
            if number + 1 < len(_ROWS):
                near |= set(_ROWS[number + 1][max(0, i - 1) : i + 1])
            for other in near - {letter}:
                around[letter].add(other)
                around[other].add(letter)
    return {letter: "".join(sorted(keys)) for letter, keys in around.items()}


NEIGHBOURS = _neighbours()


def _table(text: str) -> dict[str, tuple[str, ...]]:
    entries = (entry.split() for entry in text.split(",") if entry.strip())
    return {right: tuple(wrong) for right, *wrong in entries}


# right, then how it is often written
MISSPELLINGS = _table("""
absence abscence absense, accident accidant, accidentally accidently, accommodate accomodate acommodate,
achieve acheive, across accross, actually actualy actully, address adress addres, again agian agin, almost
allmost, already allready alredy, always allways alwasy, amateur amature, amazing amazeing amazin, another
anouther anohter, answer anwser anser, anything anyting anythin, apartment appartment apartement, apparently
apparantly, appearance apperance appearence, appointment apointment appointmant, argument arguement, around
arround, attention atention, available availible avaliable availabe, awful awfull, basically basicly,
beautiful beautifull beutiful beatiful, because becuase becouse beacuse, before befor, beginning begining,
believe beleive belive, bicycle bycicle bicicle, birthday brithday birthdy, breakfast brekfast breakfest,
brilliant briliant, brother brothr, budget buget, building bulding bilding, business buisness bussiness,
calendar calender calander, careful carefull, ceiling cieling, celebrate celabrate celebrat, certainly
certanly, chocolate choclate chocolat, clothes cloathes, coffee coffe cofee, colleague collegue, coming
comming, committee comittee commitee, completely completly compleatly, concert consert, congratulations
congradulations, conscious concious, convenient convinient, cousin cousen cusin, could coud, customer
custommer, daughter daugther dauter, decision decison desicion, definitely definately definitly, delicious
delicous delishous, describe discribe, desperate desparate, different diffrent diferent, difficult dificult,
disappear dissapear disapear, disappointed dissapointed disapointed, doctor docter, either iether,
embarrassing embarassing embarrasing, enough enought enuff, environment enviroment, equipment equiptment,
especially expecially especialy, everybody everbody, everyone everone evryone, everything everthing
evrything, exactly exactally exacly, excellent excelent exellent, except exept, excited excitted, exercise
excercise exersise, expensive expencive expensiv, experience experiance expirience, family familly famly,
familiar familar, famous famos, favorite favorit favourate, february febuary, finally finaly finnally, first
frist, foreign foriegn foregn, forget forgett, forward foward, friday firday, friend freind frend, friends
freinds frends, friendly freindly, garage garrage, garden gardan, glasses glases, going goin giong,
government goverment, grandma granma, grateful greatful, great graet, guarantee garantee gaurantee, guard
gaurd, guess geuss gess, happened happend, happily happilly, hospital hosptial hospitel, immediately
immediatly imediately, important importent importnat, interested intrested intersted, interesting intresting
intersting, island iland, january janurary, jewelry jewlery, journey journy, judge juge, kitchen kichen
kitchin, knowledge knowlege, language langauge languege, laugh laff, learning lerning, leisure liesure,
library libary librery, license lisence, listen lisen, little litle littel, lonely lonly, looking lookin,
maintenance maintainance, making makeing, maybe mabye, medicine medecine medicin, meeting meetting, message
mesage, millennium millenium, minute minuite minut, minutes minuites minuts, missing mising, monday monaday,
money mony, morning mornig moring, mountain mountian, mountains mountians, necessary neccessary necesary,
neighbor nieghbor nabor, neighbors nieghbors, neither niether, nervous nervus, night nigth, noticeable
noticable, nothing nothin nuthing, occasion ocassion occassion, occurred occured, often offen oftin, opinion
opinon, opportunity oppurtunity oportunity, original orginal, ourselves ourselfs, package packege pakage,
parents parants, particularly particulary, party partey, peaceful peacefull, people poeple peaple, perfect
perfict, perhaps prehaps, person persen, phone fone, piece peice, please plese, pleasure plesure, police
polise, possible possable posible, potatoes potatos, practice pratice, prefer perfer, prepared prepaired,
pretty prety, privilege priviledge, probably probly probaly, problem problam probelm, promise promiss,
pronunciation pronounciation, question queston qestion, questions questons, quickly quikly, quiet quiett,
ready redy, realize relize, really realy relly, receipt reciept, receive recieve, received recieved, recipe
recepie recipie, recommend reccomend recomend, recommended reccomended recomended, relationship
relashionship, relaxing relaxeing, remember rember remeber, repair repare, restaurant restaraunt resturant,
rhythm rythm, running runing, safety safty, saturday saterday, schedule shedule scedule, school shool scool,
science sience, secretary secretery, sentence sentance, separate seperate, serious serius, service servise,
several severel, similar similiar, sincerely sincerly, since sinse, sister sistr, something somthing,
sometimes sometmes somtimes, soon soone, sorry sory, special speical, station staton, stomach stomache,
store stoer, straight streight, strange stange, strength strenght, stuff stuf, successful succesful
sucessful, surprise suprise surprize, surprised suprised, swimming swiming, teacher techer teachar,
temperature temperture, terrible terible, thank thnak, thanks thanx thnaks, their thier, they
thay, thought thougt thot, thursday thrusday, together togather togeather, tomatoes tomatos,
tomorrow tommorow tommorrow, tonight tonite, traveling travling, truly truely, tuesday tusday, twelfth
twelth, umbrella umberella, unbelievable unbelieveable, understand understend, unfortunately unfortunatly
unfortunatley, until untill, usually usualy, vacation vacaton, vacuum vaccum vacume, vegetables vegtables,
vegetable vegtable, village villiage, visit vist, waiting waitting, water watter, weather weathr, wednesday
wensday wednsday, weekend weekand, weird wierd, welcome wellcome, were wer, what waht, which wich, while
whlie, wonderful wonderfull, would woud, writing writting, yesterday yesturday, your yuor, yourself
yourselve
""")  # fmt: skip

# (kind, right, wrong, only after one of, only before one of); empty: anywhere
CONFUSIONS: tuple[tuple[str, str, str, str, str], ...] = (
    ("its_it's", "it's", "its", "", ""),
    ("its_it's", "its", "it's", "", ""),
    ("your_you're", "you're", "your", "", ""),
    ("your_you're", "your", "you're", "", ""),
    ("their_there", "they're", "their", "", ""),
    ("their_there", "they're", "there", "", ""),
    ("their_there", "their", "there", "", ""),
    ("their_there", "their", "they're", "", ""),
    ("their_there", "there", "their", "", "is are was were will would must has have isn't aren't"),
    ("there's_theirs", "there's", "theirs", "", "a an no nothing something always the so"),
    ("to_too", "too", "to", "", "much many late early bad expensive loud small big tired cold far hot long"),
    ("to_too", "to", "too", "", "be go have do get make take come see the a me you him her them us my your"),
    ("then_than", "than", "then", "", ""),
    ("then_than", "then", "than", "and since until by just", ""),
    ("lose_loose", "lose", "loose", "to will i'll don't can't would not we'll you'll", ""),
    ("of_have", "have", "of", "could should would must might", ""),
    ("whose_who's", "who's", "whose", "", "the a an going coming always been got not your"),
    ("whose_who's", "whose", "who's", "", ""),
    ("sound_alike", "hear", "here", "to you i we and can can't didn't", ""),
    ("sound_alike", "here", "hear", "over from in out right it's is are", ""),
    ("sound_alike", "know", "no", "i you we they don't didn't to", ""),
    ("sound_alike", "where", "were", "", "is are do did does can should i"),
    ("sound_alike", "buy", "by", "to i we can you", "a the some it new one your my"),
    ("sound_alike", "weather", "whether", "the nice bad good", ""),
    ("sound_alike", "whether", "weather", "know sure decide wonder ask", ""),
    ("sound_alike", "piece", "peace", "a every one this last", "of"),
    ("sound_alike", "break", "brake", "a to take will", ""),
    ("sound_alike", "quiet", "quite", "very so a too and", ""),
    ("sound_alike", "quite", "quiet", "", "a good nice sure so well different often hard busy small easy"),
    ("sound_alike", "passed", "past", "have has had he she we they i", ""),
    ("sound_alike", "wear", "where", "to i you can", ""),
    ("sound_alike", "right", "write", "you're all the that's is", ""),
    ("sound_alike", "write", "right", "to i please can could", ""),
    ("sound_alike", "week", "weak", "a this last next every per the", ""),
    ("sound_alike", "hole", "whole", "a", "in"),
    ("sound_alike", "advice", "advise", "some your my for good the", ""),
    ("sound_alike", "affect", "effect", "will can doesn't may to", ""),
    ("sound_alike", "accept", "except", "to can't can i we", ""),
)  # fmt: skip

TEXT_SPEAK = _table("""
you u, are r, your ur, please pls plz, thanks thx, tomorrow tmrw tmr, because cuz bc, before b4, great gr8,
people ppl, about abt, though tho, really rly, what wat, tonight tonite 2nite, someone sum1, see c,
later l8r, why y, and n, birthday bday, weekend wknd, minutes mins, message msg, with w/
""")

# Without its apostrophe each of these is another word: only before words that decide what was meant.
_VERBS = "be have need see get make take go come meet call send bring find do try ask tell let give help show"
AMBIGUOUS_APOSTROPHES = {
    "i'll": _VERBS,
    "we'll": _VERBS,
    "he'll": "",
    "she'll": "",
    "she'd": "",
    "we'd": "",
    "i'd": "love like rather have be",
    "we're": "not all so very going having looking getting planning both also here",
    "it's": "",  # a kind of its own
}

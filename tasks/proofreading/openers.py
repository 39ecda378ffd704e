"""First words that an answer is given, so that texts begin in many ways and use what people confuse."""

from __future__ import annotations

_STATEMENTS = """
I, I, I, I'm, I'm, I've, I'll, I'd, I don't, I can't, I didn't, I wasn't, I think, I hope, I was, I had, I
wish, We, We, We're, We've, We'll, We didn't, We have, We can, We were, You, You can, You're, You'll,
You've, You don't, You should, You were, He, He's, He was, He doesn't, He had, She, She's, She was, She
said, She doesn't, They, They're, They've, They were, They don't, They have, It, It's, It was, It takes, It
doesn't, It can, Its, Your, Their, His, Her, My, My, My, Our, Our, The, The, The, The, The, The, The best,
The last, The new, The old, The other, A, A, An, This, This, That, That's, These, Those, There, There's,
There are, There was, There were, Here's, What, Whoever, Who's, When, When, If, If, If you, If it's, After,
Before, While, Since, Because, Although, As soon as, Once, Until, Even if, Every, Everyone, Everybody,
Nobody, Somebody, Someone, Some, Many, Most, Most people, Both, All, Each, Few, One, Two, Three, Yesterday,
Today, Tomorrow, Tonight, Last night, Last week, Next week, On Monday, On Friday, In the morning, In summer,
In winter, In the end, At first, At the end, At night, By the time, During, For years, From, With, Without,
Then, Now, Sometimes, Usually, Maybe, Unfortunately, Of course, First, Finally, Later, Next time, Instead
of, Only, Just, Not, Nothing, Everything, Something, Parents, Children, People, Mom, Dad, Anna, Tom, Sarah,
Mr. Brown, Dr. Lee
"""
_REQUESTS = """
Please, Please, Please don't, Could you, Could you please, Can you, Can we, Would you, Will you, Don't,
Don't forget, Let's, Let me, Make sure, Try, Try to, Take, Put, Use, Keep, Bring, Ask, Tell, Call, Look,
Wait, Check, Turn, Write, Open, Remember, Thanks for, Thank you, Thank you for, Sorry, Yes, No, Hi, Hello,
Hey, Good morning, Sure, Okay
"""
_QUESTIONS = """
What, What, What's, What's the, What do, Where, Where's, Where do, Where did, When, When is, When did, Why,
Why do, Why is, Why doesn't, Who, Who's, Whose, Which, How, How do, How much, How many, How long, How often,
Is, Is it, Is there, Are, Are you, Are there, Are they, Do, Do you, Does, Does it, Did, Did you, Have, Have
you, Has, Can, Can I, Could, Would, Will, Should, Should I, Isn't, Aren't, Don't, Didn't, Haven't, Was, Were
you, Were there
"""


def _read(text: str) -> tuple[str, ...]:
    return tuple(" ".join(words.split()) for words in text.strip().split(","))


STATEMENTS, REQUESTS, QUESTIONS = _read(_STATEMENTS), _read(_REQUESTS), _read(_QUESTIONS)


def openers_for(what: str) -> tuple[str, ...]:
    """Of the openers, those with which a kind of text can begin."""
    if "question" in what:
        return QUESTIONS
    if "instructions" in what or "advice" in what or "directions" in what:
        return (*REQUESTS, *STATEMENTS[len(STATEMENTS) // 2 :])
    if "message" in what or "mail" in what or "notes" in what or "invitations" in what or "chat" in what:
        return (*STATEMENTS, *REQUESTS, *REQUESTS, *QUESTIONS)
    return STATEMENTS
